package vhost

import (
	"encoding/json"
	"fmt"

	"github.com/curfewmq/curfew/core/definition"
	"github.com/curfewmq/curfew/core/queue"
	"github.com/curfewmq/curfew/core/route"
	"github.com/curfewmq/curfew/policies"
)

// Definitions is the state that a vhost's definitions, replayed in order, lead to. It belongs to one goroutine.
type Definitions struct {
	rules      *policies.Rules
	restorer   *queue.Restorer // nil means none
	exchanges  map[string]*definedExchange
	queues     map[string]definedQueue
	sources    map[definedDestination]map[string]bool // the names of exchanges that may have bindings to it
	policies   *policies.Set
	metadata   Metadata
	placement  uint64
	parameters map[parameterKey]json.RawMessage
	// missing has the bindings to a destination that did not exist, by that destination.
	missing map[definedDestination]error
}

// definedExchange is an exchange with the durable bindings that it is the source of.
type definedExchange struct {
	Exchange
	id      int64 // of its storage; 0 means that it has none
	table   *route.Table[definedDestination]
	unbound bool // it has lost its last binding, and may have others since
}

// noteUnbound notes that the exchange has lost a binding.
func (x *definedExchange) noteUnbound() { x.unbound = x.unbound || x.table.Len() == 0 }

// definedDestination is the destination of a binding.
type definedDestination struct {
	name       string
	isExchange bool
}

// NewDefinitions returns the definitions of an empty vhost. Its policies must follow the rules. A restorer that reads the same log gets the
// declarations and deletions of queues; nil means that there is none.
func NewDefinitions(rules *policies.Rules, r *queue.Restorer) *Definitions {
	d := &Definitions{rules: rules, restorer: r}
	d.reset()
	return d
}

func (d *Definitions) reset() {
	*d = Definitions{
		rules: d.rules, restorer: d.restorer, exchanges: map[string]*definedExchange{}, queues: map[string]definedQueue{},
		sources: map[definedDestination]map[string]bool{}, parameters: map[parameterKey]json.RawMessage{},
		missing: map[definedDestination]error{},
	}
	for _, x := range predeclared {
		d.addExchange(x)
	}
}

func (d *Definitions) addExchange(x Exchange) {
	kind, ok := route.ParseKind(x.Type)
	if !ok { // a plugin's type, or a former plugin's: the exchange stays defined
		kind = route.Plugin
	}
	d.exchanges[x.Name] = &definedExchange{Exchange: x, table: route.New[definedDestination](kind)}
}

// Apply applies the next definition.
func (d *Definitions) Apply(def *definition.Definition) error {
	if def.VHost == "" {
		return def.Missing(fieldVHost)
	}
	switch def.Op {
	case opVHost:
		d.reset()
		d.placement = placementOf(def)
		return d.describe(def)
	case opDeleteVHost:
		d.deleteAll()
		return nil
	case opDescribe:
		return d.describe(def)
	case opDeclareExchange:
		return d.declareExchange(def)
	case opDeclareQueue:
		var q definedQueue
		err := read(def, q.fields()...)
		d.queues[q.name] = q
		d.declared(q.id, queue.Ordinary)
		return err
	case opDeleteExchange, opDeleteQueue:
		return d.delete(def)
	case opBind, opUnbind:
		return d.bind(def)
	case opSetParameter, opClearParameter:
		return d.parameter(def)
	case opSetPolicy, opClearPolicy:
		return d.policy(def)
	}
	return def.Unknown()
}

// Err returns why the definitions cannot be whole, nil if they may be. A binding to a missing destination is no error if the destination is
// deleted afterwards. On a full disk earlier versions wrote definitions before messages, and again, in order, behind these: when the first
// ones are replayed, objects may be missing that the last ones had already deleted.
func (d *Definitions) Err() error {
	for _, err := range d.missing {
		return err
	}
	return nil
}

// Placement returns the vhost's, see [VHost.Placement].
func (d *Definitions) Placement() uint64 { return d.placement }

// Metadata returns the vhost's.
func (d *Definitions) Metadata() Metadata { return d.metadata }

// Queues returns how many queues the vhost has.
func (d *Definitions) Queues() int { return len(d.queues) }

// Stored yields the numbers of the vhost's queues and schedules, with words that name them.
func (d *Definitions) Stored(yield func(id uint64, name string) bool) {
	for name, q := range d.queues {
		if !yield(uint64(q.id), "queue '"+name+"'") {
			return
		}
	}
	for name, x := range d.exchanges {
		if x.id != 0 && !yield(uint64(x.id), "exchange '"+name+"'") {
			return
		}
	}
}

// placementOf reads the number of a vhost's placement. Without a cluster there is no placement.
func placementOf(def *definition.Definition) uint64 {
	raw, _ := def.Fields.Lookup(fieldPlacement)
	n, _ := raw.(int64)
	return uint64(n)
}

func (d *Definitions) describe(def *definition.Definition) (err error) {
	d.metadata, err = readMetadata(def)
	return err
}

func (d *Definitions) declareExchange(def *definition.Definition) error {
	x := Exchange{Durable: true}
	if err := read(def, x.fields()...); err != nil {
		return err
	}
	if x.Type == "" {
		return fmt.Errorf("definition %q: exchange %q has no type", def.Op, x.Name)
	}
	d.addExchange(x)
	if _, has := def.Fields.Lookup(fieldID); !has {
		return nil
	}
	id := &d.exchanges[x.Name].id
	err := read(def, ref(fieldID, id))
	d.declared(*id, queue.Holding)
	return err
}

// declared notes that a queue, or an exchange's schedule, has a number; 0 is none.
func (d *Definitions) declared(id int64, k queue.Kind) {
	if d.restorer != nil && id != 0 {
		d.restorer.Declare(uint64(id), k)
	}
}

// deleted notes that the queue or schedule with a number is deleted; 0 is none.
func (d *Definitions) deleted(id int64) {
	if d.restorer != nil && id != 0 {
		d.restorer.Delete(uint64(id))
	}
}

// deleteAll deletes everything, with the messages of queues. A rewrite of the definitions keeps these, and calls reset alone.
func (d *Definitions) deleteAll() {
	for _, q := range d.queues {
		d.deleted(q.id)
	}
	for _, x := range d.exchanges {
		d.deleted(x.id)
	}
	d.reset()
}

// delete deletes an exchange or a queue, with the bindings to it.
func (d *Definitions) delete(def *definition.Definition) error {
	to := definedDestination{isExchange: def.Op == opDeleteExchange}
	if err := read(def, ref(fieldName, &to.name)); err != nil {
		return err
	}
	for name := range d.sources[to] { // only sources of to: if each of thousands of deletions looked at all exchanges, it would take too long
		if x := d.exchanges[name]; x != nil {
			x.table.RemoveDestination(to)
			x.noteUnbound()
		}
	}
	delete(d.sources, to)
	delete(d.missing, to)
	if !to.isExchange {
		d.deleted(d.queues[to.name].id)
		delete(d.queues, to.name)
		return nil
	}
	if x := d.exchanges[to.name]; x != nil {
		d.deleted(x.id)
		for b := range x.table.All() {
			delete(d.sources[b.Destination], to.name)
		}
	}
	delete(d.exchanges, to.name)
	return nil
}

func (d *Definitions) bind(def *definition.Definition) error {
	var b Binding
	if err := read(def, b.fields()...); err != nil {
		return err
	}
	from, to := definedDestination{b.Source, true}, definedDestination{b.Destination, b.ToExchange}
	for _, end := range []definedDestination{from, to} {
		if end.name == "" || !d.has(end) {
			d.missing[end] = fmt.Errorf("definition %q: there is nothing to bind %q to %q", def.Op, b.Source, b.Destination)
			return nil
		}
	}
	x := d.exchanges[b.Source]
	if def.Op == opUnbind {
		x.table.Remove(b.Key, b.Args, to)
		x.noteUnbound()
		return nil
	}
	if err := route.Validate(x.table.Kind(), b.Args); err != nil {
		return fmt.Errorf("definition %q of %q to %q: %w", def.Op, b.Source, b.Destination, err)
	}
	x.table.Add(b.Key, b.Args, to)
	if d.sources[to] == nil {
		d.sources[to] = map[string]bool{}
	}
	d.sources[to][b.Source] = true
	return nil
}

func (d *Definitions) has(to definedDestination) bool {
	if to.isExchange {
		return d.exchanges[to.name] != nil
	}
	_, ok := d.queues[to.name]
	return ok
}

// Restore creates the objects in d. No other goroutine may use the vhost yet. storage returns the storage of a queue with this number. A
// [queue.Restorer] must fill and start the queues that Restore returns.
func (v *VHost) Restore(d *Definitions, storage func(id uint64) (*queue.Storage, error)) ([]*queue.Mailbox, error) {
	v.restoring = true
	defer func() { v.restoring = false }()
	v.policies.Store(d.policies)
	v.warnOfUnknownKeys()
	v.adoptMetadata(d.metadata)
	v.parameters = d.parameters
	v.applyLimits()
	queues := make([]*queue.Mailbox, 0, len(d.queues))
	names := make(map[int64]string, len(d.queues)) // by number
	for name, x := range d.exchanges {
		if v.exchanges[name] == nil {
			s, err := v.storageOf(x, names, storage)
			if err != nil {
				return nil, err
			}
			if v.exchanges[name] = v.restoreExchange(x.Exchange, s); s != nil {
				queues = append(queues, v.exchanges[name].schedule.mailbox)
			}
		}
		v.applyExchangePolicies(v.exchanges[name], d.policies)
	}
	for _, q := range d.queues {
		if other, taken := names[q.id]; taken {
			return nil, fmt.Errorf("'%s' and queue '%s' have the same number, %d", other, q.name, q.id)
		}
		names[q.id] = q.name
		s, err := storage(uint64(q.id))
		if err != nil {
			return nil, fmt.Errorf("%s: %w", v.queueName(q.name), err)
		}
		queues = append(queues, v.restoreQueue(q, s))
	}
	for name, x := range d.exchanges {
		v.restoreBindings(v.exchanges[name], x)
	}
	return queues, nil
}

// storageOf returns the storage of a restored exchange; nil if it has none. It adds the exchange to names.
func (v *VHost) storageOf(x *definedExchange, names map[int64]string, storage func(id uint64) (*queue.Storage, error)) (*queue.Storage, error) {
	if x.id == 0 {
		return nil, nil
	}
	if other, taken := names[x.id]; taken {
		return nil, fmt.Errorf("exchanges '%s' and '%s' have the same number, %d", other, x.Name, x.id)
	}
	names[x.id] = x.Name
	s, err := storage(uint64(x.id))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", v.exchangeName(x.Name), err)
	}
	return s, nil
}

// restoreQueue creates a queue that was declared before. Its arguments are not checked again: the queue stays, even if a plugin
// no longer accepts them.
func (v *VHost) restoreQueue(q definedQueue, s *queue.Storage) *queue.Mailbox {
	p, _ := v.profileFor(q.name, q.args, hookArgs(q.args), false)
	cfg := p.config(QueueDeclare{Name: q.name, Durable: true, AutoDelete: q.autoDelete})
	cfg.Storage = s
	m := v.broker.NewPausedMailbox(cfg, v.chain, v.QueueHost(), v.clock)
	v.addToTable(m, 0)
	return m
}

func (v *VHost) restoreBindings(x *exchange, from *definedExchange) {
	for b := range from.table.All() {
		to := v.destinationOf(b.Destination.name, b.Destination.isExchange)
		if x.table.Add(b.Key, b.Args, to) {
			v.bindings++
		}
		v.link(x, to)
	}
	if x.schedule == nil || !from.unbound {
		return
	}
	x.schedule.unbound = true
	if x.AutoDelete && x.table.Len() == 0 {
		x.schedule.mailbox.CheckUnused()
	}
}
