package store

import (
	"maps"
	"slices"
	"strings"

	"github.com/curfewmq/curfew/core/amqp"
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
