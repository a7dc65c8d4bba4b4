package store

import (
	"errors"
	"fmt"

	"github.com/curfewmq/curfew/core/auth"
	"github.com/curfewmq/curfew/core/definition"
	"github.com/curfewmq/curfew/core/wlog"
)

// registryFold makes a registry's state from its log, from the log's beginning on: beside the state in force, if there is one.
//
// What is read first may build on what was trimmed from the log. So a definition that fails is an error only if none follows that
// voids both.
type registryFold struct {
	state    registryState
	users    *auth.Store
	globals  globalValues
	rewrites rewrites
	errs     map[scope]error
}

func newRegistryFold() *registryFold {
	return &registryFold{
		state: newRegistryState(), users: auth.New(auth.Options{}), globals: globalValues{}, rewrites: rewrites{}, errs: map[scope]error{},
	}
}

// entry applies the next entry of the log.
func (f *registryFold) entry(at wlog.Index, entry []byte) error {
	for d, err := range definition.Parse(entry) {
		if err == nil {
			err = f.read(d)
		}
		if err != nil {
			return fmt.Errorf("entry %#x: %w", at, err)
		}
	}
	return nil
}

func (f *registryFold) read(d *definition.Definition) error {
	if d.Op == opRewrite {
		return f.readPart(d)
	}
	of, err := registryScopeOf(d)
	if err != nil {
		return err
	}
	f.rewrites.insert(0, of, d)
	f.apply(of, d)
	return nil
}

// readPart reads a part of a rewrite, and applies the whole with the last one.
func (f *registryFold) readPart(d *definition.Definition) error {
	p, err := parseRegistryPart(d)
	if err != nil {
		return err
	}
	w := f.rewrites.add(0, &p, d.Size)
	if w == nil {
		return nil
	}
	for d, err := range definition.Parse(w.definitions) {
		if err != nil {
			return fmt.Errorf("rewritten %s: %w", p.of.kind, err)
		}
		f.apply(p.of, d)
	}
	return nil
}

// parseRegistryPart reads a part of a rewrite of what a registry has.
func parseRegistryPart(d *definition.Definition) (p part, err error) {
	if p, err = parsePart(d); err != nil {
		return p, err
	}
	switch p.of.kind {
	case scopeUsers, scopeGlobals, scopeMembers, scopePlacements:
		return p, nil
	}
	return p, fmt.Errorf("definition %q: of %q, which no registry has", d.Op, p.of.kind)
}

func (f *registryFold) apply(of scope, d *definition.Definition) {
	var err error
	switch of.kind {
	case scopeUsers:
		err = f.users.Apply(d)
	case scopeGlobals:
		err = f.globals.Apply(d)
	default:
		err = f.state.Apply(d)
	}
	if f.errs[of] == nil || registryResets(d.Op) {
		f.errs[of] = err
	}
}

// err returns the failures that were not voided.
func (f *registryFold) err() error {
	var all error
	for _, err := range f.errs {
		all = errors.Join(all, err)
	}
	return all
}

// registryEntry is an entry of a registry's log, for a state to which all before it was applied. Rewrites are left out: they say what
// that state has already.
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
		_, err := parseRegistryPart(d)
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
