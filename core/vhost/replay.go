package vhost

import (
	"encoding/json"
	"fmt"

	"github.com/curfewmq/curfew/core/definition"
	"github.com/curfewmq/curfew/core/route"
	"github.com/curfewmq/curfew/policies"
)

// Definitions are the durable exchanges, queues and bindings of a vhost, as what was written of them says. They belong to
// one goroutine.
type Definitions struct {
	rules     *policies.Rules
	exchanges map[string]*definedExchange
	queues    map[string]definedQueue
	policies  *policies.Set

	metadata   Metadata
	parameters map[parameterKey]json.RawMessage
}

// definedExchange is an exchange and the durable bindings it is the source of.
type definedExchange struct {
	Exchange
	table *route.Table[definedEnd] // nil for the default exchange
}

// definedEnd is what a binding leads to.
type definedEnd struct {
	name     string
	exchange bool
}

// NewDefinitions returns the definitions of a vhost in which nothing was declared. Its policies follow the rules.
func NewDefinitions(rules *policies.Rules) *Definitions {
	d := &Definitions{rules: rules}
	d.reset()
	return d
}

func (d *Definitions) reset() {
	d.exchanges, d.queues = map[string]*definedExchange{}, map[string]definedQueue{}
	d.policies, d.metadata, d.parameters = nil, Metadata{}, map[parameterKey]json.RawMessage{}
	for _, x := range predeclared {
		d.add(x)
	}
}

func (d *Definitions) add(x Exchange) {
	made := &definedExchange{Exchange: x}
	if kind, ok := route.ParseKind(x.Type); ok && x.Name != "" {
		made.table = route.New[definedEnd](kind)
	}
	d.exchanges[x.Name] = made
}

// Apply takes in the next definition of the vhost.
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
	case opDeleteExchange:
		return d.deleteExchange(def)
	case opDeclareQueue:
		q, err := readQueue(def)
		d.queues[q.name] = q
		return err
	case opDeleteQueue:
		return d.deleteQueue(def)
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
	x, err := readExchange(def)
	if err != nil {
		return err
	}
	if _, ok := route.ParseKind(x.Type); !ok {
		return fmt.Errorf("definition %q: exchange %q is of the unknown type %q", def.Op, x.Name, x.Type)
	}
	d.add(x)
	return nil
}

func (d *Definitions) deleteExchange(def *definition.Definition) error {
	name, err := readName(def)
	if err != nil {
		return err
	}
	delete(d.exchanges, name)
	d.unbindAll(definedEnd{name, true})
	return nil
}

func (d *Definitions) deleteQueue(def *definition.Definition) error {
	name, err := readName(def)
	if err != nil {
		return err
	}
	delete(d.queues, name)
	d.unbindAll(definedEnd{name, false})
	return nil
}

func (d *Definitions) unbindAll(end definedEnd) {
	for _, x := range d.exchanges {
		if x.table != nil {
			x.table.RemoveDestination(end)
		}
	}
}

func (d *Definitions) bind(def *definition.Definition) error {
	b, err := readBinding(def)
	if err != nil {
		return err
	}
	x := d.exchanges[b.Source]
	if x == nil || x.table == nil || !d.has(b) {
		return fmt.Errorf("definition %q: there is nothing to bind %q to %q", def.Op, b.Source, b.Destination)
	}
	end := definedEnd{b.Destination, b.ToExchange}
	if def.Op == opUnbind {
		x.table.Remove(b.Key, b.Args, end)
		return nil
	}
	if err := route.Validate(x.table.Kind(), b.Args); err != nil {
		return fmt.Errorf("definition %q of %q to %q: %w", def.Op, b.Source, b.Destination, err)
	}
	x.table.Add(b.Key, b.Args, end)
	return nil
}

func (d *Definitions) has(b Binding) bool {
	if b.ToExchange {
		return d.exchanges[b.Destination] != nil
	}
	_, ok := d.queues[b.Destination]
	return ok
}
