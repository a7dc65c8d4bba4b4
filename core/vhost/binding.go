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

	counted bool // among those that are coming
}

// Bind makes a binding; one that exists already is left as it is. owner is who asks.
func (v *VHost) Bind(b Binding, owner Owner) error {
	if err := b.check(); err != nil {
		return err
	}
	err := v.change(v.lasting(b.Source, adding), func() (func() error, error) { return v.bind(&b, owner) })
	if b.counted { // it did not come to be
		v.mu.Lock()
		v.comes(&b)
		v.mu.Unlock()
	}
	return err
}

// comes ends that a binding is counted as one that is coming. The caller holds mu.
func (v *VHost) comes(b *Binding) {
	if b.counted {
		v.binding--
		b.counted = false
	}
}

// Bound returns how many bindings there are, and how many there may be; 0 = any number.
func (v *VHost) Bound() (n, most int) {
	v.mu.RLock()
	defer v.mu.RUnlock()
	return v.bound, v.bindings
}

// Has reports whether there is a binding.
func (v *VHost) Has(b Binding) bool {
	v.mu.RLock()
	defer v.mu.RUnlock()
	x, to, err := v.ends(&b)
	return err == nil && x.table != nil && x.table.Has(b.Key, b.Args, to)
}

// admitsBinding refuses one more binding, or counts it as one that is coming. The caller holds mu.
func (v *VHost) admitsBinding(b *Binding) error {
	if v.bindings > 0 && v.bound+v.binding >= v.bindings {
		kind := "queue"
		if b.ToExchange {
			kind = "exchange"
		}
		return refuse(Precondition, "cannot bind %s '%s' to exchange '%s': binding limit in vhost '%s' (%d) is reached",
			kind, b.Destination, b.Source, v.name, v.bindings)
	}
	v.binding++
	b.counted = true
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
	if err := v.admitsBinding(b); err != nil {
		return nil, err
	}
	if v.keepsBinding(x, to) {
		v.logDefinition(v.defineBinding(opBind, b))
	}
	return func() error {
		v.comes(b)
		if now, same, err := v.ends(b); err != nil || now != x || same != to {
			return cmp.Or(err, b.missing(v)) // the queue went meanwhile, and the binding with it
		}
		if x.table.Add(b.Key, b.Args, to) {
			v.bound++
			v.link(x, to)
			v.invalidateRoutes()
		}
		return nil
	}, nil
}

// missing is the error for a binding whose destination was replaced while it was made.
func (b *Binding) missing(v *VHost) error {
	if b.ToExchange {
		return v.NoExchange(b.Destination)
	}
	return v.NoQueue(b.Destination)
}

// Unbind removes a binding, which need not exist. An auto-delete exchange goes with its last one.
func (v *VHost) Unbind(b Binding, owner Owner) error {
	if err := b.check(); err != nil {
		return err
	}
	return v.change(v.lasting(b.Source, alone), func() (func() error, error) { return v.unbind(&b, owner) })
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
	if v.keepsBinding(x, to) {
		v.logDefinition(v.defineBinding(opUnbind, b))
	}
	var doomed []*exchange
	if x.AutoDelete && x.table.Len() == 1 {
		doomed = v.doom(x)
	}
	return func() error {
		v.takeOut(x, b, to, doomed)
		return nil
	}, nil
}

// takeOut takes a binding out, which may have gone meanwhile, and the exchanges that go with it. The caller holds mu.
func (v *VHost) takeOut(x *exchange, b *Binding, to destination, doomed []*exchange) {
	if v.exchanges[x.Name] != x || !x.table.Remove(b.Key, b.Args, to) {
		return
	}
	v.bound--
	if !x.leadsTo(to) {
		v.unlink(x, to)
	}
	if x.unused() {
		v.removeExchange(x, doomed)
	}
	v.invalidateRoutes()
}

// check sanitises the names and refuses the default exchange at either end.
func (b *Binding) check() error {
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
		return nil, destination{}, v.NoExchange(b.Source)
	}
	if b.ToExchange {
		to := v.exchanges[b.Destination]
		if to == nil {
			return nil, destination{}, v.NoExchange(b.Destination)
		}
		return x, destination{exchange: to}, nil
	}
	e, ok := v.queues[b.Destination]
	if !ok {
		return nil, destination{}, v.NoQueue(b.Destination)
	}
	return x, destination{queue: e.shell}, nil
}

// checkOwner keeps others from the bindings of exclusive queues. The caller holds mu.
func (v *VHost) checkOwner(b *Binding, owner Owner) error {
	if b.ToExchange {
		return nil
	}
	return v.accessible(b.Destination, v.queues[b.Destination], owner)
}

func invalidBinding(err error) error {
	if e, ok := errors.AsType[*amqp.Error](err); ok {
		return &Error{Kind: Precondition, Text: e.Text}
	}
	return err
}

// leadsTo says whether any binding leads from x to d.
func (x *exchange) leadsTo(d destination) bool {
	for range x.table.Of(d) {
		return true
	}
	return false
}

// link notes at the destination that x has bindings to it. The caller holds mu.
func (v *VHost) link(x *exchange, to destination) {
	if to.exchange != nil {
		to.exchange.sources = include(to.exchange.sources, x)
		return
	}
	name := to.queue.Config().Name
	e := v.queues[name]
	more := e.extend()
	more.sources = include(more.sources, x)
	v.queues[name] = e
}

// unlink undoes link when no binding is left. The caller holds mu.
func (v *VHost) unlink(x *exchange, from destination) {
	if from.exchange != nil {
		from.exchange.sources = exclude(from.exchange.sources, x)
		return
	}
	if e := v.queues[from.queue.Config().Name]; e.shell == from.queue && e.more != nil {
		e.more.sources = exclude(e.more.sources, x)
	}
}

func include(xs []*exchange, x *exchange) []*exchange {
	if slices.Contains(xs, x) {
		return xs
	}
	return append(xs, x)
}

func exclude(xs []*exchange, x *exchange) []*exchange {
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
