package store

import (
	"context"
	"log/slog"
	"maps"
	"math"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/curfewmq/curfew/core/chain"
	"github.com/curfewmq/curfew/core/logtest"
	"github.com/curfewmq/curfew/core/vhost"
	"github.com/curfewmq/curfew/core/wlog"
	"github.com/curfewmq/curfew/core/wlog/fake"
)

// simpleRegistry is a registry that all nodes share, and any may change.
type simpleRegistry struct {
	mu      sync.Mutex // guards the fields below
	placed  map[string]Placement
	given   uint64
	changed chan struct{}
}

func newSimpleRegistry() *simpleRegistry {
	return &simpleRegistry{placed: map[string]Placement{}, changed: make(chan struct{})}
}

func (r *simpleRegistry) Placement(name string) (Placement, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	p, ok := r.placed[name]
	return p, ok
}

func (r *simpleRegistry) Placements(shard uint32) (all []Placement, given uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, p := range r.placed {
		if p.Shard == shard {
			all = append(all, p)
		}
	}
	return all, r.given
}

func (r *simpleRegistry) Changed() <-chan struct{} {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.changed
}

func (r *simpleRegistry) change(f func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	f()
	close(r.changed)
	r.changed = make(chan struct{})
}

// in places a vhost in a shard.
func (r *simpleRegistry) in(shard uint32, name string) {
	r.change(func() {
		r.given++
		r.placed[name] = Placement{VHost: name, Shard: shard, Number: r.given}
	})
}

func (r *simpleRegistry) Place(name string, m vhost.Metadata) (p Placement, created bool, err error) {
	r.change(func() {
		var ok bool
		if p, ok = r.placed[name]; !ok {
			r.given++
			p, created = Placement{VHost: name, Shard: 1, Number: r.given}, true
		}
		p.Metadata = m
		r.placed[name] = p
	})
	return p, created, nil
}

func (r *simpleRegistry) Unplace(name string) (existed bool, err error) {
	r.change(func() {
		_, existed = r.placed[name]
		delete(r.placed, name)
	})
	return existed, nil
}

// clone returns a copy that does not change with the other.
func (r *simpleRegistry) clone() *simpleRegistry {
	r.mu.Lock()
	defer r.mu.Unlock()
	return &simpleRegistry{placed: maps.Clone(r.placed), given: r.given, changed: make(chan struct{})}
}

// team is the nodes of a cluster.
type team struct {
	t        *testing.T
	storage  *fake.Storage
	registry *simpleRegistry
	nodes    []*member
}

// member is a node of a team.
type member struct {
	*fake.Node
	*Store
	t       *testing.T
	log     *logtest.Log
	givenUp chan uint32
}

func newTeam(t *testing.T, nodes int, change ...func(*Options)) *team {
	t.Helper()
	m := &team{t: t, storage: fake.New(), registry: newSimpleRegistry()}
	for range nodes {
		m.join(change...)
	}
	return m
}

// join adds a node.
func (m *team) join(change ...func(*Options)) *member {
	m.t.Helper()
	id := wlog.NodeID(len(m.nodes) + 1)
	n := &member{Node: m.storage.Node(id, time.Duration(id)*time.Minute), t: m.t, log: new(logtest.Log), givenUp: make(chan uint32, 100)}
	c, err := chain.New(nil, chain.Options{})
	must(m.t, err)
	o := Options{
		Cluster: n.Node, Shards: 2, Chain: c, Clock: n.Now, Log: slog.New(slog.NewTextHandler(n.log, nil)),
		GiveUp: func(shard uint32) { n.givenUp <- shard }, placements: m.registry,
	}
	for _, f := range change {
		f(&o)
	}
	n.Store, err = Open(m.t.Context(), o)
	must(m.t, err)
	m.nodes = append(m.nodes, n)
	return n
}

// close closes all nodes.
func (m *team) close() {
	m.t.Helper()
	for _, n := range m.nodes {
		must(m.t, n.Store.Close(m.t.Context()))
		must(m.t, n.Node.Close())
	}
}

// own makes a node the owner of a shard, and waits until it serves the shard.
func (m *team) own(shard uint32, n *member) {
	m.t.Helper()
	m.storage.SetOwner(shard, n.ID())
	synctest.Wait()
}

// serving returns the vhost on a node that must serve it.
func (n *member) serving(name string) *kept {
	n.t.Helper()
	h, known := n.Home(name)
	v, here := n.VHost(name)
	if !known || !h.Here || !here || h.Owner != n.ID() {
		n.t.Fatalf("node %d: vhost %s is at home at %+v, known: %v, here: %v\n%s", n.ID(), name, h, known, here, n.log.String())
	}
	return &kept{n.Store, n.t, v, n.log}
}

// notServing checks that a node does not serve a vhost, and knows who does.
func (n *member) notServing(name string, owner wlog.NodeID) {
	n.t.Helper()
	h, known := n.Home(name)
	if _, here := n.VHost(name); !known || h.Here || here || h.Owner != owner {
		n.t.Errorf("node %d: vhost %s is at home at %+v, known: %v, here: %v, want at %d", n.ID(), name, h, known, here, owner)
	}
}

// wantAlarms checks which alarms a node has; when says since when.
func (n *member) wantAlarms(when string, want ...string) {
	n.t.Helper()
	if got := n.Alarms(); !slices.Equal(got, want) {
		n.t.Errorf("node %d, %s: alarms %v, want %v", n.ID(), when, got, want)
	}
}

// A vhost moves with its shard, with all that is durable in it.
func TestShardMoves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newTeam(t, 2)
		defer m.close()
		one, two := m.nodes[0], m.nodes[1]
		m.registry.in(1, "/")
		if _, known := one.Home("other"); known {
			t.Error("there is a vhost that nobody placed")
		}
		one.notServing("/", 0)
		h, _ := one.Home("/")
		m.own(1, one)
		<-h.Changed
		k := one.serving("/")
		two.notServing("/", 1)
		q := k.declare("q")
		must(t, k.v.Bind(vhost.Binding{Source: "amq.topic", Destination: "q", Key: "k"}, 0))
		k.put(q, "a", "b", "c")
		if got := k.take(q); got != "a" {
			t.Errorf("got %q, want a", got)
		}
		h, _ = one.Home("/")
		must(t, k.cluster.shards()[0].Sync())
		m.own(1, two)
		<-h.Changed
		one.notServing("/", 2)
		k = two.serving("/")
		k.wantMessages("q", "b", "c")
		if n := len(k.v.Bindings()); n != 1 {
			t.Errorf("there are %d bindings, want 1", n)
		}
		k.put(k.queue("q"), "d")
		m.own(1, one)
		one.serving("/").wantMessages("q", "d")
	})
}

func names(s *Store) (all []string) {
	for _, v := range s.VHosts() {
		all = append(all, v.Name())
	}
	return all
}

// The owner of a shard makes and deletes vhosts as the registry says.
func TestPlacement(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newTeam(t, 2)
		defer m.close()
		one, two := m.nodes[0], m.nodes[1]
		m.own(1, one)
		m.own(2, two)
		m.registry.in(1, "a")
		m.registry.in(2, "b")
		m.registry.in(1, "c")
		synctest.Wait()
		if got := names(one.Store); !slices.Equal(got, []string{"a", "c"}) {
			t.Errorf("node 1 has %v", got)
		}
		if got := names(two.Store); !slices.Equal(got, []string{"b"}) {
			t.Errorf("node 2 has %v", got)
		}
		k := one.serving("a")
		last := k.declare("q").Config().Storage.ID
		k.put(k.queue("q"), "old")

		existed, err := one.DeleteVHost("a")
		must(t, err)
		if got := names(one.Store); !existed || !slices.Equal(got, []string{"c"}) {
			t.Errorf("existed: %v, and then node 1 has %v", existed, got)
		}
		created, err := one.AddVHost("a", vhost.Metadata{Description: "new"})
		must(t, err)
		k = one.serving("a")
		if !created || k.v.Metadata().Description != "new" {
			t.Errorf("created: %v, metadata: %+v", created, k.v.Metadata())
		}
		if k.v.Mailbox("q") != nil {
			t.Error("a new vhost has the old one's queue")
		}
		created, err = one.AddVHost("a", vhost.Metadata{Description: "newer"})
		must(t, err)
		if created || k.v.Metadata().Description != "newer" {
			t.Errorf("created: %v, metadata: %+v", created, k.v.Metadata())
		}
		m.own(1, two)
		k = two.serving("a")
		if got := k.v.Metadata().Description; got != "newer" {
			t.Errorf("after a move the description is %q", got)
		}
		if got := k.declare("q").Config().Storage.ID; got <= last {
			t.Errorf("a queue has the number %d; %d was given before", got, last)
		}
		k.wantMessages("q")
	})
}

// What an owner whose copy of the registry is old does not know it does not delete.
func TestOldCopyOfTheRegistry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newTeam(t, 1)
		one := m.nodes[0]
		m.own(1, one)
		m.registry.in(1, "gone")
		old := m.registry.clone()
		two := m.join(func(o *Options) { o.placements = old })
		defer m.close()
		m.registry.in(1, "new")
		synctest.Wait()
		k := one.serving("new")
		k.put(k.declare("q"), "message")
		_, err := one.DeleteVHost("gone")
		must(t, err)
		synctest.Wait()
		m.own(1, two)
		v, here := two.VHost("new")
		if !here {
			t.Fatal("a vhost is gone")
		}
		(&kept{two.Store, t, v, two.log}).wantMessages("q", "message")
		old.change(func() { old.placed, old.given = m.registry.clone().placed, m.registry.clone().given })
		synctest.Wait()
		if got := names(two.Store); !slices.Equal(got, []string{"new"}) {
			t.Errorf("node 2 has %v", got)
		}
	})
}

// A vhost that is deleted, and made again in another shard, while one node owns both.
func TestPlacedElsewhere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newTeam(t, 1)
		defer m.close()
		one := m.nodes[0]
		m.own(1, one)
		m.own(2, one)
		for range 10 {
			for shard := range uint32(2) {
				m.registry.change(func() { delete(m.registry.placed, "v") })
				m.registry.in(shard+1, "v")
				synctest.Wait()
				p, _ := m.registry.Placement("v")
				if k := one.serving("v"); k.v.Placement() != p.Number {
					t.Errorf("placement %d is served, want %d", k.v.Placement(), p.Number)
				}
			}
		}
	})
}

// What cannot be read is not served, and left to others.
func TestTakeFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newTeam(t, 2)
		defer m.close()
		m.registry.in(1, "/")
		one, two := m.nodes[0], m.nodes[1]
		m.storage.SetOwner(2, 2)
		m.storage.SetOwner(1, 2)
		synctest.Wait()
		s := two.cluster.seats[0].shard()
		s.Commit([]byte("nonsense"), nil, nil)
		must(t, s.Sync())
		m.own(1, one)
		one.notServing("/", 1)
		if got := <-one.givenUp; got != 1 {
			t.Errorf("shard %d was given up", got)
		}
		one.wantAlarms("after the failure", "shard 1")
		time.Sleep(time.Minute)
		if n := strings.Count(one.log.String(), "cannot serve"); n != 1 {
			t.Errorf("the shard was taken %d times", n)
		}
	})
}

// A shard that is not served is given up again and again, as other nodes may not have been ready for it. One that no node can serve does
// not go from one to the next without a pause.
func TestGiveUpAgain(t *testing.T) {
	for _, test := range []struct {
		name string
		back bool // the other node gives the shard back at once
	}{{"nobody takes it", false}, {"nobody can serve it", true}} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m := newTeam(t, 2)
				defer m.close()
				m.registry.in(1, "/")
				one, two := m.nodes[0], m.nodes[1]
				m.own(1, two)
				s := two.cluster.seats[0].shard()
				s.Commit([]byte("nonsense"), nil, nil)
				must(t, s.Sync())
				m.own(1, one)
				for range 6 {
					<-one.givenUp
					if test.back {
						m.own(1, two)
						m.own(1, one)
					}
					time.Sleep(giveUpAgain - time.Nanosecond)
					if n := len(one.givenUp); n > 0 {
						t.Errorf("the shard was given up %d times more within %s", n, giveUpAgain)
					}
				}
				m.own(1, two)
				time.Sleep(time.Minute)
				if n := len(one.givenUp); n > 0 {
					t.Errorf("a shard of another node was given up %d times", n)
				}
			})
		})
	}
}

// A log that fails is dropped, and taken again when the node owns the shard anew.
func TestLogFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newTeam(t, 1)
		defer m.close()
		m.registry.in(1, "/")
		one := m.nodes[0]
		m.own(1, one)
		k := one.serving("/")
		q := k.declare("q")
		k.put(q, "kept")
		m.storage.Break(errBroken)
		if err := <-send(q, "lost, or not"); err == nil {
			t.Error("a message was confirmed")
		}
		synctest.Wait()
		one.notServing("/", 1)
		<-one.givenUp
		one.wantAlarms("after the failure", "shard 1")
		m.own(1, one)
		one.serving("/").wantMessages("q", "kept", "lost, or not")
		one.wantAlarms("it owns the shard anew")
	})
}

// What a node could not serve is its alarm until another node owns it.
func TestAlarmOfAShardEndsWithAnotherOwner(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newTeam(t, 2)
		defer m.close()
		m.registry.in(1, "/")
		one, two := m.nodes[0], m.nodes[1]
		m.own(1, one)
		k := one.serving("/")
		q := k.declare("q")
		m.storage.Break(errBroken)
		<-send(q, "lost, or not")
		synctest.Wait()
		m.storage.SetOwner(1, 0)
		synctest.Wait()
		one.wantAlarms("while nobody owns it", "shard 1")
		m.own(1, two)
		two.serving("/")
		one.wantAlarms("another node serves it")
	})
}

// A node that drops a shard has a copy of it still, for which the disk may lack space.
func TestDiskAlarmOutlivesADrop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newTeam(t, 2)
		defer m.close()
		m.registry.in(1, "/")
		one, two := m.nodes[0], m.nodes[1]
		m.own(1, one)
		one.serving("/")
		one.SetSpace(1, &Shortage{Free: 1, Needed: 2})
		m.own(1, two)
		one.notServing("/", 2)
		one.wantAlarms("the disk is short of space", "disk")
		one.SetSpace(1, nil)
		one.wantAlarms("there is space")
	})
}

// Where another node's disk lacks space for its copy of a shard, the owner frees more of the log than it would for itself, also one that takes
// the shard over meanwhile.
func TestLogIsFreedForOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newTeam(t, 2, func(o *Options) { o.Extent = 16 << 10 })
		defer m.close()
		m.registry.in(1, "/")
		one, two := m.nodes[0], m.nodes[1]
		two.SetOthersSpace(1, true)
		two.SetOthersSpace(7, true)              // there is no such shard
		two.SetOthersSpace(math.MaxUint32, true) // nor is this one, where an int has 32 bits
		m.own(1, one)
		k := one.serving("/")
		k.declare("old")
		k.put(k.queue("old"), strings.Repeat("x", 1000)) // nothing behind it is trimmed
		k.fill(k.declare("q"), 200)
		for range 70 {
			k.take(k.queue("q"))
		}
		size := func(n *member) (bytes int64, moves uint64) {
			pass(time.Second)
			st := n.cluster.shards()[0].Stats()
			return st.LogBytes, st.Reclaims
		}
		before, moves := size(one)
		if moves != 0 {
			t.Errorf("where space is not short, records were moved %d times", moves)
		}
		m.own(1, two)
		two.serving("/")
		after, moves := size(two)
		if moves == 0 || after > before*3/4+16<<10 {
			t.Errorf("records were moved %d times, and the log has %d bytes of %d", moves, after, before)
		}
		two.SetOthersSpace(1, false)
		two.serving("/").wantMessages("old", strings.Repeat("x", 1000))
	})
}

// Keeping a log small for another node comes to an end, also where messages are tiny: what a record takes beside what counts as live must not
// seem worth freeing again and again.
func TestFreeingForOthersEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newTeam(t, 1, func(o *Options) { o.Extent = 16 << 10 })
		defer m.close()
		m.registry.in(1, "/")
		one := m.nodes[0]
		m.own(1, one)
		k := one.serving("/")
		q := k.declare("q")
		for range 6000 {
			k.put(q, "")
		}
		for range 2500 {
			k.take(q)
		}
		one.SetOthersSpace(1, true)
		pass(20 * time.Second)
		before := one.cluster.shards()[0].Stats()
		pass(time.Minute)
		after := one.cluster.shards()[0].Stats()
		t.Logf("%+v", after)
		if after.Reclaims != before.Reclaims || after.Commits != before.Commits {
			t.Errorf("moved again and again: %+v, %+v", before, after)
		}
	})
}

var errBroken = context.DeadlineExceeded
