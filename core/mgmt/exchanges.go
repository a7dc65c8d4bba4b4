package mgmt

import (
	"net/url"
	"slices"

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

type binding = definitions.VHostBinding

// toDefault returns the bindings to the default exchange, one for each queue of a vhost.
func toDefault(v *vhost.VHost) (all []binding) {
	for _, q := range v.Mailboxes() {
		all = append(all, defaultBinding(v, q.Config().Name))
	}
	return all
}

func defaultBinding(v *vhost.VHost, queue string) binding {
	return binding{VHost: v.Name(), Binding: vhost.Binding{Destination: queue, Key: queue}}
}

func listAllBindings(c *request) error {
	var all []binding
	for _, v := range c.visible() {
		all = append(append(all, definitions.BindingsOf(v, v.Bindings())...), toDefault(v)...)
	}
	return listBindings(c, all)
}

func listBindings(c *request, all []binding) error {
	definitions.SortBindings(all)
	return list(c, listing[binding]{
		items: all, object: describeBinding,
		name:  func(b binding) string { return b.Source },
		vhost: func(b binding) string { return b.VHost },
	})
}

func describeBinding(b binding) object {
	return append(definitions.Binding(b), member{"properties_key", b.PropertiesKey()})
}

func bindingsFrom(c *request) error {
	if name := c.exchangeName(); name != "" {
		return listBindings(c, definitions.BindingsOf(c.vhost, c.vhost.BindingsFrom(name)))
	}
	return listBindings(c, toDefault(c.vhost))
}

func bindingsTo(c *request) error {
	return listBindings(c, definitions.BindingsOf(c.vhost, c.vhost.BindingsTo(c.exchangeName(), true)))
}

func bindingsOfQueue(c *request) error {
	q, err := c.mailbox()
	if err != nil {
		return err
	}
	name := q.Config().Name
	return listBindings(c, append(definitions.BindingsOf(c.vhost, c.vhost.BindingsTo(name, false)), defaultBinding(c.vhost, name)))
}

// bindingEnds returns a binding with the source and destination that the path names, and no key.
func bindingEnds(c *request) (b vhost.Binding, err error) {
	b = vhost.Binding{Source: fromPath(c.vars["source"]), Destination: c.vars["destination"]}
	switch c.vars["kind"] {
	case "q":
	case "e":
		b.ToExchange, b.Destination = true, fromPath(b.Destination)
	default:
		return b, errNotFound
	}
	if err := jsonobj.CheckName("source", b.Source); err != nil {
		return b, err
	}
	return b, jsonobj.CheckName("destination", b.Destination)
}

// between lists the bindings from the source to the destination that the path names.
func between(c *request) ([]binding, error) {
	ends, err := bindingEnds(c)
	if err != nil {
		return nil, err
	}
	if ends.Source == "" && !ends.ToExchange && c.vhost.Mailbox(ends.Destination) != nil {
		return []binding{defaultBinding(c.vhost, ends.Destination)}, nil
	}
	all := definitions.BindingsOf(c.vhost, c.vhost.BindingsTo(ends.Destination, ends.ToExchange))
	return slices.DeleteFunc(all, func(b binding) bool { return b.Source != ends.Source }), nil
}

func bindingsBetween(c *request) error {
	all, err := between(c)
	if err != nil {
		return err
	}
	return listBindings(c, all)
}

// namedBinding finds the binding that the path names by its key.
func namedBinding(c *request) (b binding, err error) {
	all, err := between(c)
	if err != nil {
		return b, err
	}
	key := definitions.PropertiesKeyOf(c.vars["key"])
	i := slices.IndexFunc(all, func(b binding) bool { return b.PropertiesKey() == key })
	if i < 0 {
		return b, errNotFound
	}
	return all[i], nil
}

func oneBinding(c *request) error {
	b, err := namedBinding(c)
	if err != nil {
		return err
	}
	return c.reply(describeBinding(b))
}

func bind(c *request) error {
	if err := c.mayConnect(); err != nil {
		return err
	}
	b, err := bindingEnds(c)
	if err != nil {
		return err
	}
	r := c.body()
	b.Key, b.Args = r.Name("routing_key"), r.Table("arguments")
	if err := r.Err(); err != nil {
		return err
	}
	var method amqp.Method = &amqp.QueueBind{Exchange: b.Source, Queue: b.Destination, RoutingKey: b.Key, Arguments: b.Args}
	if b.ToExchange {
		method = &amqp.ExchangeBind{Source: b.Source, Destination: b.Destination, RoutingKey: b.Key, Arguments: b.Args}
	}
	if err := c.ask(method); err != nil {
		return err
	}
	key := (&binding{VHost: c.vhost.Name(), Binding: b}).PropertiesKey()
	c.w.Header().Set("Location", url.PathEscape(b.Destination)+"/"+url.PathEscape(key))
	return c.created(true, nil)
}

func unbind(c *request) error {
	b, err := namedBinding(c)
	if err != nil {
		return err
	}
	var method amqp.Method = &amqp.QueueUnbind{Exchange: b.Source, Queue: b.Destination, RoutingKey: b.Key, Arguments: b.Args}
	if b.ToExchange {
		method = &amqp.ExchangeUnbind{Source: b.Source, Destination: b.Destination, RoutingKey: b.Key, Arguments: b.Args}
	}
	return c.done(c.ask(method))
}
