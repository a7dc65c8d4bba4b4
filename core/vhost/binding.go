package vhost

import (
	"cmp"
	"errors"

	"github.com/curfewmq/curfew/core/amqp"
	"github.com/curfewmq/curfew/core/rabbit"
	"github.com/curfewmq/curfew/core/route"
)

// Binding leads messages from an exchange to a queue or, with ToExchange, to another
// exchange. All fields together are its identity: two bindings may differ only in their
// arguments.
type Binding struct {
	Source      string
	Destination string
	ToExchange  bool
	Key         string
	Args        amqp.Table

	pending bool // counted in pendingBindings
}

// Bind adds a binding. An existing one is left as it is. owner is the connection that makes
// the request.
func (xs *exchanges) Bind(b Binding, owner Owner) error {
	if err := b.normalise(); err != nil {
		return err
	}
	if err := checkFields("a binding from "+xs.exchangeName(b.Source), b.Args); err != nil {
		return err
	}
	var lost error // one of the ends was deleted while the binding was made durable
	err := xs.changes.make(xs.modeFor(b.Source, additive), func() (func(), error) {
		apply, err := xs.planBind(&b, owner)
		if apply == nil {
			return nil, err
		}
		return func() { lost = apply() }, nil
	})
	if b.pending { // the change failed
		xs.changes.exclusively(func() { xs.endPending(&b) })
	}
	return cmp.Or(err, lost)
}

// planBind plans a binding. apply fails if one of its ends was deleted meanwhile. The caller holds mu.
func (xs *exchanges) planBind(b *Binding, owner Owner) (apply func() error, err error) {
	x, to, err := xs.topology.ends(b)
	if err != nil {
		return nil, err
	}
	if err := xs.checkBinding(&x.Exchange, b); err != nil {
		return nil, err
	}
	if err := xs.topology.checkOwner(b, owner); err != nil {
		return nil, err
	}
	if x.table.Has(b.Key, b.Args, to) {
		return nil, nil
	}
	if err := xs.countPendingBinding(b); err != nil {
		return nil, err
	}
	if xs.changes.isBindingLogged(x, to) {
		xs.changes.add(xs.changes.define(opBind, b.fields()...))
	}
	return func() error {
		xs.endPending(b)
		if now, same, err := xs.topology.ends(b); err != nil || now != x || same != to {
			return cmp.Or(err, error(xs.topology.noDestination(b)))
		}
		if xs.topology.addBinding(x, b, to) {
			xs.topology.invalidateRoutes()
		}
		return nil
	}, nil
}

// countPendingBinding counts a binding that is not in its table yet, or refuses it at the limit. The caller holds mu.
func (xs *exchanges) countPendingBinding(b *Binding) error {
	if xs.maxBindings > 0 && xs.topology.bindingCount()+xs.pendingBindings >= xs.maxBindings {
		kind := "queue"
		if b.ToExchange {
			kind = "exchange"
		}
		return refuse(Precondition, "cannot bind %s '%s' to exchange '%s': binding limit in vhost '%s' (%d) is reached",
			kind, b.Destination, b.Source, xs.name, xs.maxBindings)
	}
	xs.pendingBindings++
	b.pending = true
	return nil
}

// endPending undoes countPendingBinding. The caller holds mu.
func (xs *exchanges) endPending(b *Binding) {
	if b.pending {
		xs.pendingBindings--
		b.pending = false
	}
}

// Unbind removes a binding, which need not exist. An auto-delete exchange is deleted with its last one.
func (xs *exchanges) Unbind(b Binding, owner Owner) error {
	if err := b.normalise(); err != nil {
		return err
	}
	return xs.changes.make(xs.modeFor(b.Source, exclusive), func() (apply func(), err error) {
		x, to, err := xs.topology.ends(&b)
		if err != nil {
			return nil, nil // there is no such binding
		}
		if !x.table.Has(b.Key, b.Args, to) {
			return nil, nil
		}
		if err := xs.topology.checkOwner(&b, owner); err != nil {
			return nil, err
		}
		if xs.changes.isBindingLogged(x, to) {
			xs.changes.add(xs.changes.define(opUnbind, b.fields()...))
		}
		var logged exchangeSet
		if x.AutoDelete && x.table.Len() == 1 && !x.keeps() {
			logged = xs.logDeletions(x)
		}
		return func() { xs.removeBinding(x, &b, to, logged) }, nil
	})
}

// removeBinding removes a binding, if it still exists, and its exchange if that was the
// last one. The deletion of the exchanges in logged is logged already. The caller holds mu.
func (xs *exchanges) removeBinding(x *exchange, b *Binding, to destination, logged exchangeSet) {
	if !xs.topology.removeBinding(x, b, to) {
		return
	}
	xs.noteLastBinding(x)
	if x.isUnused() || logged.has(x) {
		xs.remove(x, logged)
	}
	xs.topology.invalidateRoutes()
}

// normalise sanitises the names, and refuses the default exchange at either end.
func (b *Binding) normalise() error {
	b.Source, b.Destination = rabbit.Sanitise(b.Source), rabbit.Sanitise(b.Destination)
	if b.Source == "" || b.ToExchange && b.Destination == "" {
		return errDefaultExchange
	}
	return nil
}

// checkBindingArguments refuses arguments that bindings from an exchange of this kind cannot have.
func checkBindingArguments(kind route.Kind, args amqp.Table) error {
	err := route.Validate(kind, args)
	if e, ok := errors.AsType[*amqp.Error](err); ok {
		return &Error{Kind: Precondition, Text: e.Text}
	}
	return err
}
