package mgmt

import (
	"github.com/curfewmq/curfew/core/amqp"
	"github.com/curfewmq/curfew/core/mgmt/definitions"
	"github.com/curfewmq/curfew/core/mgmt/jsonobj"
	"github.com/curfewmq/curfew/core/queue"
	"github.com/curfewmq/curfew/core/rabbit"
	"github.com/curfewmq/curfew/core/vhost"
	"github.com/curfewmq/curfew/policies"
	"github.com/curfewmq/curfew/sdk/hook"
)

type exchangeRef struct {
	vhost *vhost.VHost
	vhost.Exchange
}

func listExchanges(c *request) error {
	var all []exchangeRef
	for _, v := range c.visible() {
		for _, x := range v.Exchanges() {
			all = append(all, exchangeRef{v, x})
		}
	}
	return list(c, listing[exchangeRef]{
		items: all, object: describeExchange,
		name:  func(r exchangeRef) string { return r.Name },
		vhost: func(r exchangeRef) string { return r.vhost.Name() },
	})
}

func describeExchange(r exchangeRef) object {
	o := definitions.Exchange(r.vhost.Name(), r.Exchange)
	if p := r.vhost.Policies().Match(policies.Subject{Name: r.Name, Type: policies.Exchange}); p.User != nil {
		o.Add("policy", p.User.Name)
	}
	return append(o, scheduleOf(r)...)
}

// scheduleOf returns how many messages an exchange holds, and when it releases the next; nil if exchanges of its type hold none.
func scheduleOf(r exchangeRef) object {
	m, err := r.vhost.Schedule(r.Name)
	if err != nil {
		return nil
	}
	var next hook.Instant
	_ = m.Look(func(q *queue.Queue) { next = q.Stats().NextRelease }) // it fails if the exchange was deleted
	return object{{"messages_delayed", m.Config().Schedule.Held()}, {"next_release", jsonobj.Instant(next)}}
}

// exchangeName returns the exchange that the path names.
func (c *request) exchangeName() string { return fromPath(c.vars["exchange"]) }

// fromPath returns the name of an exchange from a path, where the default exchange, which has no name, is amq.default.
func fromPath(name string) string {
	if name == "amq.default" {
		return ""
	}
	return name
}

func oneExchange(c *request) error {
	x, ok := c.vhost.Exchange(c.exchangeName())
	if !ok {
		return errNotFound
	}
	return c.reply(append(describeExchange(exchangeRef{c.vhost, x}), member{"incoming", []any{}}, member{"outgoing", []any{}}))
}

func putExchange(c *request) error {
	if err := c.mayConnect(); err != nil {
		return err
	}
	r := c.body()
	x := definitions.ReadExchange(r, c.exchangeName())
	if err := r.Err(); err != nil {
		return err
	}
	_, exists := c.vhost.Exchange(rabbit.Sanitise(x.Name))
	return c.created(!exists, c.ask(&amqp.ExchangeDeclare{
		Exchange: x.Name, Type: x.Type, Durable: x.Durable, AutoDelete: x.AutoDelete, Internal: x.Internal, Arguments: x.Args,
	}))
}

func deleteExchange(c *request) error {
	name := c.exchangeName()
	if _, ok := c.vhost.Exchange(name); !ok {
		return errNotFound
	}
	return c.done(c.ask(&amqp.ExchangeDelete{Exchange: name, IfUnused: c.query.raw.Get("if-unused") == "true"}))
}
