package store

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/curfewmq/curfew/core/auth"
	"github.com/curfewmq/curfew/core/vhost"
	"github.com/curfewmq/curfew/core/wlog"
)

// withRegistry makes nodes have a registry of their own.
func withRegistry(o *Options) {
	o.placements, o.ClusterName = nil, "test"
	o.Members, o.Hashing = testMembers, auth.SHA512
}

// A new cluster has the default vhost, in shard 1. What the registry's owner adds and deletes, the owners of shards do.
func TestClusterBegins(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var owned, passed atomic.Int32
		m := newTeam(t, 3, withRegistry, func(o *Options) {
			o.Owned = func(_ context.Context, r *Registry) error {
				owned.Add(1)
				if r == nil {
					t.Error("there is no registry")
				}
				return nil
			}
			o.Modules = func([]*Module) { passed.Add(1) }
		})
		defer m.close()
		one, two, three := m.nodes[0], m.nodes[1], m.nodes[2]
		m.own(1, two)
		m.own(2, three)
		m.own(0, one)
		time.Sleep(time.Second)
		synctest.Wait()
		two.serving(DefaultVHost)
		one.notServing(DefaultVHost, 2)
		if owned.Load() != 1 || passed.Load() < 3 {
			t.Errorf("the registry was owned %d times, and modules passed %d times", owned.Load(), passed.Load())
		}
		_, err := two.AddVHost("v", vhost.Metadata{})
		if !errors.Is(err, wlog.ErrNotOwner) {
			t.Errorf("a node that does not own the registry: got %v", err)
		}
		created, err := one.AddVHost("v", vhost.Metadata{Description: "d"})
		must(t, err)
		synctest.Wait()
		if k := three.serving("v"); !created || k.v.Metadata().Description != "d" {
			t.Errorf("created: %v, metadata: %+v", created, k.v.Metadata())
		}
		one.notServing("v", 3)
		if _, exists := three.Users().Lookup(auth.Guest); !exists {
			t.Error("there is no guest")
		}
		m.own(0, three)
		time.Sleep(time.Second)
		existed, err := three.DeleteVHost("v")
		must(t, err)
		synctest.Wait() // the others follow the registry behind its owner
		if _, known := one.Home("v"); !existed || known {
			t.Errorf("existed: %v; known afterwards: %v", existed, known)
		}
		if got := names(three.Store); len(got) > 0 {
			t.Errorf("node 3 has %v", got)
		}
		var shards []uint32
		for _, l := range three.Logs() {
			shards = append(shards, l.Shard)
		}
		if want := []uint32{0, 2}; !slices.Equal(shards, want) {
			t.Errorf("node 3 has the logs %v, want %v", shards, want)
		}
		if _, err := three.Snapshot(); err == nil {
			t.Error("a node of a cluster was copied")
		}
	})
}

// A node that has become the owner of the registry deletes a vhost that its copy of that did not have a moment ago. It panicked.
func TestDeleteAVHostThatIsNewHere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newTeam(t, 1)
		defer m.close()
		m.registry.in(1, "v")
		one := m.nodes[0]
		one.cluster.registry = lateRegistry{m.registry}
		if existed, err := one.DeleteVHost("v"); !existed || err != nil {
			t.Errorf("existed: %v, %v", existed, err)
		}
		synctest.Wait()
		if got := names(one.Store); len(got) > 0 {
			t.Errorf("vhosts %v", got)
		}
	})
}

// lateRegistry has not heard of any vhost when it is asked for one.
type lateRegistry struct{ *simpleRegistry }

func (lateRegistry) Placement(string) (p Placement, known bool) { return p, false }
