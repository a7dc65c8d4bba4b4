package store

import (
	"errors"
	"fmt"

	"github.com/curfewmq/curfew/core/definition"
	"github.com/curfewmq/curfew/core/vhost"
	"github.com/curfewmq/curfew/core/wlog"
)

// fold builds the states of scopes from the definitions in a log, read from its beginning,
// and counts the log space that these use.
//
// A definition may depend on one that was trimmed from the log. So a definition that fails
// is an error only if no later definition of its scope voids it.
type fold struct {
	// scopeOf returns the scope of a definition that is not part of a rewrite, or an error
	// if such a definition cannot be in the log.
	scopeOf func(d *definition.Definition) (scope, error)
	// begin returns a scope of which nothing was read yet; nil = the log can have no
	// definition of it.
	begin func(of scope) *foldScope
	// given is called with the numbers of queues; nil = the log has none.
	given func(number uint64)
	// count accounts for a definition; nil = its bytes are added to those of its scope.
	count func(extent uint32, d *definition.Definition)

	scopes   map[scope]*foldScope
	rewrites rewrites
}

type foldScope struct {
	state applier            // nil = definitions are only counted
	vhost *vhost.Definitions // the state, if the scope is a vhost; else nil
	log   *definitionLog     // that writes the scope from then on; nil = there is none
	usage *logUsage
	read  bool  // the log has definitions of the scope
	err   error // of the first definition that failed and was not voided; nil = there is none
}

// applier is the state of a scope.
type applier interface {
	Apply(d *definition.Definition) error
}

func newFold(scopeOf func(*definition.Definition) (scope, error), begin func(scope) *foldScope) fold {
	return fold{scopeOf: scopeOf, begin: begin, scopes: map[scope]*foldScope{}, rewrites: rewrites{}}
}

// entry reads an entry that holds only definitions.
func (f *fold) entry(extent uint32, at wlog.Index, entry []byte) error {
	for d, err := range definition.Parse(entry) {
		if err == nil {
			err = f.read(extent, d)
		}
		if err != nil {
			return fmt.Errorf("entry %#x: %w", at, err)
		}
	}
	return nil
}

func (f *fold) read(extent uint32, d *definition.Definition) error {
	if d.Op == opRewrite {
		return f.readPart(extent, d)
	}
	of, err := f.scopeOf(d)
	if err != nil {
		return err
	}
	f.rewrites.insert(extent, of, d)
	if err := f.counted(extent, of, d); err != nil {
		return err
	}
	return f.apply(of, d)
}

// counted accounts for a definition. The numbers of the queues of a deleted vhost are in no
// scope.
func (f *fold) counted(extent uint32, of scope, d *definition.Definition) error {
	if f.count != nil {
		f.count(extent, d)
		return nil
	}
	if d.Op == opNumbers && f.scopes[of] == nil && of.kind == scopeVHost {
		return nil
	}
	s, err := f.scope(of, d)
	if err != nil {
		return err
	}
	if resets(d.Op) {
		s.usage.reset()
	}
	s.usage.add(extent, int64(d.Size))
	return nil
}

// scope returns a scope, which a definition may begin.
func (f *fold) scope(of scope, d *definition.Definition) (*foldScope, error) {
	if s := f.at(of); s != nil {
		return s, nil
	}
	return nil, fmt.Errorf("definition %q: of %q, which does not belong into this log", d.Op, of.kind)
}

// at returns a scope, if need be a new one; nil = the log can have no definition of it.
func (f *fold) at(of scope) *foldScope {
	s := f.scopes[of]
	if s != nil {
		return s
	}
	if s = f.begin(of); s == nil {
		return nil
	}
	if s.usage == nil {
		s.usage = &logUsage{}
	}
	f.scopes[of] = s
	return s
}

// readPart reads a part of a rewrite. The last part completes the rewrite, which then
// replaces the scope.
//
// A part alone does not begin a vhost: it may be of an unfinished rewrite, or of the last
// rewrite of a deleted vhost.
func (f *fold) readPart(extent uint32, d *definition.Definition) error {
	p, err := parsePart(d)
	if err != nil {
		return err
	}
	if f.scopes[p.of] != nil || p.of.kind != scopeVHost {
		s, err := f.scope(p.of, d)
		if err != nil {
			return err
		}
		s.usage.add(extent, int64(d.Size))
	}
	w := f.rewrites.add(extent, &p, d.Size)
	if w == nil {
		return nil
	}
	s, err := f.scope(p.of, d)
	if err != nil {
		return err
	}
	*s.usage = w.usage
	s.usage.compacted = w.usage.bytes
	for d, err := range definition.Parse(w.definitions) {
		var of scope
		if err == nil {
			of, err = f.scopeOf(d)
		}
		if err == nil {
			err = f.apply(of, d)
		}
		if err != nil {
			return fmt.Errorf("rewritten %s %q: %w", p.of.kind, p.of.vhost, err)
		}
	}
	return nil
}

func (f *fold) apply(of scope, d *definition.Definition) error {
	if d.Op == opNumbers {
		last, _ := d.Fields.Lookup(fieldLast)
		n, _ := last.(int64)
		f.given(uint64(n))
		return nil
	}
	if vhost.Deletes(d.Op) {
		if s := f.scopes[of]; s != nil {
			s.apply(d) // frees the restored messages of its queues
		}
		delete(f.scopes, of)
		return nil
	}
	if id, ok := vhost.QueueID(d); ok {
		f.given(id >> shardBits)
	}
	s, err := f.scope(of, d)
	if err == nil {
		s.apply(d)
	}
	return err
}

func (s *foldScope) apply(d *definition.Definition) {
	s.read = true
	if s.state == nil {
		return
	}
	if err := s.state.Apply(d); s.err == nil || resets(d.Op) {
		s.err = err
	}
}

// err returns the failures that were not voided.
func (f *fold) err() (all error) {
	for of, s := range f.scopes {
		err := s.err
		if s.vhost != nil {
			err = errors.Join(err, s.vhost.Err())
		}
		if err != nil && of.kind == scopeVHost {
			err = fmt.Errorf("vhost '%s': %w", of.vhost, err)
		}
		all = errors.Join(all, err)
	}
	return all
}

func (f *fold) vhosts(yield func(name string, s *foldScope) bool) {
	for of, s := range f.scopes {
		if s.vhost != nil && !yield(of.vhost, s) {
			return
		}
	}
}
