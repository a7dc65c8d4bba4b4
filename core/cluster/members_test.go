package cluster

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/curfewmq/curfew/core/peer"
	"github.com/curfewmq/curfew/core/wlog"
	"github.com/curfewmq/curfew/core/wlog/crashfs"
	"github.com/curfewmq/curfew/core/wlog/quorum"
	"github.com/curfewmq/curfew/sdk/hook"
)

// A node that was admitted in place of a node with a lost disk gets the shards' logs and votes, whichever nodes own them. Afterwards
// another node may be lost. The former node does not come back.
func TestReplacedNode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ms := newMachines(t, 7)
		ms.begin()
		for shard := range uint32(3) {
			_, l := ms.owner(shard)
			appendTo(t, l, "x")
			if err := l.Close(); err != nil {
				t.Error(err)
			}
		}
		a, b, c := ms.all[0], ms.all[1], ms.all[2]
		b.losePower()
		former, number := b.fs, b.identity().Number
		b.fs = crashfs.New(99)
		b.boot()
		time.Sleep(10 * time.Second)
		admitted := peer.Node{ID: b.identity().Number, Address: b.address}
		for _, m := range []*machine{a, c} {
			if err := m.node.Admit(admitted); err != nil {
				t.Fatal(err)
			}
		}
		ms.await()
		time.Sleep(time.Minute)
		for _, m := range ms.all {
			for _, s := range m.node.Engine().Status() {
				if want := numbersOf(m.node.Members()); !slices.Equal(s.Voters, want) {
					t.Errorf("%s, shard %d: voters %d, want %d", m.address, s.Shard, s.Voters, want)
				}
				if s.Role == quorum.Owner {
					if err := m.node.Replace(t.Context(), s.Shard, admitted); err != nil {
						t.Errorf("shard %d: %v, although it is done", s.Shard, err)
					}
				} else if err := m.node.Replace(t.Context(), s.Shard, admitted); !errors.Is(err, wlog.ErrNotOwner) {
					t.Errorf("shard %d at another node: %v", s.Shard, err)
				}
			}
		}
		if err := a.node.Replace(t.Context(), 1, peer.Node{ID: 17, Address: b.address}); err == nil {
			t.Error("a node that was not admitted replaces another one")
		}
		a.losePower()
		for shard := range uint32(3) {
			if got := ms.entries(shard); !slices.Equal(got, []string{"x"}) {
				t.Errorf("shard %d: %q", shard, got)
			}
		}
		b.losePower()
		a.boot()
		b.fs = former
		b.boot()
		<-b.opened
		time.Sleep(10 * time.Second)
		for _, m := range []*machine{b, c} { // the logs of both sides say what happened, and what to do
			m.wantLog(fmt.Sprintf("node %d at b:5680 was replaced by node %d, and is shut out for good: stop it, and never start it with its data folder again", number, admitted.ID))
		}
		for _, st := range c.node.Status().Links {
			if st.Node.Address == b.address && st.Connected {
				t.Error("a node that was replaced is connected")
			}
		}
		ms.stop()
	})
}

// A node that missed a replacement learns of it from the registry, and remembers it. Until then it and the new node used to be strangers,
// so that the loss of the third node stopped the cluster.
func TestMissedReplacement(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ms := newMachines(t, 11)
		hungUp := make(chan wlog.NodeID, 10)
		a, b, c := ms.all[0], ms.all[1], ms.all[2]
		c.change = func(o *Options) {
			o.Replaced = func(former wlog.NodeID) { hungUp <- former }
		}
		ms.begin()
		for shard := range uint32(3) {
			m, l := ms.owner(shard)
			appendTo(t, l, "x")
			if err := l.Close(); err != nil {
				t.Error(err)
			}
			if shard == Registry && m != a {
				if err := m.node.Engine().Transfer(t.Context(), shard, a.identity().Number); err != nil {
					t.Fatal(err)
				}
			}
		}
		former := b.identity().Number
		b.losePower()
		b.fs = crashfs.New(98)
		b.boot()
		time.Sleep(10 * time.Second)
		admitted := peer.Node{ID: b.identity().Number, Address: b.address}
		if err := a.node.Admit(admitted); err != nil {
			t.Fatal(err)
		}
		ms.await()
		time.Sleep(time.Minute)
		if !slices.Contains(c.node.Members(), admitted) || len(hungUp) != 1 || <-hungUp != former {
			t.Errorf("the third node knows %v, and has not ended what node %d had begun", c.node.Members(), former)
		}
		for _, s := range c.node.Engine().Status() {
			if want := numbersOf(c.node.Members()); !slices.Equal(s.Voters, want) {
				t.Errorf("shard %d: voters %d, want %d", s.Shard, s.Voters, want)
			}
		}
		c.stop()
		c.boot()
		ms.await()
		if !slices.Contains(c.node.Members(), admitted) {
			t.Errorf("after another start the third node knows %v", c.node.Members())
		}
		time.Sleep(5 * time.Second)
		a.losePower()
		for shard := range uint32(3) {
			if got := ms.entries(shard); !slices.Equal(got, []string{"x"}) {
				t.Errorf("shard %d: %q", shard, got)
			}
		}
		ms.stop()
	})
}

// A registry that does not know a replacement yet does not undo it.
func TestRegistryBehindAReplacement(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ms := newMachines(t, 12)
		ms.begin()
		time.Sleep(5 * time.Second)
		a, b := ms.all[0], ms.all[1]
		owner := ms.roles()[Registry]
		by := peer.Node{ID: 17, Address: b.address}
		if owner == a.address { // a, as the registry's owner, could write the replacement there
			if err := a.node.Engine().Transfer(t.Context(), Registry, ms.all[2].identity().Number); err != nil {
				t.Fatal(err)
			}
		}
		if err := a.node.Admit(by); err != nil {
			t.Fatal(err)
		}
		time.Sleep(10 * time.Second)
		if !slices.Contains(a.node.Members(), by) {
			t.Errorf("it knows %v", a.node.Members())
		}
		a.wantLog("run curfew ctl cluster replace b:5680 again")
		ms.stop()
	})
}

// A node that leaves has transferred all of its shards, and owns none afterwards.
func TestLeave(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ms := newMachines(t, 8)
		ms.begin()
		time.Sleep(5 * time.Second)
		a := ms.all[0]
		if got := ms.roles(); got[0] == got[1] || got[1] == got[2] || got[0] == got[2] {
			t.Errorf("the shards are not spread over the nodes: %v", got)
		}
		a.node.Leave(t.Context())
		for range 20 {
			time.Sleep(time.Second)
			got := ms.roles()
			for shard := range uint32(3) {
				if got[shard] == "" || got[shard] == a.address {
					t.Fatalf("after a left: %v", got)
				}
			}
		}
		ms.stop()
	})
}

// Nodes that are all stopped at the same time end soon. They used to wait for one another for up to ten seconds.
func TestAllAreStopped(t *testing.T) {
	for _, apart := range []time.Duration{0, time.Millisecond, 50 * time.Millisecond, 500 * time.Millisecond} {
		t.Run(apart.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ms := newMachines(t, 10)
				ms.begin()
				time.Sleep(5 * time.Second)
				var all sync.WaitGroup
				for i, m := range ms.all {
					all.Go(func() {
						time.Sleep(time.Duration(i) * apart)
						began := time.Now()
						m.node.Leave(t.Context())
						m.stop()
						if d := time.Since(began); d > time.Second {
							t.Errorf("%s ended after %v", m.address, d)
						}
					})
				}
				all.Wait()
			})
		})
	}
}

// A node with a wrong clock owns no shard until the clock is right.
func TestClockBarsOwnership(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ms := newMachines(t, 9)
		var ahead atomic.Int64 // nanoseconds
		a := ms.all[0]
		var mu sync.Mutex // guards levels
		var levels []peer.SkewLevel
		a.change = func(o *Options) {
			clock := o.Clock
			o.Clock = func() hook.Instant { return clock() + hook.Instant(ahead.Load()) }
			o.Skewed = func(s peer.Skew) {
				mu.Lock()
				defer mu.Unlock()
				levels = append(levels, s.Level)
			}
		}
		ms.begin()
		time.Sleep(10 * time.Second)
		for round, tc := range []struct {
			ahead time.Duration
			owns  bool
		}{
			{2 * time.Second, false},
			{-2 * time.Second, false},
			{300 * time.Millisecond, true},
			{0, true},
		} {
			ahead.Store(int64(tc.ahead))
			time.Sleep(20 * time.Second)
			if tc.owns {
				for shard, owner := range ms.roles() {
					for _, m := range ms.all {
						if m.address == owner && m != a {
							if err := m.node.Engine().Transfer(t.Context(), shard, a.identity().Number); err != nil {
								t.Errorf("round %d: %v", round, err)
							}
						}
					}
				}
			}
			got := ms.roles()
			for shard := range uint32(3) {
				if owns := got[shard] == a.address; got[shard] == "" || owns != tc.owns {
					t.Errorf("%v ahead: shard %d is owned by %q", tc.ahead, shard, got[shard])
				}
			}
		}
		ms.stop()
		if n := len(levels); n < 3 || levels[0] != peer.Barred || levels[n-2] != peer.Warned || levels[n-1] != peer.Fine {
			t.Errorf("levels %v, want barred first, and warned, then fine at last", levels)
		}
	})
}
