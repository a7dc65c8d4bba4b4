package store

import (
	"maps"
	"slices"
	"strings"

	"github.com/curfewmq/curfew/core/amqp"
	"github.com/curfewmq/curfew/core/auth"
	"github.com/curfewmq/curfew/core/definition"
	"github.com/curfewmq/curfew/core/wlog"
)

// registryState is the contents of the registry, except for users and global parameters.
type registryState struct {
	cluster string // its name
	members map[wlog.NodeID]Member
	once    map[string]bool // names for which Once was done

	placements map[string]Placement // by vhost
	given      uint64               // the highest number that a placement ever had

	modules map[string]*Module
	upload  *upload // the unfinished module; nil = none
}

func newRegistryState() registryState {
	return registryState{
		members: map[wlog.NodeID]Member{}, once: map[string]bool{}, placements: map[string]Placement{}, modules: map[string]*Module{},
	}
}

// Apply applies the next definition.
func (s *registryState) Apply(d *definition.Definition) (err error) {
	var name string
	switch d.Op {
	case opNoMembers:
		s.cluster = ""
		clear(s.members)
		clear(s.once)
	case opSetCluster:
		definition.Read(d, fieldName, &s.cluster, &err)
	case opOnce:
		if definition.Read(d, fieldName, &name, &err); err == nil {
			s.once[name] = true
		}
	case opSetMember:
		m, err := readMember(d)
		if err != nil {
			return err
		}
		s.members[m.Number] = m
	case opRemoveMember:
		var number int64
		definition.Read(d, fieldNumber, &number, &err)
		delete(s.members, wlog.NodeID(number))
	case opNoPlacements:
		var last int64
		if definition.Read(d, fieldLast, &last, &err); err == nil {
			clear(s.placements)
			s.given = max(s.given, uint64(last))
		}
	case opSetPlacement:
		p, err := readPlacement(d)
		if err != nil {
			return err
		}
		s.placements[p.VHost] = p
		s.given = max(s.given, p.Number)
	case opRemovePlacement:
		definition.Read(d, fieldVHost, &name, &err)
		delete(s.placements, name)
	case opModulePart:
		return s.applyPart(d)
	case opSetModule:
		return s.applyModule(d)
	case opDeleteModule:
		definition.Read(d, fieldName, &name, &err)
		delete(s.modules, name)
	default:
		return d.Unknown()
	}
	return err
}

// membership yields the definitions of all members.
func (s *registryState) membership(yield func(amqp.Table) bool) {
	more := yield(definition.New(opNoMembers)) && yield(defineName(opSetCluster, s.cluster))
	for _, m := range s.members {
		more = more && yield(defineMember(&m))
	}
	for name := range s.once {
		more = more && yield(defineName(opOnce, name))
	}
}

// placing yields the definitions of all placements.
func (s *registryState) placing(yield func(amqp.Table) bool) {
	more := yield(defineNoPlacements(s.given))
	for _, p := range s.placements {
		more = more && yield(definePlacement(&p))
	}
}

// withoutModules returns a copy that changes by itself.
func (s *registryState) withoutModules() registryState {
	return registryState{
		cluster: s.cluster, members: maps.Clone(s.members), once: maps.Clone(s.once), placements: maps.Clone(s.placements), given: s.given,
	}
}

// Members lists the nodes that belong to the cluster, by address.
func (r *Registry) Members() []Member {
	r.copy.mu.RLock()
	defer r.copy.mu.RUnlock()
	return slices.SortedFunc(maps.Values(r.copy.state.members), func(a, b Member) int { return strings.Compare(a.Address, b.Address) })
}

// Format returns the latest format of logs that all members read; 0 = there are no members.
func (r *Registry) Format() int64 {
	r.copy.mu.RLock()
	defer r.copy.mu.RUnlock()
	least := int64(-1)
	for _, m := range r.copy.state.members {
		if least < 0 || m.Format < least {
			least = m.Format
		}
	}
	return max(least, 0)
}

// Cluster returns the cluster's name.
func (r *Registry) Cluster() string {
	r.copy.mu.RLock()
	defer r.copy.mu.RUnlock()
	return r.copy.state.cluster
}

// Placement returns where a vhost lives, and whether there is such a vhost.
func (r *Registry) Placement(vhost string) (Placement, bool) {
	r.copy.mu.RLock()
	defer r.copy.mu.RUnlock()
	p, ok := r.copy.state.placements[vhost]
	return p, ok
}

func (r *Registry) placed(vhost string) bool {
	_, ok := r.Placement(vhost)
	return ok
}

// Placements lists the placements of vhosts, sorted by vhost: those in one shard or, with
// shard 0, all. given is the highest number that a placement ever had: if a vhost's
// placement has a number up to given and is not in the list, the vhost was deleted.
func (r *Registry) Placements(shard uint32) (all []Placement, given uint64) {
	r.copy.mu.RLock()
	defer r.copy.mu.RUnlock()
	for _, p := range r.copy.state.placements {
		if shard == 0 || p.Shard == shard {
			all = append(all, p)
		}
	}
	slices.SortFunc(all, func(a, b Placement) int { return strings.Compare(a.VHost, b.VHost) })
	return all, r.copy.state.given
}

// Modules lists the modules by name.
func (r *Registry) Modules() []*Module {
	r.copy.mu.RLock()
	defer r.copy.mu.RUnlock()
	return slices.SortedFunc(maps.Values(r.copy.state.modules), func(a, b *Module) int { return strings.Compare(a.Name, b.Name) })
}

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
