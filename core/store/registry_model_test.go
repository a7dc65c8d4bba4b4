package store

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/curfewmq/curfew/core/auth"
	"github.com/curfewmq/curfew/core/vhost"
	"github.com/curfewmq/curfew/core/wlog"
	"github.com/curfewmq/curfew/core/wlog/fake"
)

// says is everything that a registry knows.
func (r *Registry) says() string {
	var b bytes.Buffer
	fmt.Fprintln(&b, r.Cluster(), r.Members())
	all, given := r.Placements(0)
	fmt.Fprintln(&b, all, given)
	for _, a := range r.Users().List() {
		fmt.Fprintln(&b, a.Name, a.Tags, a.Limits)
	}
	fmt.Fprintln(&b, r.Users().Grants())
	g := &Store{globals: r.globals}
	for _, p := range g.GlobalParameters() {
		fmt.Fprintf(&b, "%s=%s\n", p.Name, p.Value)
	}
	for _, m := range r.Modules() {
		fmt.Fprintf(&b, "%s %s %x %d\n", m.Name, m.Options, m.Bytes[:min(len(m.Bytes), 8)], m.Revision)
	}
	return b.String()
}

// registryGame is a cluster whose registry is changed from all nodes while its owner changes.
type registryGame struct {
	t       *testing.T
	storage *fake.Storage
	nodes   []*fake.Node
	options func(*registryOptions)

	mu         sync.Mutex // guards the fields below
	registries []*Registry
	acked      int // changes that were made
	refused    int // because the node was not the owner
	lost       int // of which nobody knows
}

func newRegistryGame(t *testing.T) *registryGame {
	t.Helper()
	g := &registryGame{t: t, storage: fake.New(), options: func(o *registryOptions) { o.Extent = 2 << 10 }}
	for id := range wlog.NodeID(3) {
		n := g.storage.Node(id+1, 0)
		g.nodes = append(g.nodes, n)
		r := registryOn(t, n, g.options)
		go g.watch(r)
		g.registries = append(g.registries, r)
	}
	return g
}

func (g *registryGame) registry(i int) *Registry {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.registries[i]
}

// watch looks at a registry as often as it changes: what nobody ever deletes is always there.
func (g *registryGame) watch(r *Registry) {
	select {
	case <-r.Ready():
	case <-r.ctx.Done():
		return
	}
	for {
		changed := r.Changed()
		_, user := r.Users().Lookup(auth.Guest)
		if members := r.Members(); len(members) != 3 || !user || !r.placed(DefaultVHost) {
			g.t.Errorf("at %d there are the members %v; guest: %t", r.Applied(), members, user)
			return
		}
		select {
		case <-changed:
		case <-r.ctx.Done():
			return
		}
	}
}

// restart ends a registry, and begins it anew.
func (g *registryGame) restart(i int) {
	g.registry(i).close()
	n := registryOn(g.t, g.nodes[i], g.options)
	go g.watch(n)
	g.mu.Lock()
	defer g.mu.Unlock()
	g.registries[i] = n
}

// disturb changes owners, delays, and restarts registries until ctx ends. Then node 1 owns the registry.
func (g *registryGame) disturb(ctx context.Context, r *rand.Rand) {
	for ctx.Err() == nil {
		time.Sleep(time.Duration(r.IntN(400)) * time.Millisecond)
		n := g.nodes[r.IntN(3)]
		switch r.IntN(8) {
		case 0, 1, 2:
			g.storage.SetOwner(registryShard, wlog.NodeID(r.IntN(4)))
		case 3:
			n.SetLag(time.Duration(r.IntN(2000)) * time.Millisecond)
		case 4:
			n.SetLatency(time.Duration(r.IntN(20)) * time.Millisecond)
		case 5:
			n.SetStalled(true)
		case 6:
			for _, n := range g.nodes {
				n.SetStalled(false)
			}
		case 7:
			g.restart(r.IntN(3)) //nolint:contextcheck // it outlives the disturbances
		}
	}
	for _, n := range g.nodes {
		n.SetLag(0)
		n.SetLatency(0)
		n.SetStalled(false)
	}
	g.storage.SetOwner(registryShard, 1)
}

// registryClient changes things that no other changes.
type registryClient struct {
	*registryGame
	name string
	rand *rand.Rand
	// What there is, by kind; a kind that is missing is not known, because nobody knows what became of a change.
	there map[string]bool
}

// change tries one change at a node.
func (c *registryClient) change(i int) {
	r := c.registry(i)
	kind := []string{"vhost", "user", "global", "module"}[c.rand.IntN(4)]
	add := c.rand.IntN(2) == 0
	was, known := c.there[kind]
	found, err := c.try(r, kind, add)
	c.count(err)
	switch {
	case errors.Is(err, wlog.ErrNotOwner): // it is as it was
		return
	case err != nil:
		delete(c.there, kind)
		return
	case known && found != was:
		c.t.Errorf("%s at node %d: adding %s (%t): it was there: %t, want %t", c.name, i+1, kind, add, found, was)
	}
	c.there[kind] = add
	c.look(i, r, kind)
}

func (c *registryClient) count(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case err == nil:
		c.acked++
	case errors.Is(err, wlog.ErrNotOwner):
		c.refused++
	case errors.Is(err, wlog.ErrLost), errors.Is(err, wlog.ErrClosed), errors.Is(err, wlog.ErrNoOwner), errors.Is(err, context.Canceled):
		c.lost++
	default:
		c.t.Errorf("%s: %v", c.name, err)
	}
}

// try changes something, and returns whether it was there before.
func (c *registryClient) try(r *Registry, kind string, add bool) (was bool, err error) {
	var created bool
	s := &Store{globals: r.globals}
	switch {
	case kind == "vhost" && add:
		_, created, err = r.Place(c.name, vhost.Metadata{Description: "of " + c.name})
	case kind == "vhost":
		was, err = r.Unplace(c.name)
	case kind == "user" && add:
		created, err = r.Users().Add(auth.Account{Name: c.name}, []auth.Grant{{VHost: DefaultVHost}})
	case kind == "user":
		was, err = r.Users().Delete(c.name)
	case kind == "global" && add:
		created, err = s.SetGlobalParameter(c.name, fmt.Append(nil, c.rand.IntN(1000)))
	case kind == "global":
		was, err = s.ClearGlobalParameter(c.name)
	case kind == "module" && add:
		return c.there[kind], r.SaveModule(c.name, []byte("{}"), c.module())
	default:
		was, err = r.DeleteModule(c.name)
	}
	if add {
		was = !created
	}
	return was, err
}

func (c *registryClient) find(r *Registry) (all []*Module) {
	for _, m := range r.Modules() {
		if m.Name == c.name {
			all = append(all, m)
		}
	}
	return all
}

func (c *registryClient) sees(r *Registry, kind string) (ok bool) {
	switch kind {
	case "vhost":
		_, ok = r.Placement(c.name)
	case "user":
		if _, ok = r.Users().Lookup(c.name); ok != (r.Users().OpenVHost(c.name, DefaultVHost) == nil) {
			c.t.Errorf("%s: the user is there: %t, and the permission is not", c.name, ok)
		}
	case "global":
		_, ok = (&Store{globals: r.globals}).GlobalParameter(c.name)
	case "module":
		ok = len(c.find(r)) > 0
	}
	return ok
}

// look looks at what was changed: where it was changed, at another node that has followed as far, and at one that asks the owner.
func (c *registryClient) look(i int, r *Registry, kind string) {
	ctx, cancel := context.WithTimeout(c.t.Context(), time.Second)
	defer cancel()
	if got := c.sees(r, kind); got != c.there[kind] {
		c.t.Errorf("%s: %s there: %t, want %t, where that was changed", c.name, kind, got, c.there[kind])
	}
	at := r.Applied()
	if other := c.registry((i + 1) % 3); other.WaitApplied(ctx, at) == nil && c.sees(other, kind) != c.there[kind] {
		c.t.Errorf("%s: %s there: want %t at a node that has followed", c.name, kind, c.there[kind])
	}
	if other := c.registry((i + 2) % 3); other.Fresh(ctx) == nil && c.sees(other, kind) != c.there[kind] {
		c.t.Errorf("%s: %s there: want %t at a node that has asked", c.name, kind, c.there[kind])
	}
}

// Whoever owns the registry when, no change is lost or counts twice, and all copies are equal in the end.
func TestRegistryWhoseOwnerChanges(t *testing.T) {
	for seed := range uint64(4 / fewer) {
		t.Run(strconv.FormatUint(seed, 10), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { playRegistry(t, seed) })
		})
	}
}

func playRegistry(t *testing.T, seed uint64) {
	t.Helper()
	g := newRegistryGame(t)
	ctx, cancel := context.WithTimeout(t.Context(), 60*time.Second)
	defer cancel()
	var playing sync.WaitGroup
	playing.Go(func() { g.disturb(ctx, rand.New(rand.NewPCG(seed, 0))) })
	var clients []*registryClient
	for i := range 5 {
		c := &registryClient{
			registryGame: g, name: fmt.Sprint("c", i), rand: rand.New(rand.NewPCG(seed, uint64(i)+1)),
			there: map[string]bool{"vhost": false, "user": false, "global": false, "module": false},
		}
		clients = append(clients, c)
		playing.Go(func() {
			for ctx.Err() == nil {
				c.change(c.rand.IntN(3)) //nolint:contextcheck // changes take none
				time.Sleep(time.Duration(c.rand.IntN(50)) * time.Millisecond)
			}
		})
	}
	playing.Wait()
	late := registryOn(t, g.storage.Node(4, 0), g.options)
	all := append(g.registries, late)
	for _, r := range all {
		if err := errors.Join(await(r.Ready()), r.Fresh(t.Context())); err != nil {
			t.Error(err)
		}
	}
	for i, r := range all {
		if got, want := r.says(), late.says(); got != want {
			t.Errorf("node %d knows\n%s\nand a new one\n%s", i+1, got, want)
		}
		if err := r.Err(); err != nil {
			t.Error(err)
		}
	}
	for _, c := range clients {
		for kind, want := range c.there {
			if got := c.sees(late, kind); got != want {
				t.Errorf("%s: %s there: %t, want %t", c.name, kind, got, want)
			}
		}
	}
	for _, r := range all {
		r.close()
	}
	t.Logf("%d changes, %d refused, %d lost", g.acked, g.refused, g.lost)
	if g.acked < 100 || g.refused == 0 || g.lost == 0 {
		t.Errorf("%d changes, %d refused, %d lost: the game shows little", g.acked, g.refused, g.lost)
	}
}

func await(c <-chan struct{}) error {
	select {
	case <-c:
		return nil
	case <-time.After(time.Minute):
		return errors.New("the registry is not ready within a minute")
	}
}

// module returns a module, which rarely has more than one piece.
func (c *registryClient) module() []byte {
	size := 1 + c.rand.IntN(5000)
	if c.rand.IntN(20) == 0 {
		size += modulePart
	}
	return bytes.Repeat([]byte{byte(c.rand.IntN(256))}, size)
}
