package store

import (
	"errors"
	"fmt"

	"github.com/curfewmq/curfew/core/amqp"
	"github.com/curfewmq/curfew/core/auth"
	"github.com/curfewmq/curfew/core/definition"
	"github.com/curfewmq/curfew/core/vhost"
)

// definitionFold reads the definitions of a broker that was alone. It keeps those of each scope that are in force, as they were written.
//
// As in a start of that broker, one that fails is an error only if none follows that voids it.
type definitionFold struct {
	vhosts   map[string]*foldedVHost
	users    foldedScope
	globals  foldedScope
	rewrites rewrites
	numbers  uint64 // that were given to queues

	accounts   *auth.Store
	parameters globalValues
}

// foldedScope is the definitions of a scope.
type foldedScope struct {
	definitions []byte
	err         error // of the first that failed
}

// foldedVHost is the definitions of a vhost, and what they amount to. Policies and parameters are not looked at.
type foldedVHost struct {
	foldedScope
	state *vhost.Definitions
}

func newDefinitionFold() *definitionFold {
	return &definitionFold{
		vhosts: map[string]*foldedVHost{}, rewrites: rewrites{}, accounts: auth.New(auth.Options{}), parameters: globalValues{},
	}
}

// entry reads the next entry.
func (f *definitionFold) entry(entry []byte) error {
	for d, err := range definition.Parse(entry) {
		if err == nil {
			err = f.read(d)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (f *definitionFold) read(d *definition.Definition) error {
	if d.Op != opRewrite {
		f.rewrites.insert(0, scopeOf(d), d)
		f.apply(d)
		return nil
	}
	p, err := parsePart(d)
	if err != nil {
		return err
	}
	w := f.rewrites.add(0, &p, d.Size)
	if w == nil {
		return nil
	}
	for d, err := range definition.Parse(w.definitions) {
		if err != nil {
			return fmt.Errorf("rewritten %s %q: %w", p.of.kind, p.of.vhost, err)
		}
		f.apply(d)
	}
	return nil
}

// apply takes what a definition says.
func (f *definitionFold) apply(d *definition.Definition) {
	of := scopeOf(d)
	switch {
	case d.Op == opNumbers:
		last, _ := d.Fields.Lookup(fieldLast)
		n, _ := last.(int64)
		f.numbers = max(f.numbers, uint64(n))
	case of.kind == scopeUsers:
		f.users.add(d, f.accounts.Apply(d))
	case of.kind == scopeGlobals:
		f.globals.add(d, f.parameters.Apply(d))
	case vhost.Deletes(d.Op):
		delete(f.vhosts, of.vhost)
	default:
		f.applyVHost(of.vhost, d)
	}
}

func (f *definitionFold) applyVHost(name string, d *definition.Definition) {
	if id, ok := vhost.QueueID(d); ok {
		f.numbers = max(f.numbers, id>>shardBits)
	}
	v := f.vhosts[name]
	if v == nil {
		v = &foldedVHost{state: vhost.NewDefinitions(nil, nil)}
		f.vhosts[name] = v
	}
	var err error
	if !vhost.ForPlugins(d.Op) {
		err = v.state.Apply(d)
	}
	v.add(d, err)
}

// add adds a definition that was applied.
func (s *foldedScope) add(d *definition.Definition, err error) {
	if resets(d.Op) {
		s.definitions, s.err = nil, nil
	}
	if s.err == nil {
		s.err = err
	}
	s.definitions = amqp.AppendTable(s.definitions, d.Fields)
}

// err returns the failures that were not voided.
func (f *definitionFold) err() error {
	all := errors.Join(f.users.err, f.globals.err)
	for name, v := range f.vhosts {
		if err := errors.Join(v.err, v.state.Err()); err != nil {
			all = errors.Join(all, fmt.Errorf("vhost '%s': %w", name, err))
		}
	}
	if all == nil && len(f.vhosts) == 0 && len(f.users.definitions) == 0 {
		return errors.New("there are no virtual hosts and no users: no broker has run on it")
	}
	return all
}
