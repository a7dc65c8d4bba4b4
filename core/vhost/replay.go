package vhost

import (
	"encoding/json"
	"fmt"
	"iter"
	"slices"

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
	// missing has the errors of bindings whose destination did not exist, by destination.
	missing map[definedDestination]error
}

// definedExchange is an exchange with the durable bindings that it is the source of.
type definedExchange struct {
	Exchange
	id      int64 // of its storage; 0 means that it has none
	table   *route.Table[definedDestination]
	unbound bool // the exchange once lost its last binding; it may have got other bindings since
}

// noteUnbound notes that the exchange has lost a binding.
func (x *definedExchange) noteUnbound() { x.unbound = x.unbound || x.table.Len() == 0 }

type definedDestination struct {
	name       string
	isExchange bool
}

// NewDefinitions returns the definitions of an empty vhost. Its policies must follow the
// rules. A restorer that reads the same log gets the declarations and deletions of queues;
// nil means that there is none.
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

// Err returns why the definitions cannot be whole, nil if they may be. A binding to a
// missing destination is no error if the destination is deleted afterwards. On a full disk
// earlier versions wrote definitions before messages, and again, in order, behind these:
// when the first ones are replayed, objects may be missing that the last ones had already
// deleted.
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

// deleteAll deletes everything, with the messages of queues. A rewrite of the definitions
// keeps these, and calls reset alone.
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

// Restore creates the objects in d. No other goroutine may use the vhost yet. storage
// returns the storage of a queue with this number. A [queue.Restorer] must fill and start
// the queues that Restore returns.
func (v *VHost) Restore(d *Definitions, storage func(id uint64) (*queue.Storage, error)) ([]*queue.Mailbox, error) {
	defer v.maker.startRestoring()()
	v.policyTable.restore(d.policies)
	v.description.adopt(d.metadata)
	v.parameters.restore(d.parameters)
	queues := make([]*queue.Mailbox, 0, len(d.queues))
	names := make(map[int64]string, len(d.queues)) // by number
	for name, x := range d.exchanges {
		made := v.topology.exchange(name)
		if made == nil { // else every vhost has it
			s, err := v.storageOf(x, names, storage)
			if err != nil {
				return nil, err
			}
			made = v.maker.restore(x.Exchange, s)
			v.topology.addExchange(made)
			if s != nil {
				queues = append(queues, made.schedule.mailbox)
			}
		}
		v.maker.applyPolicies(made, d.policies)
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
		queues = append(queues, v.queues.restore(q, s))
	}
	for name, x := range d.exchanges {
		v.exchanges.restoreBindings(v.topology.exchange(name), x)
	}
	return queues, nil
}

// storageOf returns the storage of a restored exchange; nil if it has none. It adds the exchange to names.
func (r *rules) storageOf(x *definedExchange, names map[int64]string, storage func(id uint64) (*queue.Storage, error)) (*queue.Storage, error) {
	if x.id == 0 {
		return nil, nil
	}
	if other, taken := names[x.id]; taken {
		return nil, fmt.Errorf("exchanges '%s' and '%s' have the same number, %d", other, x.Name, x.id)
	}
	names[x.id] = x.Name
	s, err := storage(uint64(x.id))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", r.exchangeName(x.Name), err)
	}
	return s, nil
}

func (xs *exchanges) restoreBindings(x *exchange, from *definedExchange) {
	for b := range from.table.All() {
		to := xs.topology.destinationOf(b.Destination.name, b.Destination.isExchange)
		xs.topology.addBinding(x, &Binding{Key: b.Key, Args: b.Args}, to)
	}
	if x.schedule == nil || !from.unbound {
		return
	}
	x.schedule.unbound = true
	if x.AutoDelete && x.table.Len() == 0 {
		x.schedule.mailbox.CheckUnused()
	}
}

// Definitions returns the definitions of everything durable.
func (v *VHost) Definitions() (all []byte) {
	for part := range v.parts() {
		all = append(all, part...)
	}
	return all
}

// DefinitionsSize returns the length of Definitions.
func (v *VHost) DefinitionsSize() (bytes int64) {
	for part := range v.parts() {
		bytes += int64(len(part))
	}
	return bytes
}

// parts yields the definitions of everything durable in parts. It holds mu for reading
// while it makes and yields a part, which is valid until the next one. An object that is
// deleted between two parts is missing in the later ones.
func (v *VHost) parts() iter.Seq[[]byte] {
	return func(yield func([]byte) bool) {
		var b []byte
		appenders := v.definers()
		part := func() (more bool) {
			v.topology.mu.RLock()
			defer v.topology.mu.RUnlock()
			for b = b[:0]; len(appenders) > 0 && len(b) < definition.PartSize; appenders = appenders[1:] {
				b = appenders[0](b)
			}
			return len(b) == 0 || yield(b)
		}
		for more := true; more && len(appenders) > 0; {
			more = part()
		}
	}
}

// definers returns functions that append the definitions of everything durable, in an order
// in which they can be replayed. A function skips an object that no longer exists. Its
// caller holds mu.
func (v *VHost) definers() []definitionAppender {
	v.topology.mu.RLock()
	defer v.topology.mu.RUnlock()
	return slices.Concat(
		[]definitionAppender{v.description.define},
		v.exchanges.definers(), v.queues.definers(),
		v.exchanges.bindingDefiners(), // once all their sources are defined
		v.policyTable.definers(), v.parameters.definers(),
	)
}
