package vhost

import (
	"cmp"
	"errors"
	"iter"
	"slices"

	"github.com/curfewmq/curfew/core/amqp"
	"github.com/curfewmq/curfew/core/rabbit"
	"github.com/curfewmq/curfew/core/route"
)

// Binding leads messages from an exchange to a queue or, with ToExchange, to another exchange. All fields together are its identity: two
// bindings may differ only in their arguments.
type Binding struct {
	Source      string
	Destination string
	ToExchange  bool
	Key         string
	Args        amqp.Table

	pending bool // counted in the vhost's pendingBindings
}

// Bind adds a binding. An existing one is left as it is. owner is the connection that asks.
func (v *VHost) Bind(b Binding, owner Owner) error {
	if err := b.normalise(); err != nil {
		return err
	}
	if err := checkFields("a binding from "+v.exchangeName(b.Source), b.Args); err != nil {
		return err
	}
	var lost error // one of the ends was deleted while the binding was made durable
	err := v.change(v.modeFor(b.Source, additive), func() (func(), error) {
		apply, err := v.bind(&b, owner)
		if apply == nil {
			return nil, err
		}
		return func() { lost = apply() }, nil
	})
	if b.pending { // the change failed
		v.exclusively(func() { v.endPending(&b) })
	}
	return cmp.Or(err, lost)
}

// bind plans a binding. apply fails if one of its ends was deleted meanwhile. The caller holds mu.
func (v *VHost) bind(b *Binding, owner Owner) (apply func() error, err error) {
	x, to, err := v.ends(b)
	if err != nil {
		return nil, err
	}
	if err := v.checkBinding(&x.Exchange, b); err != nil {
		return nil, err
	}
	if err := v.checkOwner(b, owner); err != nil {
		return nil, err
	}
	if x.table.Has(b.Key, b.Args, to) {
		return nil, nil
	}
	if err := v.countPendingBinding(b); err != nil {
		return nil, err
	}
	if v.isBindingLogged(x, to) {
		v.logDefinition(v.define(opBind, b.fields()...))
	}
	return func() error {
		v.endPending(b)
		if now, same, err := v.ends(b); err != nil || now != x || same != to {
			return cmp.Or(err, error(v.noDestination(b)))
		}
		if x.table.Add(b.Key, b.Args, to) {
			v.bindings++
			v.link(x, to)
			v.invalidateRoutes()
		}
		return nil
	}, nil
}

// countPendingBinding counts a binding that is not in its table yet, or refuses it at the limit. The caller holds mu.
func (v *VHost) countPendingBinding(b *Binding) error {
	if v.maxBindings > 0 && v.bindings+v.pendingBindings >= v.maxBindings {
		kind := "queue"
		if b.ToExchange {
			kind = "exchange"
		}
		return refuse(Precondition, "cannot bind %s '%s' to exchange '%s': binding limit in vhost '%s' (%d) is reached",
			kind, b.Destination, b.Source, v.name, v.maxBindings)
	}
	v.pendingBindings++
	b.pending = true
	return nil
}

// endPending undoes countPendingBinding. The caller holds mu.
func (v *VHost) endPending(b *Binding) {
	if b.pending {
		v.pendingBindings--
		b.pending = false
	}
}

// Unbind removes a binding, which need not exist. An auto-delete exchange is deleted with its last one.
func (v *VHost) Unbind(b Binding, owner Owner) error {
	if err := b.normalise(); err != nil {
		return err
	}
	return v.change(v.modeFor(b.Source, exclusive), func() (apply func(), err error) {
		x, to, err := v.ends(&b)
		if err != nil {
			return nil, nil // there is no such binding
		}
		if !x.table.Has(b.Key, b.Args, to) {
			return nil, nil
		}
		if err := v.checkOwner(&b, owner); err != nil {
			return nil, err
		}
		if v.isBindingLogged(x, to) {
			v.logDefinition(v.define(opUnbind, b.fields()...))
		}
		var logged exchangeSet
		if x.AutoDelete && x.table.Len() == 1 && !x.keeps() {
			logged = v.logDeletions(x)
		}
		return func() { v.removeBinding(x, &b, to, logged) }, nil
	})
}

// removeBinding removes a binding, if it still exists, and its exchange if that was the last one. The deletion of the exchanges in logged
// is logged already. The caller holds mu.
func (v *VHost) removeBinding(x *exchange, b *Binding, to destination, logged exchangeSet) {
	if v.exchanges[x.Name] != x || !x.table.Remove(b.Key, b.Args, to) {
		return
	}
	v.bindings--
	if !x.hasBindingTo(to) {
		v.unlink(x, to)
	}
	v.noteLastBinding(x)
	if x.isUnused() || logged.has(x) {
		v.removeExchange(x, logged)
	}
	v.invalidateRoutes()
}

// normalise sanitises the names, and refuses the default exchange at either end.
func (b *Binding) normalise() error {
	b.Source, b.Destination = rabbit.Sanitise(b.Source), rabbit.Sanitise(b.Destination)
	if b.Source == "" || b.ToExchange && b.Destination == "" {
		return errDefaultExchange
	}
	return nil
}

// ends finds the source and the destination of a binding. The caller holds mu.
func (v *VHost) ends(b *Binding) (*exchange, destination, error) {
	x := v.exchanges[b.Source]
	if x == nil {
		return nil, destination{}, v.noExchange(b.Source)
	}
	to := v.destinationOf(b.Destination, b.ToExchange)
	if to == (destination{}) {
		return nil, to, v.noDestination(b)
	}
	return x, to, nil
}

// destinationOf finds a queue or, with toExchange, an exchange. The zero value means there is none. The caller holds mu.
func (v *VHost) destinationOf(name string, toExchange bool) destination {
	if toExchange {
		return destination{exchange: v.exchanges[name]}
	}
	return destination{queue: v.queues[name].mailbox}
}

func (v *VHost) noDestination(b *Binding) *Error {
	if b.ToExchange {
		return v.noExchange(b.Destination)
	}
	return v.NoQueue(b.Destination)
}

// checkOwner refuses to bind or unbind another connection's exclusive queue. The caller holds mu.
func (v *VHost) checkOwner(b *Binding, owner Owner) error {
	if b.ToExchange {
		return nil
	}
	return v.checkExclusive(b.Destination, v.queues[b.Destination], owner)
}

// checkBindingArguments refuses arguments that bindings from an exchange of this kind cannot have.
func checkBindingArguments(kind route.Kind, args amqp.Table) error {
	err := route.Validate(kind, args)
	if e, ok := errors.AsType[*amqp.Error](err); ok {
		return &Error{Kind: Precondition, Text: e.Text}
	}
	return err
}

func (x *exchange) hasBindingTo(d destination) bool {
	for range x.table.Of(d) {
		return true
	}
	return false
}

// sourcesOf returns the exchanges with bindings to d; nil if d can have none. The caller holds mu.
func (v *VHost) sourcesOf(d destination) *[]*exchange {
	if d.exchange != nil {
		return &d.exchange.sources
	}
	if e := v.queues[d.queue.Config().Name]; e.mailbox == d.queue && e.extras != nil {
		return &e.extras.sources
	}
	return nil
}

// link adds x to the sources of the destination. The caller holds mu.
func (v *VHost) link(x *exchange, to destination) {
	if to.queue != nil {
		name := to.queue.Config().Name
		e := v.queues[name]
		e.extend()
		v.queues[name] = e
	}
	if sources := v.sourcesOf(to); !slices.Contains(*sources, x) {
		*sources = append(*sources, x)
	}
}

// unlink removes x from the sources of the destination, if that still exists. The caller holds mu.
func (v *VHost) unlink(x *exchange, to destination) {
	if sources := v.sourcesOf(to); sources != nil {
		if i := slices.Index(*sources, x); i >= 0 {
			*sources = slices.Delete(*sources, i, i+1)
		}
	}
}

// BindingCount returns how many bindings there are.
func (v *VHost) BindingCount() int {
	v.mu.RLock()
	defer v.mu.RUnlock()
	return v.bindings
}

// HasBinding reports whether a binding exists.
func (v *VHost) HasBinding(b Binding) bool {
	v.mu.RLock()
	defer v.mu.RUnlock()
	x, to, err := v.ends(&b)
	return err == nil && x.table.Has(b.Key, b.Args, to)
}

// Bindings returns all bindings, in no particular order, except the bindings of the default exchange: every queue has one.
func (v *VHost) Bindings() (all []Binding) {
	v.mu.RLock()
	defer v.mu.RUnlock()
	for _, x := range v.exchanges {
		all = x.appendBindings(all, x.table.All())
	}
	return all
}

// BindingsFrom returns the bindings from an exchange, in no particular order. The default exchange shows none.
func (v *VHost) BindingsFrom(exchange string) []Binding {
	v.mu.RLock()
	defer v.mu.RUnlock()
	x := v.exchanges[exchange]
	if x == nil {
		return nil
	}
	return x.appendBindings(nil, x.table.All())
}

// BindingsTo returns the bindings to a queue or, with toExchange, to an exchange, in no particular order. That of the default
// exchange is left out.
func (v *VHost) BindingsTo(name string, toExchange bool) (all []Binding) {
	v.mu.RLock()
	defer v.mu.RUnlock()
	to := v.destinationOf(name, toExchange)
	if to == (destination{}) {
		return nil
	}
	if sources := v.sourcesOf(to); sources != nil {
		for _, x := range *sources {
			all = x.appendBindings(all, x.table.Of(to))
		}
	}
	return all
}

func (x *exchange) appendBindings(all []Binding, bindings iter.Seq[route.Binding[destination]]) []Binding {
	for b := range bindings {
		all = append(all, bindingOf(x, b))
	}
	return all
}

func bindingOf(x *exchange, b route.Binding[destination]) Binding {
	return Binding{
		Source: x.Name, Destination: b.Destination.name(), ToExchange: b.Destination.exchange != nil, Key: b.Key, Args: b.Args,
	}
}

func (d destination) name() string {
	if d.exchange != nil {
		return d.exchange.Name
	}
	return d.queue.Config().Name
}
