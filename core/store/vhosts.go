package store

import (
	"errors"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/curfewmq/curfew/core/amqp"
	"github.com/curfewmq/curfew/core/vhost"
)

// vhosts are the virtual hosts there are, with the keepers of what is durable in them.
type vhosts struct {
	changing sync.Mutex // held while a vhost comes or goes, until that is durable

	mu  sync.RWMutex // guards what follows
	all map[string]vhostEntry
}

type vhostEntry struct {
	*vhost.VHost
	keeper *definitionLog
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

// remove takes a vhost out of the table; nobody finds it any more.
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

// VHosts lists the vhosts by name. Some may be gone when they are used.
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

// maxVHosts bounds what there can be of them.
const maxVHosts = 65536

// CheckVHost reports what is wrong with a name or metadata of a vhost, as a [*vhost.Error].
func CheckVHost(name string, m vhost.Metadata) error {
	if err := vhost.CheckName(name); err != nil {
		return err
	}
	return m.Check()
}

// AddVHost adds a vhost, in which nobody has any permission yet. One that exists gets the metadata instead of its own. What
// CheckVHost reports is an error here.
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
	t := s.newVHost(name, m, newKeeper(s, scope{scopeVHost, name}))
	t.keeper.Rewrite(slices.Values([][]byte{t.Definitions()}))
	if err := t.keeper.WaitDurable(); err != nil {
		return false, errors.Join(err, errors.New("vhost "+name+": is not added"))
	}
	s.vhosts.add(t)
	s.log.Info("vhost added", "vhost", name)
	return true, nil
}

func (s *Store) newVHost(name string, m vhost.Metadata, k *definitionLog) vhostEntry {
	c := s.making
	c.Name, c.Metadata, c.DefinitionLog = name, m, k
	return vhostEntry{vhost.New(c), k}
}

// Draft returns a vhost as those that are added are, which nobody else will see, to check with what could be in them.
func (s *Store) Draft() *vhost.VHost { return vhost.New(s.making) }

// DeleteVHost deletes a vhost with everything in it and all permissions for it, and has the connections to it closed. If that
// cannot be kept, the vhost stays; permissions for it may be gone.
func (s *Store) DeleteVHost(name string) (existed bool, err error) {
	s.vhosts.changing.Lock()
	defer s.vhosts.changing.Unlock()
	t, existed := s.vhosts.remove(name)
	if !existed {
		return false, nil
	}
	// What is written of the vhost will be forgotten, the numbers of its queues must not be.
	s.keeper.Write(amqp.AppendTable(nil, numbersDefinition("", s.numbers.Load())))
	if err = s.users.ForgetVHost(name); err == nil {
		err = t.Delete()
	}
	if err != nil {
		s.vhosts.add(t)
		return true, err
	}
	t.keeper.release()
	s.log.Info("vhost deleted", "vhost", name)
	return true, nil
}
