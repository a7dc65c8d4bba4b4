package store

import (
	"fmt"
	"slices"

	"github.com/curfewmq/curfew/core/amqp"
	"github.com/curfewmq/curfew/core/vhost"
	"github.com/curfewmq/curfew/core/wlog"
)

// plan takes the lock on changes of members and placements, and returns the term in which they are planned.
//
// A node may lose the registry and win it back while it plans a change. Its copy then lacks
// the changes of the owner in between. A write in the term returned here fails once that
// term is over, so such a plan is never written.
func (r *Registry) plan() *registryOwner {
	r.changing.Lock()
	return r.log.owner()
}

// planModule takes the lock on changes of modules, and returns the term in which they are planned.
func (r *Registry) planModule() *registryOwner {
	r.modules.Lock()
	return r.log.owner()
}

// write writes definitions in a term, and returns when they have taken effect on this node. The caller holds changing.
func (r *Registry) write(own *registryOwner, defs ...amqp.Table) error {
	var b []byte
	for _, d := range defs {
		b = amqp.AppendTable(b, d)
	}
	if err := r.await(r.log.commitIn(own, b)); err != nil {
		return err
	}
	r.compact(own)
	return nil
}

// Place places a new vhost in the shard with the fewest vhosts, or replaces the metadata of
// an existing vhost.
func (r *Registry) Place(name string, m vhost.Metadata) (p Placement, created bool, err error) {
	if err := CheckVHost(name, m); err != nil {
		return Placement{}, false, err
	}
	own := r.plan()
	defer r.changing.Unlock()
	p, exists := r.Placement(name)
	if !exists {
		if p, err = r.nextPlacement(name); err != nil {
			return Placement{}, false, firstError(r.confirm(own), err)
		}
	}
	p.Metadata = m
	p.Metadata.Tags = slices.Clone(m.Tags)
	if err := r.write(own, definePlacement(&p)); err != nil {
		return Placement{}, false, fmt.Errorf("vhost %s: %w", name, err)
	}
	return p, !exists, nil
}

// nextPlacement returns the placement of a new vhost.
func (r *Registry) nextPlacement(name string) (Placement, error) {
	all, given := r.Placements(0)
	if len(all) >= maxVHosts {
		return Placement{}, &vhost.Error{Kind: vhost.Precondition, Text: "there are as many vhosts as there may be"}
	}
	counts := make([]int, r.options.Shards)
	for _, p := range all {
		if int(p.Shard) <= len(counts) {
			counts[p.Shard-1]++
		}
	}
	var failed error
	fewest := -1
	for n := range counts {
		switch err := r.failure(uint32(n) + 1); {
		case err != nil:
			failed = err
		case fewest < 0 || counts[n] < counts[fewest]:
			fewest = n
		}
	}
	if fewest < 0 {
		return Placement{}, fmt.Errorf("vhost %s: is not added: %w", name, failed)
	}
	return Placement{VHost: name, Shard: uint32(fewest) + 1, Number: given + 1}, nil
}

// failure returns why a shard cannot take a vhost; nil = it can, as far as this node knows.
func (r *Registry) failure(shard uint32) error {
	if r.options.Failure == nil {
		return nil
	}
	return r.options.Failure(shard)
}

// Unplace removes a vhost's placement, and all permissions for the vhost, in one step.
func (r *Registry) Unplace(name string) (existed bool, err error) {
	own := r.plan()
	defer r.changing.Unlock()
	return r.unplace(own, name)
}

// unplace is Unplace in the term own: in a later term another vhost may have the name. The
// caller holds changing.
func (r *Registry) unplace(own *registryOwner, name string) (existed bool, err error) {
	if !r.placed(name) {
		return false, r.confirm(own)
	}
	planned := func() error {
		if r.userLog.planned() != own {
			return wlog.ErrUnwritten
		}
		return nil
	}
	if err := r.users.ForgetVHost(name, planned, definePlacementRemoved(name)); err != nil {
		return true, fmt.Errorf("vhost %s: %w", name, err)
	}
	r.compact(own)
	return true, nil
}

// SetMember adds a node to the cluster's members, or replaces its entry. Without a change it writes nothing.
func (r *Registry) SetMember(m Member) error {
	if err := m.check(); err != nil {
		return err
	}
	own := r.plan()
	defer r.changing.Unlock()
	if slices.Contains(r.Members(), m) {
		return r.confirm(own)
	}
	return r.write(own, defineMember(&m))
}

// ReplaceMember replaces the member old by another node. old need not be a member any more.
// If a third node has the address by now, by was itself replaced, and ReplaceMember fails.
func (r *Registry) ReplaceMember(old wlog.NodeID, by Member) error {
	if err := by.check(); err != nil {
		return err
	}
	own := r.plan()
	defer r.changing.Unlock()
	for _, m := range r.Members() {
		if m.Address == by.Address && m.Number != old && m.Number != by.Number {
			return firstError(r.confirm(own), fmt.Errorf("node %d cannot take the seat of node %d at %s, which node %d has", by.Number, old, by.Address, m.Number))
		}
	}
	return r.write(own, defineMemberRemoved(old), defineMember(&by))
}

// maxOnce bounds a name of Once, in bytes.
const maxOnce = 512

// Once calls do, unless a node has already done so under this name, with success, in the
// life of the cluster. If the node ends before the success is written, another node calls
// do again, so do must check how far it came.
func (r *Registry) Once(name string, do func() error) error {
	if name == "" || len(name) > maxOnce {
		return fmt.Errorf("a name of %d bytes: 1 to %d are accepted", len(name), maxOnce)
	}
	if r.wasDone(name) {
		return nil
	}
	if err := do(); err != nil {
		return err
	}
	own := r.plan()
	defer r.changing.Unlock()
	return r.write(own, defineName(opOnce, name))
}

func (r *Registry) wasDone(name string) bool {
	r.copy.mu.RLock()
	defer r.copy.mu.RUnlock()
	return r.copy.state.once[name]
}

// SaveModule adds a module, or replaces the one of that name. All nodes then get it through
// Options.Modules. The caller must not change options and bytes afterwards.
func (r *Registry) SaveModule(name string, options, bytes []byte) error {
	m := &Module{Name: name, Options: options, Bytes: bytes, Revision: newRevision()}
	if err := CheckModule(m); err != nil {
		return err
	}
	own := r.planModule()
	defer r.modules.Unlock()
	if err := r.fits(m); err != nil {
		return firstError(r.confirm(own), err)
	}
	return r.writeModule(own, m)
}

// fits returns an error if a module and all others together exceed the limits.
func (r *Registry) fits(m *Module) error {
	count, size := 1, len(m.Bytes)
	for _, other := range r.Modules() {
		if other.Name != m.Name {
			count++
			size += len(other.Bytes)
		}
	}
	switch {
	case count > MaxModules:
		return fmt.Errorf("module %q: there are %d modules: no more are accepted", m.Name, count-1)
	case size > maxModuleBytes:
		return fmt.Errorf("module %q: all modules together would have %d bytes: up to %d are accepted", m.Name, size, maxModuleBytes)
	}
	return nil
}

// writeModule writes a module piece by piece, all in one term, because in another term
// another owner may write pieces of another module. The caller holds modules.
func (r *Registry) writeModule(own *registryOwner, m *Module) error {
	for def := range m.definitions() {
		if err := r.await(r.log.commitIn(own, amqp.AppendTable(nil, def))); err != nil {
			return fmt.Errorf("module %q: %w", m.Name, err)
		}
	}
	return nil
}

// DeleteModule deletes a module, and reports whether there was one.
func (r *Registry) DeleteModule(name string) (existed bool, err error) {
	own := r.planModule()
	defer r.modules.Unlock()
	if !slices.ContainsFunc(r.Modules(), func(m *Module) bool { return m.Name == name }) {
		return false, r.confirm(own)
	}
	return true, r.await(r.log.commitIn(own, amqp.AppendTable(nil, defineName(opDeleteModule, name))))
}

// firstError returns the first error that is not nil.
func firstError(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}
