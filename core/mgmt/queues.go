package mgmt

import (
	"slices"
	"strings"

	"github.com/curfewmq/curfew/core/amqp"
	"github.com/curfewmq/curfew/core/mgmt/definitions"
	"github.com/curfewmq/curfew/core/mgmt/jsonobj"
	"github.com/curfewmq/curfew/core/queue"
	"github.com/curfewmq/curfew/core/rabbit"
	"github.com/curfewmq/curfew/core/vhost"
	"github.com/curfewmq/curfew/policies"
)

// queueRef is a queue of a vhost.
type queueRef struct {
	vhost   *vhost.VHost
	mailbox *queue.Mailbox
	cfg     *queue.Config
	node    string
}

func (a *API) queues(c *request) error {
	var all []queueRef
	for _, v := range c.visible() {
		from := len(all)
		for _, m := range v.Mailboxes() {
			all = append(all, queueRef{v, m, m.Config(), a.Node})
		}
		slices.SortFunc(all[from:], func(x, y queueRef) int { return strings.Compare(x.cfg.Name, y.cfg.Name) })
	}
	return list(c, listing[queueRef]{
		items: all, name: func(r queueRef) string { return r.cfg.Name }, field: queueField,
		object: func(r queueRef) object { return a.describeQueue(c, r) },
	})
}

// queueFields are the members of a queue's object that are known without asking the queue. Their names are of the type that members
// have: see namedCount.
var queueFields = [...]struct {
	name any
	get  func(queueRef) any
}{
	{"name", func(r queueRef) any { return r.cfg.Name }},
	{"vhost", func(r queueRef) any { return r.cfg.VHost }},
	{"type", func(r queueRef) any { return r.cfg.Kind }},
	{"durable", func(r queueRef) any { return r.cfg.Durable }},
	{"auto_delete", func(r queueRef) any { return r.cfg.AutoDelete }},
	{"exclusive", func(r queueRef) any { return r.cfg.Exclusive }},
	{"arguments", func(r queueRef) any { return jsonobj.OfArgs(r.cfg.Args) }},
	{"node", func(r queueRef) any { return r.node }},
	{"policy", func(r queueRef) any { return policyName(r.cfg.Policies.User) }},
	{"operator_policy", func(r queueRef) any { return policyName(r.cfg.Policies.Operator) }},
	{"effective_policy_definition", func(r queueRef) any { return definitions.PolicyDefinition(r.cfg.Policies.Definition()) }},
	{"expiry_strategy", func(r queueRef) any { return r.cfg.Strategy }},
}

func policyName(p *policies.Policy) any {
	if p == nil {
		return nil
	}
	return p.Name
}

// queueField returns a member of a queue's object for sorting, without making the object.
func queueField(r queueRef, name string) (any, bool) {
	for i := range queueFields {
		if queueFields[i].name == name {
			return queueFields[i].get(r), true
		}
	}
	i := slices.IndexFunc(depthNames[:], func(names [2]any) bool { return names[0] == name })
	if i < 0 && name != "consumers" {
		return nil, false
	}
	var value any // nil if the queue was deleted
	_ = r.mailbox.Look(func(q *queue.Queue) {
		s := q.Stats()
		if i < 0 {
			value = s.Consumers
			return
		}
		var d depth
		d.add(&s)
		value = d[i]
	})
	return value, true
}

// describeQueue returns a queue as an object, and asks the queue only for members that the query wants. A queue that was deleted
// has the members that are known without it.
func (a *API) describeQueue(c *request, r queueRef) object {
	o, q := make(object, len(queueFields)), &c.query
	for i := range queueFields {
		o[i] = member{queueFields[i].name, queueFields[i].get(r)}
	}
	if q.within(o) {
		return o
	}
	s, err := look(r.mailbox)
	if err != nil {
		return append(o, member{"state", "down"})
	}
	if !q.noStats {
		return a.appendStats(o, c, r, s)
	}
	if q.queueTotals {
		var d depth
		d.add(&s.Stats)
		o = appendCounts(o, d.counts())
	}
	return append(o, member{"state", s.state()})
}

// mailbox returns the queue that the path names.
func (c *request) mailbox() (*queue.Mailbox, error) {
	m := c.vhost.Mailbox(c.vars["queue"])
	if m == nil {
		return nil, errNotFound
	}
	return m, nil
}

func (a *API) queue(c *request) error {
	m, err := c.mailbox()
	if err != nil {
		return err
	}
	o := a.describeQueue(c, queueRef{c.vhost, m, m.Config(), a.Node})
	consumers := []object{}
	for _, s := range consumersOf(m) {
		consumers = append(consumers, a.describeConsumer(s.ConsumerInfo, s.active))
	}
	return c.reply(append(o, member{"consumer_details", consumers}, member{"incoming", []any{}}, member{"deliveries", []any{}}))
}

func (a *API) putQueue(c *request) error {
	r := c.body()
	if node, ok := r.Value("node").(string); r.Has("node") && (!ok || node != "" && node != a.Node) {
		r.Fail(badRequest("Node %s could not be contacted", node))
	}
	d := definitions.ReadQueue(r, c.vars["queue"])
	if d.Name == "" {
		r.Fail(definitions.ErrNoQueueName)
	}
	if err := r.Err(); err != nil {
		return err
	}
	exists := c.vhost.Mailbox(rabbit.Sanitise(d.Name)) != nil
	return c.created(!exists, c.ask(&amqp.QueueDeclare{Queue: d.Name, Durable: d.Durable, AutoDelete: d.AutoDelete, Arguments: d.Args}))
}

func (*API) deleteQueue(c *request) error {
	m, err := c.mailbox()
	if err != nil {
		return err
	}
	return c.done(c.ask(&amqp.QueueDelete{
		Queue:    m.Config().Name,
		IfUnused: c.query.raw.Get("if-unused") == "true", IfEmpty: c.query.raw.Get("if-empty") == "true",
	}))
}

func (*API) purge(c *request) error {
	m, err := c.mailbox()
	if err != nil {
		return err
	}
	return c.done(c.ask(&amqp.QueuePurge{Queue: m.Config().Name}))
}

// act accepts the actions for mirrored queues, which do not exist here, and does nothing.
func (*API) act(c *request) error {
	if _, err := c.mailbox(); err != nil {
		return err
	}
	r := c.body()
	r.Need("action")
	if action := r.Text("action"); action != "sync" && action != "cancel_sync" {
		r.Fail(jsonobj.Pair("unknown", action))
	}
	return c.done(r.Err())
}
