package vhost

import (
	"cmp"
	"errors"
	"slices"

	"github.com/curfewmq/curfew/core/amqp"
	"github.com/curfewmq/curfew/core/rabbit"
	"github.com/curfewmq/curfew/core/route"
)

// Binding leads messages from an exchange to a queue or, with ToExchange, to another exchange. All of it together is its
// identity: two bindings may differ in their arguments alone.
type Binding struct {
	Source      string
	Destination string
	ToExchange  bool
	Key         string
	Args        amqp.Table

	pending bool // among those that are coming
}

// Bind makes a binding; one that exists already is left as it is. owner is who asks.
func (v *VHost) Bind(b Binding, owner Owner) error {
	if err := b.normalise(); err != nil {
		return err
	}
	err := v.change(v.modeFor(b.Source, additive), func() (func() error, error) { return v.bind(&b, owner) })
	if b.pending { // it did not come to be
		v.mu.Lock()
		v.endPending(&b)
		v.mu.Unlock()
	}
	return err
}

// endPending ends that a binding is counted as one that is coming. The caller holds mu.
func (v *VHost) endPending(b *Binding) {
	if b.pending {
		v.pendingBindings--
		b.pending = false
	}
}

// Bound returns how many bindings there are, and how many there may be; 0 = any number.
func (v *VHost) Bound() (n, most int) {
	v.mu.RLock()
	defer v.mu.RUnlock()
	return v.bindings, v.maxBindings
}

// Has reports whether there is a binding.
func (v *VHost) Has(b Binding) bool {
	v.mu.RLock()
	defer v.mu.RUnlock()
	x, to, err := v.ends(&b)
	return err == nil && x.table != nil && x.table.Has(b.Key, b.Args, to)
}

// countPendingBinding refuses one more binding, or counts it as one that is coming. The caller holds mu.
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

// bind plans a binding. The caller holds mu.
func (v *VHost) bind(b *Binding, owner Owner) (apply func() error, err error) {
	x, to, err := v.ends(b)
	if err != nil {
		return nil, err
	}
	if err := route.Validate(x.table.Kind(), b.Args); err != nil {
		return nil, invalidBinding(err)
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
		v.logDefinition(v.defineBinding(opBind, b))
	}
	return func() error {
		v.endPending(b)
		if now, same, err := v.ends(b); err != nil || now != x || same != to {
			return cmp.Or(err, b.missing(v)) // the queue went meanwhile, and the binding with it
		}
		if x.table.Add(b.Key, b.Args, to) {
			v.bindings++
			v.link(x, to)
			v.invalidateRoutes()
		}
		return nil
	}, nil
}

// missing is the error for a binding whose destination was replaced while it was made.
func (b *Binding) missing(v *VHost) error {
	if b.ToExchange {
		return v.noExchange(b.Destination)
	}
	return v.NoQueue(b.Destination)
}

// Unbind removes a binding, which need not exist. An auto-delete exchange goes with its last one.
func (v *VHost) Unbind(b Binding, owner Owner) error {
	if err := b.normalise(); err != nil {
		return err
	}
	return v.change(v.modeFor(b.Source, exclusive), func() (func() error, error) { return v.unbind(&b, owner) })
}

// unbind plans the end of a binding. The caller holds mu.
func (v *VHost) unbind(b *Binding, owner Owner) (apply func() error, err error) {
	x, to, err := v.ends(b)
	if err != nil {
		return nil, nil // what is missing is not bound
	}
	if err := v.checkOwner(b, owner); err != nil {
		return nil, err
	}
	if !x.table.Has(b.Key, b.Args, to) {
		return nil, nil
	}
	if v.isBindingLogged(x, to) {
		v.logDefinition(v.defineBinding(opUnbind, b))
	}
	var doomed []*exchange
	if x.AutoDelete && x.table.Len() == 1 {
		doomed = v.logDeletions(x)
	}
	return func() error {
		v.removeBinding(x, b, to, doomed)
		return nil
	}, nil
}

// removeBinding takes a binding out, which may have gone meanwhile, and the exchanges that go with it. The caller holds mu.
func (v *VHost) removeBinding(x *exchange, b *Binding, to destination, doomed []*exchange) {
	if v.exchanges[x.Name] != x || !x.table.Remove(b.Key, b.Args, to) {
		return
	}
	v.bindings--
	if !x.hasBindingTo(to) {
		v.unlink(x, to)
	}
	if x.unused() {
		v.removeExchange(x, doomed)
	}
	v.invalidateRoutes()
}

// normalise sanitises the names and refuses the default exchange at either end.
func (b *Binding) normalise() error {
	b.Source, b.Destination = rabbit.Sanitise(b.Source), rabbit.Sanitise(b.Destination)
	if b.Source == "" || b.ToExchange && b.Destination == "" {
		return errDefaultExchange
	}
	return nil
}

// ends finds the two ends of a binding. The caller holds mu.
func (v *VHost) ends(b *Binding) (*exchange, destination, error) {
	x := v.exchanges[b.Source]
	if x == nil {
		return nil, destination{}, v.noExchange(b.Source)
	}
	if b.ToExchange {
		to := v.exchanges[b.Destination]
		if to == nil {
			return nil, destination{}, v.noExchange(b.Destination)
		}
		return x, destination{exchange: to}, nil
	}
	e, ok := v.queues[b.Destination]
	if !ok {
		return nil, destination{}, v.NoQueue(b.Destination)
	}
	return x, destination{queue: e.mailbox}, nil
}

// checkOwner keeps others from the bindings of exclusive queues. The caller holds mu.
func (v *VHost) checkOwner(b *Binding, owner Owner) error {
	if b.ToExchange {
		return nil
	}
	return v.checkExclusive(b.Destination, v.queues[b.Destination], owner)
}

func invalidBinding(err error) error {
	if e, ok := errors.AsType[*amqp.Error](err); ok {
		return &Error{Kind: Precondition, Text: e.Text}
	}
	return err
}

// hasBindingTo says whether any binding leads from x to d.
func (x *exchange) hasBindingTo(d destination) bool {
	for range x.table.Of(d) {
		return true
	}
	return false
}

// link notes at the destination that x has bindings to it. The caller holds mu.
func (v *VHost) link(x *exchange, to destination) {
	if to.exchange != nil {
		to.exchange.sources = addExchangeTo(to.exchange.sources, x)
		return
	}
	name := to.queue.Config().Name
	e := v.queues[name]
	more := e.extend()
	more.sources = addExchangeTo(more.sources, x)
	v.queues[name] = e
}

// unlink undoes link when no binding is left. The caller holds mu.
func (v *VHost) unlink(x *exchange, from destination) {
	if from.exchange != nil {
		from.exchange.sources = removeExchangeFrom(from.exchange.sources, x)
		return
	}
	if e := v.queues[from.queue.Config().Name]; e.mailbox == from.queue && e.extras != nil {
		e.extras.sources = removeExchangeFrom(e.extras.sources, x)
	}
}

func addExchangeTo(xs []*exchange, x *exchange) []*exchange {
	if slices.Contains(xs, x) {
		return xs
	}
	return append(xs, x)
}

func removeExchangeFrom(xs []*exchange, x *exchange) []*exchange {
	i := slices.Index(xs, x)
	if i < 0 {
		return xs
	}
	return slices.Delete(xs, i, i+1)
}

// Bindings lists all bindings, in no particular order, but not those of the default exchange: every queue has one.
func (v *VHost) Bindings() []Binding {
	v.mu.RLock()
	defer v.mu.RUnlock()
	var all []Binding
	for _, x := range v.exchanges {
		if x.table == nil {
			continue
		}
		for b := range x.table.All() {
			all = append(all, *bindingOf(x, b))
		}
	}
	return all
}

func bindingOf(x *exchange, b route.Binding[destination]) *Binding {
	return &Binding{
		Source: x.Name, Destination: b.Destination.name(), ToExchange: b.Destination.exchange != nil, Key: b.Key, Args: b.Args,
	}
}

func (d destination) name() string {
	if d.exchange != nil {
		return d.exchange.Name
	}
	return d.queue.Config().Name
}
