package cluster

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/curfewmq/curfew/core/wlog"
	"github.com/curfewmq/curfew/core/wlog/quorum"
	"github.com/curfewmq/curfew/core/wlog/seg"
	"github.com/curfewmq/curfew/sdk/hook"
)

// bring puts the folder of a node that brings data on the machine's disk, as [Made] makes it.
func (m *machine) bring(number uint64) {
	m.in.t.Helper()
	id := identity{Format: identityFormat, Number: wlog.NodeID(1000 + number), Started: true, Shards: 2}
	id.Seed = id.Number
	eng, err := seg.New(m.fs, seg.Options{SegmentSize: 64 << 10, Clock: func() hook.Instant { return 1 }})
	if err != nil {
		m.in.t.Fatal(err)
	}
	for shard := range uint32(3) {
		f, err := quorum.Found(m.in.t.Context(), eng, shard, id.Number)
		if err == nil {
			err = f.Append(m.in.t.Context(), 1, fmt.Appendf(nil, "data of shard %d", shard))
		}
		if err == nil {
			err = f.Finish(m.in.t.Context())
		}
		if err != nil {
			m.in.t.Fatal(err)
		}
	}
	if err := errors.Join(eng.Close(), id.save(m.fs)); err != nil {
		m.in.t.Fatal(err)
	}
}

// haveData checks that the data of the first node is there, and that all nodes receive it and get votes.
func (g *firstStart) haveData() {
	g.t.Helper()
	g.await()
	g.haveAll()
	if got := g.entries(1); !slices.Equal(got, []string{"data of shard 1"}) {
		g.t.Fatalf("seed %d: shard 1 has %q", g.seed, got)
	}
	g.count["data is everywhere"]++
}

// haveAll waits until all nodes vote in all shards.
func (ms *machines) haveAll() {
	ms.t.Helper()
	for range 200 {
		missing := 0
		for _, m := range ms.all {
			for _, s := range m.node.Engine().Status() {
				if len(s.Voters) != Size {
					missing++
				}
			}
		}
		if missing == 0 {
			return
		}
		time.Sleep(200 * time.Millisecond)
	}
	ms.t.Fatalf("seed %d: not all nodes vote: %s", ms.seed, ms.all[0].log)
}

// A cluster begins with the data of one node. Each of the others has all of it a little later.
func TestBeginWithData(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ms := newMachines(t, 1)
		a := ms.all[0]
		a.bring(1)
		ms.begin()
		ms.haveAll()
		ms.all[1].wantLog("the cluster begins with the data of another node")
		for shard := range uint32(3) {
			if got, want := ms.entries(shard), fmt.Sprintf("data of shard %d", shard); !slices.Equal(got, []string{want}) {
				t.Errorf("shard %d has %q", shard, got)
			}
		}
		a.losePower()
		if got := ms.entries(1); !slices.Equal(got, []string{"data of shard 1"}) {
			t.Errorf("without the node that brought it there is %q", got)
		}
		a.boot()
		ms.await()
		ms.stop()
	})
}

// A disk that is lost before its node has joined is replaced like any other.
func TestDiskIsLostBeforeItHasJoined(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ms := newMachines(t, 1)
		a, b, c := ms.all[0], ms.all[1], ms.all[2]
		a.bring(1)
		ms.begin()
		c.losePower()
		c.fs = newMachines(t, 9).all[2].fs
		c.boot()
		time.Sleep(30 * time.Second)
		if !c.told() {
			t.Fatalf("it is not told what to do:\n%s", c.log)
		}
		by := a.node.Applicants()
		if len(by) != 1 {
			t.Fatalf("applicants %v", by)
		}
		for _, m := range []*machine{a, b} {
			if err := m.node.Admit(by[0]); err != nil {
				t.Fatal(err)
			}
		}
		ms.await()
		ms.haveAll()
		ms.stop()
	})
}

// Nodes that cannot become one cluster say so on both sides, and no cluster begins.
func TestTwoBringData(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ms := newMachines(t, 1)
		ms.all[0].bring(1)
		ms.all[1].bring(2)
		for _, m := range ms.all {
			m.boot()
		}
		time.Sleep(time.Minute)
		for _, m := range ms.all[:2] {
			m.wantLog("were both made by curfew ctl cluster import or restore, but a cluster can begin with only one")
		}
		for _, m := range ms.all {
			m.cancel()
			<-m.opened
			if id := m.identity(); m.err == nil || id.member() {
				t.Errorf("%s has begun a cluster", m.address)
			}
		}
	})
}

// Data that is brought to a cluster that has begun is refused, and its node cannot be admitted.
func TestDataIsLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ms := newMachines(t, 1)
		ms.begin()
		c := ms.all[2]
		c.losePower()
		c.fs = newMachines(t, 9).all[2].fs
		c.bring(1)
		c.boot()
		time.Sleep(30 * time.Second)
		c.wantLog("to begin")
		if all := ms.all[0].node.Applicants(); len(all) > 0 {
			t.Errorf("%v could be admitted", all)
		}
		c.cancel()
		<-c.opened
		c.cancel = nil
		ms.stop()
	})
}

// The folder determines the number of shards.
func TestDataHasOtherShards(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ms := newMachines(t, 1)
		a := ms.all[0]
		a.bring(1)
		a.change = func(o *Options) { o.Shards = 5 }
		a.boot()
		<-a.opened
		if a.err == nil || !strings.Contains(a.err.Error(), "cluster.shards is 5, but the data folder was made with 2") {
			t.Errorf("got %v", a.err)
		}
		a.cancel()
	})
}

// A folder made for the first node of a cluster belongs to no address until the cluster begins. A refused start used to bind it to an
// address, so that the node was then refused at the intended one.
func TestARefusedStartLeavesTheFolder(t *testing.T) {
	for _, tc := range []struct {
		name   string
		change func(*Options)
	}{
		{"shards", func(o *Options) { o.Shards = 9; o.Advertise = "b:5680" }},
		{"others refuse", func(o *Options) { o.Name = "other"; o.Advertise = "b:5680" }},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ms := newMachines(t, 1)
				a := ms.all[0]
				a.bring(1)
				a.change = tc.change
				ms.all[2].boot()
				a.boot()
				time.Sleep(10 * time.Second)
				for _, m := range []*machine{a, ms.all[2]} {
					m.cancel()
					<-m.opened
				}
				if a.err == nil {
					t.Fatal("the node has started")
				}
				if id := a.identity(); id.Address != "" {
					t.Errorf("the folder is that of the node at %s", id.Address)
				}
				a.change = nil
				ms.begin()
				ms.haveAll()
				ms.stop()
			})
		})
	}
}
