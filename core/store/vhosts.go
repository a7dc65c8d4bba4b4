package store

import (
	"errors"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/curfewmq/curfew/core/amqp"
	"github.com/curfewmq/curfew/core/chain"
	"github.com/curfewmq/curfew/core/vhost"
)

// vhosts is the table of vhosts.
type vhosts struct {
	changing sync.Mutex // held while a vhost is added or deleted, until that is durable

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

// VHost returns a vhost, and whether it exists.
func (s *Store) VHost(name string) (*vhost.VHost, bool) {
	t, ok := s.vhosts.lookup(name)
	return t.VHost, ok
}

// VHosts lists the vhosts by name. Any of them may be deleted at any time.
func (s *Store) VHosts() []*vhost.VHost {
	s.vhosts.mu.RLock()
	all := slices.Collect(maps.Values(s.vhosts.all))
	s.vhosts.mu.RUnlock()
	slices.SortFunc(all, func(a, b vhostEntry) int { return strings.Compare(a.Name(), b.Name()) })
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

// AddVHost adds a vhost, for which no user has permissions yet, or replaces the metadata of an existing one. It returns the errors
// of [CheckVHost], too.
func (s *Store) AddVHost(name string, m vhost.Metadata) (created bool, err error) {
	if err := CheckVHost(name, m); err != nil {
		return false, err
	}
	s.vhosts.changing.Lock()
	defer s.vhosts.changing.Unlock()
	if v, exists := s.VHost(name); exists {
		return false, v.SetMetadata(m)
	}
	if n := len(s.VHosts()); n >= maxVHosts {
		return false, &vhost.Error{Kind: vhost.Precondition, Text: "there are as many vhosts as there may be"}
	}
	m.Tags = slices.Clone(m.Tags)
	t := s.newVHost(name, m, newDefinitionLog(s, scope{scopeVHost, name}))
	t.log.Rewrite(slices.Values([][]byte{t.Definitions()}))
	if err := t.log.WaitDurable(); err != nil {
		return false, errors.Join(err, errors.New("vhost "+name+": is not added"))
	}
	s.vhosts.add(t)
	s.log.Info("vhost added", "vhost", name)
	return true, nil
}

func (s *Store) newVHost(name string, m vhost.Metadata, log *definitionLog) vhostEntry {
	c := s.vhostConfig
	c.Name, c.Metadata, c.DefinitionLog = name, m, log
	return vhostEntry{vhost.New(c), log}
}

// Validator returns what checks declarations for vhosts of this store.
func (s *Store) Validator() *vhost.Validator { return vhost.NewValidator(s.vhostConfig.Chain) }

// ExchangeTypes returns the exchange types that plugins offer.
func (s *Store) ExchangeTypes() []*chain.ExchangeType { return s.vhostConfig.Chain.ExchangeTypes() }

// MaxBindings returns how many bindings a vhost may have; 0 means no limit.
func (s *Store) MaxBindings() int { return s.vhostConfig.MaxBindings }

// DeleteVHost deletes a vhost with everything in it and all permissions for it, and closes its connections. If the deletion cannot
// be written, the vhost stays, but permissions for it may be lost.
func (s *Store) DeleteVHost(name string) (existed bool, err error) {
	s.vhosts.changing.Lock()
	defer s.vhosts.changing.Unlock()
	t, existed := s.vhosts.remove(name)
	if !existed {
		return false, nil
	}
	// The vhost's definitions will be trimmed, but the numbers of its queues must not be given again.
	s.userLog.Write(amqp.AppendTable(nil, numbersDefinition("", s.lastNumber.Load())))
	if err = s.users.ForgetVHost(name); err == nil {
		err = t.Delete()
	}
	if err != nil {
		s.vhosts.add(t)
		return true, err
	}
	t.log.release()
	s.log.Info("vhost deleted", "vhost", name)
	return true, nil
}
