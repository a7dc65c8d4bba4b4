package store

import (
	"github.com/curfewmq/curfew/core/auth"
	"github.com/curfewmq/curfew/core/definition"
)

// registryFold builds a registry's state from its log, apart from the state in force.
type registryFold struct {
	fold
	state   registryState
	users   *auth.Store
	globals globalValues
}

func newRegistryFold() *registryFold {
	f := &registryFold{state: newRegistryState(), users: auth.New(auth.Options{}), globals: globalValues{}}
	f.fold = newFold(registryScopeOf, f.begin)
	return f
}

func (f *registryFold) begin(of scope) *foldScope {
	switch of.kind {
	case scopeUsers:
		return &foldScope{state: f.users}
	case scopeGlobals:
		return &foldScope{state: f.globals}
	case scopeMembers, scopePlacements, scopeModule:
		return &foldScope{state: &f.state}
	}
	return nil
}

// registryEntry is an entry of a registry's log, for a state to which all earlier entries
// were applied. It leaves rewrites out, because such a state already has their contents.
type registryEntry struct {
	state, users, globals []*definition.Definition
}

func parseRegistryEntry(entry []byte) (e registryEntry, err error) {
	for d, err := range definition.Parse(entry) {
		if err == nil {
			err = e.add(d)
		}
		if err != nil {
			return registryEntry{}, err
		}
	}
	return e, nil
}

func (e *registryEntry) add(d *definition.Definition) error {
	if d.Op == opRewrite {
		_, err := parsePart(d)
		return err
	}
	of, err := registryScopeOf(d)
	switch {
	case err != nil:
		return err
	case of.kind == scopeUsers:
		e.users = append(e.users, d)
	case of.kind == scopeGlobals:
		e.globals = append(e.globals, d)
	default:
		e.state = append(e.state, d)
	}
	return nil
}
