package vhost

import (
	"github.com/curfewmq/curfew/core/queue"
	"github.com/curfewmq/curfew/core/route"
)

// Mailboxes lists all queues in no particular order, at little cost. Some may be gone when they are used.
func (v *VHost) Mailboxes() []*queue.Mailbox {
	v.mu.RLock()
	defer v.mu.RUnlock()
	all := make([]*queue.Mailbox, 0, len(v.queues))
	for _, e := range v.queues {
		all = append(all, e.mailbox)
	}
	return all
}

// Mailbox returns a queue whoever it belongs to; nil if there is none.
func (v *VHost) Mailbox(name string) *queue.Mailbox {
	e, _ := v.lookup(name)
	return e.mailbox
}

// OwnerOf returns the connection that has an exclusive queue; 0 if that is none.
func (v *VHost) OwnerOf(queue string) Owner {
	e, _ := v.lookup(queue)
	return e.owner()
}

// BindingsFrom lists the bindings that an exchange is the source of, in no particular order. Those of the default exchange
// are not among them: every queue has one.
func (v *VHost) BindingsFrom(exchange string) []Binding {
	v.mu.RLock()
	defer v.mu.RUnlock()
	x := v.exchanges[exchange]
	if x == nil || x.table == nil {
		return nil
	}
	var all []Binding
	for b := range x.table.All() {
		all = append(all, *bindingOf(x, b))
	}
	return all
}

// BindingsTo lists the bindings that lead to a queue or, with toExchange, to an exchange, in no particular order, but not
// that of the default exchange.
func (v *VHost) BindingsTo(name string, toExchange bool) []Binding {
	v.mu.RLock()
	defer v.mu.RUnlock()
	to, sources := v.destinationOf(name, toExchange)
	var all []Binding
	for _, x := range sources {
		for b := range x.table.Of(to) {
			all = append(all, *bindingOf(x, b))
		}
	}
	return all
}

// destinationOf finds what bindings lead to, and the exchanges they come from. The caller holds mu.
func (v *VHost) destinationOf(name string, toExchange bool) (to destination, sources []*exchange) {
	if toExchange {
		x := v.exchanges[name]
		if x == nil {
			return destination{}, nil
		}
		return destination{exchange: x}, x.sources
	}
	e := v.queues[name]
	if e.extras == nil {
		return destination{}, nil
	}
	return destination{queue: e.mailbox}, e.extras.sources
}

// Predeclared reports whether an exchange by that name is there in every vhost, or none can be created.
func Predeclared(exchange string) bool { return isPredeclared(exchange) }

// PredeclaredType returns the type of an exchange that every vhost has; ok is false if it is none.
func PredeclaredType(name string) (kind string, ok bool) {
	for _, x := range predeclared {
		if x.Name == name {
			return x.Type, true
		}
	}
	return "", false
}

// LimitsOf returns the limits that a parameter sets; ok is false if it is another parameter.
func LimitsOf(p Parameter) (l Limits, ok bool) {
	if p.Component != limitsComponent {
		return Limits{}, false
	}
	l, err := parseLimits(p.Value)
	return l, err == nil
}

// The checks say whether something could be created in a vhost, which need not exist, and create nothing. v is any vhost of
// the same broker.

// CheckNewQueue checks a queue that is declared with a name.
func (v *VHost) CheckNewQueue(vhost string, d QueueDeclare) error {
	draft := &VHost{name: vhost, chain: v.chain, arguments: v.arguments}
	if err := d.checkName(); err != nil {
		return err
	}
	args := hookArgs(d.Args)
	if err := draft.checkArguments(d.Name, args); err != nil {
		return err
	}
	of := queueType(args)
	if of == typeStream {
		return draft.noStreams(d.Name)
	}
	return draft.checkProperties(d, &profile{Profile: queue.Profile{Kind: of}})
}

// CheckNewExchange checks an exchange.
func (v *VHost) CheckNewExchange(vhost string, d Exchange) error {
	draft := &VHost{name: vhost}
	if _, ok := route.ParseKind(d.Type); !ok {
		return refuse(Precondition, "unknown exchange type '%s'", d.Type)
	}
	return draft.checkNewExchange(d, nil)
}

// CheckNewBinding checks the arguments of a binding from an exchange of some type.
func CheckNewBinding(exchangeType string, b Binding) error {
	kind, ok := route.ParseKind(exchangeType)
	if !ok {
		return refuse(Precondition, "unknown exchange type '%s'", exchangeType)
	}
	if err := route.Validate(kind, b.Args); err != nil {
		return invalidBinding(err)
	}
	return nil
}
