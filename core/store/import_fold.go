package store

import (
	"errors"

	"github.com/curfewmq/curfew/core/amqp"
	"github.com/curfewmq/curfew/core/auth"
	"github.com/curfewmq/curfew/core/definition"
	"github.com/curfewmq/curfew/core/vhost"
)

// importFold reads the definitions of a broker that was alone. It keeps those of each scope that are in force, as they were written.
type importFold struct {
	fold
	kept    map[scope]*keptScope
	numbers uint64 // that were given to queues
}

// keptScope is the definitions of a scope, and what they amount to. Policies and parameters are not looked at.
type keptScope struct {
	applier
	definitions []byte
}

// Apply adds the next definition.
func (k *keptScope) Apply(d *definition.Definition) error {
	if resets(d.Op) {
		k.definitions = nil
	}
	k.definitions = amqp.AppendTable(k.definitions, d.Fields)
	if vhost.ForPlugins(d.Op) {
		return nil
	}
	return k.applier.Apply(d)
}

func newImportFold() *importFold {
	f := &importFold{kept: map[scope]*keptScope{}}
	f.fold = newFold(func(d *definition.Definition) (scope, error) { return scopeOf(d), nil }, f.begin)
	f.given = func(number uint64) { f.numbers = max(f.numbers, number) }
	return f
}

func (f *importFold) begin(of scope) *foldScope {
	s, k := &foldScope{}, &keptScope{}
	switch of.kind {
	case scopeVHost:
		s.vhost = vhost.NewDefinitions(nil, nil)
		k.applier = s.vhost
	case scopeUsers:
		k.applier = auth.New(auth.Options{})
	case scopeGlobals:
		k.applier = globalValues{}
	default:
		return nil
	}
	s.state, f.kept[of] = k, k
	return s
}

// definitions returns those of a scope that are in force.
func (f *importFold) definitions(of scope) []byte {
	if f.scopes[of] == nil {
		return nil
	}
	return f.kept[of].definitions
}

// done returns the failures that were not voided.
func (f *importFold) done() error {
	err := f.err()
	if err == nil && len(f.definitions(scope{kind: scopeUsers})) == 0 {
		for range f.vhosts {
			return nil
		}
		return errors.New("there are no virtual hosts and no users: no broker has run on it")
	}
	return err
}
