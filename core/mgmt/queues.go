package mgmt

import (
	"slices"
	"strings"

	"github.com/curfewmq/curfew/core/amqp"
	"github.com/curfewmq/curfew/core/queue"
	"github.com/curfewmq/curfew/core/rabbit"
	"github.com/curfewmq/curfew/core/vhost"
)

// depth is how many messages lie in queues.
type depth struct{ ready, unacked, discarded int64 }

func (d *depth) addAll(v *vhost.VHost) {
	for _, shell := range v.Mailboxes() {
		_ = shell.Look(func(q *queue.Queue) { // an error means that it is gone
			s := q.Stats()
			d.ready += int64(s.Ready)
			d.unacked += int64(s.Unacked)
			d.discarded += int64(s.Discarded)
		})
	}
}

func (d *depth) counts() []tallied {
	return []tallied{
		{"messages", d.ready + d.unacked + d.discarded}, {"messages_ready", d.ready}, {"messages_unacknowledged", d.unacked},
	}
}

// queueRef is a queue of a vhost.
type queueRef struct {
	vhost *vhost.VHost
	shell *queue.Mailbox
	cfg   *queue.Config
}

func (a *API) queues(c *request) error {
	var all []queueRef
	for _, v := range c.visible() {
		from := len(all)
		for _, shell := range v.Mailboxes() {
			all = append(all, queueRef{v, shell, shell.Config()})
		}
		slices.SortFunc(all[from:], func(x, y queueRef) int { return strings.Compare(x.cfg.Name, y.cfg.Name) })
	}
	return list(c, listing[queueRef]{
		items: all, name: func(r queueRef) string { return r.cfg.Name }, field: queueField,
		object: func(r queueRef) object { return a.describeQueue(c, r) },
	})
}

func (a *API) queuesIn(c *request) error { return a.queues(c) }

// queueField is what is known of a queue without showing all of it.
func queueField(r queueRef, field string) (any, bool) {
	switch field {
	case "messages", "messages_ready", "messages_unacknowledged", "consumers":
		return queueCount(r.shell, field), true
	case "type":
		return r.cfg.Kind, true
	case "durable":
		return r.cfg.Durable, true
	case "auto_delete":
		return r.cfg.AutoDelete, true
	case "exclusive":
		return r.cfg.Exclusive, true
	}
	return placeField(r.vhost.Name(), r.cfg.Name, field)
}

// queueCount is one of the counts of a queue; null when it is gone.
func queueCount(shell *queue.Mailbox, field string) (n any) {
	_ = shell.Look(func(q *queue.Queue) { // an error means that it is gone
		s := q.Stats()
		switch field {
		case "messages":
			n = int64(s.Ready + s.Unacked + s.Discarded)
		case "messages_ready":
			n = int64(s.Ready)
		case "messages_unacknowledged":
			n = int64(s.Unacked)
		case "consumers":
			n = int64(s.Consumers)
		}
	})
	return n
}

// describeQueue shows a queue, as far as the query wants it looked at. One that is gone shows what it was.
func (a *API) describeQueue(c *request, r queueRef) object {
	o, q := a.queueFacts(r), &c.query
	if q.within(o) {
		return o
	}
	l, err := look(r.shell)
	if err != nil {
		return append(o, member{"state", "down"})
	}
	if q.noStats && q.queueTotals {
		d := l.depth()
		o = appendCounts(o, d.counts())
	}
	if q.noStats {
		return append(o, member{"state", l.state()})
	}
	return a.queueStats(c, o, r, l)
}

// queueFacts are what seldom changes of a queue.
func (a *API) queueFacts(r queueRef) object {
	applied := r.cfg.Policies
	o := object{
		{"name", r.cfg.Name},
		{"vhost", r.cfg.VHost},
		{"type", r.cfg.Kind},
		{"durable", r.cfg.Durable},
		{"auto_delete", r.cfg.AutoDelete},
		{"exclusive", r.cfg.Exclusive},
		{"arguments", argsObject(r.cfg.Args)},
		{"node", a.Node},
		{"policy", nil},
		{"operator_policy", nil},
		{"effective_policy_definition", definitionObject(applied.Definition())},
		{"expiry_strategy", r.cfg.Strategy},
	}
	for i := range o {
		switch {
		case o[i].name == "policy" && applied.User != nil:
			o[i].value = applied.User.Name
		case o[i].name == "operator_policy" && applied.Operator != nil:
			o[i].value = applied.Operator.Name
		}
	}
	return o
}

// queueName is the queue that the path names.
func (c *request) queueShell() (*queue.Mailbox, error) {
	shell := c.vhost.Mailbox(c.vars["queue"])
	if shell == nil {
		return nil, errNotFound
	}
	return shell, nil
}

func (a *API) queue(c *request) error {
	shell, err := c.queueShell()
	if err != nil {
		return err
	}
	o := a.describeQueue(c, queueRef{c.vhost, shell, shell.Config()})
	consumers := []object{}
	for _, s := range consumersOf(shell) {
		consumers = append(consumers, a.describeConsumer(s.ConsumerInfo, s.active))
	}
	return c.reply(append(o, member{"consumer_details", consumers}, member{"incoming", []any{}}, member{"deliveries", []any{}}))
}

func (a *API) putQueue(c *request) error {
	f, err := c.body()
	if err != nil {
		return err
	}
	if node, err := f.text("node"); err != nil || node != "" && node != a.Node {
		return badRequest("Node %s could not be contacted", node)
	}
	d, err := f.queue(c.vars["queue"])
	if err != nil {
		return err
	}
	if d.Name == "" {
		return badRequest("the name of a queue is empty")
	}
	exists := c.vhost.Mailbox(rabbit.Sanitise(d.Name)) != nil
	err = c.ask(&amqp.QueueDeclare{Queue: d.Name, Durable: d.Durable, AutoDelete: d.AutoDelete, Arguments: d.Args})
	if err != nil {
		return err
	}
	return c.created(!exists)
}

// queue reads the description of a queue.
func (f fields) queue(name string) (d vhost.QueueDeclare, err error) {
	d.Name = name
	if err = checkName("name", name); err != nil {
		return d, err
	}
	if d.Durable, err = f.flag("durable", false); err != nil {
		return d, err
	}
	if d.AutoDelete, err = f.flag("auto_delete", false); err != nil {
		return d, err
	}
	d.Args, err = f.arguments()
	return d, err
}

func (*API) deleteQueue(c *request) error {
	shell, err := c.queueShell()
	if err != nil {
		return err
	}
	err = c.ask(&amqp.QueueDelete{
		Queue:    shell.Config().Name,
		IfUnused: c.query.raw.Get("if-unused") == "true", IfEmpty: c.query.raw.Get("if-empty") == "true",
	})
	if err != nil {
		return err
	}
	return c.done()
}

func (*API) purge(c *request) error {
	shell, err := c.queueShell()
	if err != nil {
		return err
	}
	if err := c.ask(&amqp.QueuePurge{Queue: shell.Config().Name}); err != nil {
		return err
	}
	return c.done()
}

// act takes note of what is asked of mirrored queues, of which there are none.
func (*API) act(c *request) error {
	if _, err := c.queueShell(); err != nil {
		return err
	}
	f, err := c.body()
	if err != nil {
		return err
	}
	if err := f.need("action"); err != nil {
		return err
	}
	action, err := f.text("action")
	if err != nil {
		return err
	}
	if action != "sync" && action != "cancel_sync" {
		return badTerm("unknown", action)
	}
	return c.done()
}
