package mgmt

import (
	"github.com/curfewmq/curfew/core/amqp"
	"github.com/curfewmq/curfew/core/rabbit"
	"github.com/curfewmq/curfew/core/vhost"
	"github.com/curfewmq/curfew/policies"
)

// exchangeRef is an exchange of a vhost.
type exchangeRef struct {
	vhost *vhost.VHost
	vhost.Exchange
}

func (a *API) exchanges(c *request) error {
	var all []exchangeRef
	for _, v := range c.visible() {
		for _, x := range v.Exchanges() {
			all = append(all, exchangeRef{v, x})
		}
	}
	return list(c, listing[exchangeRef]{
		items: all, name: func(r exchangeRef) string { return r.Name }, object: describeExchange,
		field: func(r exchangeRef, name string) (any, bool) { return placeField(r.vhost.Name(), r.Name, name) },
	})
}

func (a *API) exchangesIn(c *request) error { return a.exchanges(c) }

// placeField is what is known of everything that has a name in a vhost.
func placeField(vhost, name, field string) (any, bool) {
	switch field {
	case "vhost":
		return vhost, true
	case "name":
		return name, true
	}
	return nil, false
}

func describeExchange(r exchangeRef) object {
	o := object{
		{"name", r.Name},
		{"vhost", r.vhost.Name()},
		{"type", r.Type},
		{"durable", r.Durable},
		{"auto_delete", r.AutoDelete},
		{"internal", r.Internal},
		{"arguments", tableObject(r.Args)},
	}
	applied := r.vhost.Policies().Match(policies.Subject{Name: r.Name, Type: policies.Exchange})
	if applied.User != nil {
		o.add("policy", applied.User.Name)
	}
	return o
}

// exchangeName is the exchange that the path names; the default one goes by amq.default there.
func (c *request) exchangeName() string { return defaultless(c.vars["exchange"]) }

const defaultExchange = "amq.default"

func defaultless(name string) string {
	if name == defaultExchange {
		return ""
	}
	return name
}

func (*API) exchange(c *request) error {
	x, ok := c.vhost.Exchange(c.exchangeName())
	if !ok {
		return errNotFound
	}
	return c.reply(append(describeExchange(exchangeRef{c.vhost, x}), member{"incoming", []any{}}, member{"outgoing", []any{}}))
}

func (*API) putExchange(c *request) error {
	f, err := c.body()
	if err != nil {
		return err
	}
	x, err := f.exchange(c.exchangeName())
	if err != nil {
		return err
	}
	_, exists := c.vhost.Exchange(rabbit.Sanitise(x.Name))
	err = c.ask(&amqp.ExchangeDeclare{
		Exchange: x.Name, Type: x.Type, Durable: x.Durable, AutoDelete: x.AutoDelete, Internal: x.Internal, Arguments: x.Args,
	})
	if err != nil {
		return err
	}
	return c.created(!exists)
}

// exchange reads the description of an exchange.
func (f fields) exchange(name string) (x vhost.Exchange, err error) {
	x.Name = name
	if err = checkName("name", name); err != nil {
		return x, err
	}
	if x.Type, err = f.name("type"); err != nil {
		return x, err
	}
	if x.Type == "" {
		x.Type = "direct"
	}
	if x.Durable, err = f.flag("durable", false); err != nil {
		return x, err
	}
	if x.AutoDelete, err = f.flag("auto_delete", false); err != nil {
		return x, err
	}
	if x.Internal, err = f.flag("internal", false); err != nil {
		return x, err
	}
	x.Args, err = f.arguments()
	return x, err
}

func (*API) deleteExchange(c *request) error {
	name := c.exchangeName()
	if _, ok := c.vhost.Exchange(name); !ok {
		return errNotFound
	}
	if err := c.ask(&amqp.ExchangeDelete{Exchange: name, IfUnused: c.query.raw.Get("if-unused") == "true"}); err != nil {
		return err
	}
	return c.done()
}
