package vhost

import (
	"encoding/json"
	"fmt"

	"github.com/curfewmq/curfew/core/definition"
	"github.com/curfewmq/curfew/core/queue"
	"github.com/curfewmq/curfew/core/route"
	"github.com/curfewmq/curfew/policies"
)

// Definitions is what the definitions of a vhost, replayed in order, amount to. It belongs to one goroutine.
type Definitions struct {
	rules      *policies.Rules
	exchanges  map[string]*definedExchange
	queues     map[string]definedQueue
	policies   *policies.Set
	metadata   Metadata
	parameters map[parameterKey]json.RawMessage
}

// definedExchange is an exchange with the durable bindings that it is the source of.
type definedExchange struct {
	Exchange
	table *route.Table[definedDestination]
}

// definedDestination is what a binding leads to.
type definedDestination struct {
	name       string
	isExchange bool
}

// NewDefinitions returns the definitions of an empty vhost. Its policies must follow the rules.
func NewDefinitions(rules *policies.Rules) *Definitions {
	d := &Definitions{rules: rules}
	d.reset()
	return d
}

func (d *Definitions) reset() {
	*d = Definitions{
		rules: d.rules, exchanges: map[string]*definedExchange{}, queues: map[string]definedQueue{},
		parameters: map[parameterKey]json.RawMessage{},
	}
	for _, x := range predeclared {
		d.addExchange(x)
	}
}

func (d *Definitions) addExchange(x Exchange) {
	kind, ok := route.ParseKind(x.Type)
	if !ok { // the type is a plugin's, or was: what is defined stays
		kind = route.Plugin
	}
	d.exchanges[x.Name] = &definedExchange{x, route.New[definedDestination](kind)}
}

// Apply applies the next definition.
func (d *Definitions) Apply(def *definition.Definition) error {
	if def.VHost == "" {
		return def.Missing(fieldVHost)
	}
	switch def.Op {
	case opVHost:
		d.reset()
		return d.describe(def)
	case opDescribe:
		return d.describe(def)
	case opDeclareExchange:
		return d.declareExchange(def)
	case opDeclareQueue:
		var q definedQueue
		err := read(def, q.fields()...)
		d.queues[q.name] = q
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
	return nil
}

// delete deletes an exchange or a queue, with the bindings to it.
func (d *Definitions) delete(def *definition.Definition) error {
	to := definedDestination{isExchange: def.Op == opDeleteExchange}
	if err := read(def, ref(fieldName, &to.name)); err != nil {
		return err
	}
	if to.isExchange {
		delete(d.exchanges, to.name)
	} else {
		delete(d.queues, to.name)
	}
	for _, x := range d.exchanges {
		x.table.RemoveDestination(to)
	}
	return nil
}

func (d *Definitions) bind(def *definition.Definition) error {
	var b Binding
	if err := read(def, b.fields()...); err != nil {
		return err
	}
	x, to := d.exchanges[b.Source], definedDestination{b.Destination, b.ToExchange}
	if b.Source == "" || x == nil || !d.has(to) {
		return fmt.Errorf("definition %q: there is nothing to bind %q to %q", def.Op, b.Source, b.Destination)
	}
	if def.Op == opUnbind {
		x.table.Remove(b.Key, b.Args, to)
		return nil
	}
	if err := route.Validate(x.table.Kind(), b.Args); err != nil {
		return fmt.Errorf("definition %q of %q to %q: %w", def.Op, b.Source, b.Destination, err)
	}
	x.table.Add(b.Key, b.Args, to)
	return nil
}

func (d *Definitions) has(to definedDestination) bool {
	if to.isExchange {
		return d.exchanges[to.name] != nil
	}
	_, ok := d.queues[to.name]
	return ok
}

// Restore creates what d says. Nobody else may use the vhost yet. storage returns the storage of a queue with this number. A
// [queue.Replayer] must fill and start the queues that Restore returns.
func (v *VHost) Restore(d *Definitions, storage func(id uint64) (*queue.Storage, error)) ([]*queue.Mailbox, error) {
	v.policies.Store(d.policies)
	v.warnOfUnknownKeys()
	v.metadata, v.parameters = d.metadata, d.parameters
	v.applyLimits()
	for name, x := range d.exchanges {
		if v.exchanges[name] == nil {
			v.exchanges[name] = v.restoreExchange(x.Exchange)
		}
		v.exchanges[name].applyPolicies(d.policies)
	}
	queues := make([]*queue.Mailbox, 0, len(d.queues))
	names := make(map[int64]string, len(d.queues)) // by number
	for _, q := range d.queues {
		if other, taken := names[q.id]; taken {
			return nil, fmt.Errorf("queues '%s' and '%s' have the same number, %d", other, q.name, q.id)
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

// restoreQueue creates a queue that was declared before. Its arguments are not checked again: the queue stays, even if a plugin
// no longer accepts them.
func (v *VHost) restoreQueue(q definedQueue, s *queue.Storage) *queue.Mailbox {
	p, _ := v.profileFor(q.name, q.args, hookArgs(q.args), false)
	cfg := p.config(QueueDeclare{Name: q.name, Durable: true, AutoDelete: q.autoDelete})
	cfg.Storage = s
	m := queue.NewPausedMailbox(cfg, v.chain, v.QueueHost(), v.clock)
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
}
