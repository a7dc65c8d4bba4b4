package store

import (
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/curfewmq/curfew/core/chain"
	"github.com/curfewmq/curfew/core/queue"
	"github.com/curfewmq/curfew/core/vhost"
	"github.com/curfewmq/curfew/sdk/hook"
)

type vhosts struct {
	mu  sync.RWMutex // guards all
	all map[string]vhostEntry
}

type vhostEntry struct {
	*vhost.VHost
	log *definitionLog
}

func (s *vhosts) lookup(name string) (vhostEntry, bool) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	t, ok := s.all[name]
	return t, ok
}

func (s *vhosts) has(name string) bool {
	_, ok := s.lookup(name)
	return ok
}

func (s *vhosts) add(t vhostEntry) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.all[t.Name()] = t
}

func (s *vhosts) remove(name string) (vhostEntry, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	t, ok := s.all[name]
	delete(s.all, name)
	return t, ok
}

// publish adds a vhost, unless there is a later one of its name.
func (s *vhosts) publish(t vhostEntry) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if was, ok := s.all[t.Name()]; !ok || was.Placement() < t.Placement() {
		s.all[t.Name()] = t
	}
}

// withdraw removes a vhost, but no other of its name.
func (s *vhosts) withdraw(t vhostEntry) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.all[t.Name()].VHost == t.VHost {
		delete(s.all, t.Name())
	}
}

func (s *vhosts) list() []vhostEntry {
	s.mu.RLock()
	all := slices.Collect(maps.Values(s.all))
	s.mu.RUnlock()
	slices.SortFunc(all, func(a, b vhostEntry) int { return strings.Compare(a.Name(), b.Name()) })
	return all
}

// VHost returns a vhost, and whether it exists.
func (s *Store) VHost(name string) (*vhost.VHost, bool) {
	t, ok := s.vhosts.lookup(name)
	return t.VHost, ok
}

// VHosts lists the vhosts by name. Any of them may be deleted at any time.
func (s *Store) VHosts() []*vhost.VHost {
	all := s.vhosts.list()
	list := make([]*vhost.VHost, len(all))
	for i, t := range all {
		list[i] = t.VHost
	}
	return list
}

// maxVHosts bounds the number of vhosts.
const maxVHosts = 65536

// CheckVHost returns a [*vhost.Error] if no vhost can have such a name or metadata.
func CheckVHost(name string, m vhost.Metadata) error {
	if err := vhost.CheckName(name); err != nil {
		return err
	}
	return m.Check()
}

// AddVHost adds a vhost, for which no user has permissions yet, or replaces the metadata of
// an existing one. It returns the errors of [CheckVHost], too, and in a cluster
// [wlog.ErrNotOwner] where the registry is owned elsewhere. In a cluster another node may
// begin to serve the vhost a little later.
func (s *Store) AddVHost(name string, m vhost.Metadata) (created bool, err error) {
	if err := CheckVHost(name, m); err != nil {
		return false, err
	}
	return s.cluster.place(name, m)
}

func (s *Store) newVHost(home *shard, name string, m vhost.Metadata, placement uint64, log *definitionLog) vhostEntry {
	c := s.vhostConfig
	c.Name, c.Metadata, c.Placement, c.DefinitionLog = name, m, placement, log
	if c.Offset = home.Offset(); c.Offset != 0 { // a shard's time goes on when its owner changes
		c.Clock = func() hook.Instant { return s.vhostConfig.Clock().Add(c.Offset) }
	}
	return vhostEntry{vhost.New(c), log}
}

// Queues returns the state that all queues share, for queues that are in no vhost.
func (s *Store) Queues() *queue.Broker { return s.vhostConfig.Queues }

// Validator returns the validator of declarations for vhosts of this store.
func (s *Store) Validator() *vhost.Validator { return vhost.NewValidator(s.vhostConfig.Chain) }

// ExchangeTypes returns the exchange types that plugins offer.
func (s *Store) ExchangeTypes() []*chain.ExchangeType { return s.vhostConfig.Chain.ExchangeTypes() }

// MaxBindings returns how many bindings a vhost may have; 0 means no limit.
func (s *Store) MaxBindings() int { return s.vhostConfig.MaxBindings }

// DeleteVHost deletes a vhost with everything in it and all permissions for it, and closes
// its connections. If the deletion cannot be written, the vhost stays. In a cluster it
// returns [wlog.ErrNotOwner] where the registry is owned elsewhere, and another node may
// serve the vhost a little longer.
func (s *Store) DeleteVHost(name string) (existed bool, err error) {
	return s.cluster.unplace(name)
}
