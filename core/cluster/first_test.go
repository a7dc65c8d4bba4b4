package cluster

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/curfewmq/curfew/core/logtest"
	"github.com/curfewmq/curfew/core/wlog"
	"github.com/curfewmq/curfew/core/wlog/crashfs"
)

// slow delays a machine's connections to others by random times, so that the nodes learn of one another in any order.
func (m *machine) slow(rng *rand.Rand) {
	var mu sync.Mutex // guards rng
	m.change = func(o *Options) {
		dial := o.Dial
		o.Dial = func(ctx context.Context, address string) (net.Conn, error) {
			mu.Lock()
			most := 300 * time.Millisecond
			if rng.IntN(3) == 0 {
				most = 4 * time.Second // a handshake may take a little longer
			}
			pause := time.Duration(rng.Int64N(int64(most)))
			mu.Unlock()
			select {
			case <-time.After(pause):
				return dial(ctx, address)
			case <-ctx.Done():
				return nil, ctx.Err()
			}
		}
	}
}

// firstStart is a game about the first start of a cluster.
type firstStart struct {
	*machines
	rng   *rand.Rand
	of    map[wlog.NodeID]string // node → its cluster, according to its disk
	lost  string                 // the machine that has lost its disk; "" = none
	count map[string]int
}

// check notes each node's cluster. A node's cluster never changes, and two clusters never have a node in common.
func (g *firstStart) check() {
	g.t.Helper()
	for _, m := range g.all {
		id := m.identity()
		if !id.member() {
			continue
		}
		if before := g.of[id.Number]; before != "" && before != id.Cluster {
			g.t.Fatalf("seed %d: node %d was of cluster %s, and is of %s", g.seed, id.Number, before, id.Cluster)
		}
		g.of[id.Number] = id.Cluster
	}
}

// crash cuts a machine's power, and sometimes destroys the disk of one machine.
func (g *firstStart) crash(m *machine) {
	m.losePower()
	g.check() // as the machine finds its disk
	g.count["crashes"]++
	if g.lost == "" && g.rng.IntN(2) == 0 {
		g.lost = m.address
		m.fs = crashfs.New(g.rng.Uint64())
		g.count["lost disks"]++
	}
}

// Nodes that crash at any time of their first start become one cluster. If one of them loses its disk in between, the others have either
// begun a cluster with it, and refuse the node that comes in its place, or begin one with the new disk.
func TestFirstStartWithCrashes(t *testing.T) {
	games := 100 / fewer
	if testing.Short() {
		games = 40 / fewer
	}
	count := map[string]int{}
	for seed := range uint64(games) {
		synctest.Test(t, func(t *testing.T) {
			g := &firstStart{
				machines: newMachines(t, seed), rng: rand.New(rand.NewPCG(seed, 2)), of: map[wlog.NodeID]string{}, count: count,
			}
			if seed%3 == 0 {
				g.all[g.rng.IntN(len(g.all))].bring(seed)
				count["with data"]++
			}
			g.play()
		})
	}
	happens := []string{"crashes", "lost disks", "crashes of members", "began", "waits for replace", "with data"}
	if games == 100 {
		happens = append(happens, "data is everywhere") // in one game of ten
	}
	for _, what := range happens {
		if count[what] == 0 {
			t.Errorf("no %s in %d games", what, games)
		}
	}
	t.Log(count)
}

func (g *firstStart) play() {
	defer func() {
		for _, m := range g.all {
			m.losePower()
		}
	}()
	for _, m := range g.all {
		m.slow(rand.New(rand.NewPCG(g.seed, uint64(m.address[0]))))
		m.boot()
	}
	for range g.rng.IntN(6) {
		time.Sleep(time.Duration(g.rng.Int64N(int64(3 * time.Second))))
		m := g.all[g.rng.IntN(len(g.all))]
		if g.crash(m); g.of[m.identity().Number] != "" {
			g.count["crashes of members"]++
		}
		time.Sleep(time.Duration(g.rng.Int64N(int64(100 * time.Millisecond))))
		m.boot()
	}
	for range 60 {
		if time.Sleep(time.Second); g.settled() {
			break
		}
	}
	g.check()
	g.judge()
	if g.lost == "" && g.all[0].identity().Seed != 0 {
		g.haveData()
	}
}

// settled reports whether all machines belong to a cluster, or wait to be admitted to one.
func (g *firstStart) settled() bool {
	return !slices.ContainsFunc(g.all, func(m *machine) bool {
		id := m.identity()
		return !id.member() && !m.told()
	})
}

// told reports whether the log asks the machine's operator to have it admitted.
func (m *machine) told() bool {
	return strings.Contains(m.log.String(), "run curfew ctl cluster replace "+m.address)
}

// judge checks that all machines whose disks remain belong to one cluster.
func (g *firstStart) judge() {
	g.t.Helper()
	var clusters []string
	for _, m := range g.all {
		id := m.identity()
		if id.member() {
			clusters = append(clusters, id.Cluster)
			continue
		}
		if m.address != g.lost {
			g.t.Fatalf("seed %d: %s is of no cluster\n%s", g.seed, m.address, m.log)
		}
		g.count["waits for replace"]++
		if !m.told() {
			g.t.Fatalf("seed %d: %s is not told what to do\n%s", g.seed, m.address, m.log)
		}
	}
	if slices.Sort(clusters); len(slices.Compact(clusters)) != 1 {
		g.t.Fatalf("seed %d: clusters %v", g.seed, clusters)
	}
	g.count["began"]++
}

// Nodes with different lists log both lists.
func TestListsDiffer(t *testing.T) {
	for _, tc := range []struct {
		name   string
		change func(*Options)
		want   [2]string // in the log of a, and in that of the machine that differs
	}{
		{"nodes", func(o *Options) { o.Nodes = []string{"a:5680", "b:5680", "d:5680"}; o.Advertise = "b:5680" }, [2]string{
			"its cluster.nodes are a:5680,b:5680,d:5680, but this node's are a:5680,b:5680,c:5680",
			"its cluster.nodes are a:5680,b:5680,c:5680, but this node's are a:5680,b:5680,d:5680",
		}},
		{"name", func(o *Options) { o.Name = "other" }, [2]string{
			`its cluster.name is \"other\", but this node's is \"test\"`, `its cluster.name is \"test\", but this node's is \"other\"`,
		}},
		{"shards", func(o *Options) { o.Shards = 9 }, [2]string{
			"its cluster.shards is 9, but this node's is 2", "its cluster.shards is 2, but this node's is 9",
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ms := newMachines(t, 1)
				a, b := ms.all[0], ms.all[1]
				b.change = tc.change
				for _, m := range ms.all {
					m.boot()
				}
				time.Sleep(time.Minute)
				a.wantLog(tc.want[0])
				b.wantLog(tc.want[1])
				for _, m := range ms.all {
					m.cancel()
					<-m.opened
					if id := m.identity(); m.err == nil || id.member() {
						t.Errorf("%s has begun a cluster", m.address)
					}
				}
			})
		})
	}
}

// A node that was given the address of another one logs that, and that its own address leads to itself. It used to log, every two seconds,
// that the address was not in its list, and that a data folder had been copied.
func TestTwoNodesOfOneAddress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ms := newMachines(t, 1)
		b := ms.all[1]
		b.change = func(o *Options) { o.Advertise = "a:5680" }
		b.listens = "b:5680"
		for _, m := range ms.all {
			m.boot()
		}
		time.Sleep(time.Minute)
		b.wantLog("its cluster.advertise is a:5680, the same as this node's")
		b.wantLog("it is this node itself, whose cluster.advertise is a:5680")
		if n := strings.Count(b.log.String(), "stream of a node refused"); n > 10 {
			t.Errorf("%d refusals in a minute:\n%s", n, b.log)
		}
		for _, m := range ms.all {
			m.cancel()
			<-m.opened
		}
	})
}

// A node whose list lacks the waiting nodes sends them nothing; the same holds for a node with another cluster's name. The waiting nodes
// warn of it once. They used to mention it only at level INFO.
func TestWarnsOfANodeThatDoesNotFit(t *testing.T) {
	for _, tc := range []struct {
		name   string
		change func(*Options)
		want   string // in the logs of a and c
	}{
		{"list", func(o *Options) { o.Nodes = []string{"b:5680", "d:5680", "e:5680"} }, "its cluster.nodes are b:5680,d:5680,e:5680, but this node's are a:5680,b:5680,c:5680"},
		{"name", func(o *Options) { o.Nodes, o.Advertise = []string{"d:5680", "e:5680", "f:5680"}, "d:5680" }, "at b:5680 answers the node with cluster.advertise d:5680"},
		{"address", func(o *Options) { o.Advertise = "a:5680" }, "at b:5680 answers the node with cluster.advertise a:5680"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ms := newMachines(t, 1)
				b := ms.all[1]
				b.change = tc.change
				b.listens = "b:5680"
				for _, m := range ms.all {
					m.boot()
				}
				time.Sleep(time.Minute)
				for _, m := range []*machine{ms.all[0], ms.all[2]} {
					m.wantLog(tc.want)
					if n := strings.Count(m.log.String(), "level=WARN msg=\"a node does not match this one\" node=b:5680"); n != 1 {
						t.Errorf("%s: %d warnings in a minute:\n%s", m.address, n, m.log)
					}
				}
				for _, m := range ms.all {
					m.cancel()
					<-m.opened
				}
			})
		})
	}
}

// A node with an empty disk, whose cluster has begun, waits to be admitted. Its log used to say that it waited for the nodes of a new
// cluster.
func TestWaitsToBeLetIn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ms := newMachines(t, 1)
		ms.begin()
		c := ms.all[2]
		c.losePower()
		c.fs = newMachines(t, 9).all[2].fs
		c.log = new(logtest.Log)
		c.boot()
		time.Sleep(time.Minute)
		c.wantLog("waiting to be let into the cluster, which has begun without this node")
		c.wantLog("run curfew ctl cluster replace c:5680 on another node")
		if strings.Contains(c.log.String(), "of a new cluster") {
			t.Errorf("it waits for a new cluster:\n%s", c.log)
		}
		ms.stop()
	})
}

// A node that waits for others logs their names and the reasons why they do not answer. It ends when it is told to.
func TestWaitingForOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ms := newMachines(t, 1)
		a := ms.all[0]
		a.boot()
		ms.all[1].boot()
		time.Sleep(time.Minute)
		a.wantLog("waiting for the other nodes of a new cluster")
		a.wantLog("node c:5680: dial memory: connection refused")
		if n := strings.Count(a.log.String(), "\n"); n > 5 {
			t.Errorf("%d lines in a minute:\n%s", n, a.log)
		}
		for _, m := range ms.all[:2] {
			m.cancel()
			<-m.opened
		}
		if a.err == nil || !strings.Contains(a.err.Error(), "c:5680") {
			t.Errorf("got %v", a.err)
		}
	})
}

// A node and a cluster whose data it does not share refuse each other.
func TestOtherCluster(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		one, two := newMachines(t, 1), newMachines(t, 2)
		for _, ms := range []*machines{one, two} {
			ms.begin()
			ms.stop()
		}
		one.all[1].fs = two.all[1].fs
		one.begin()
		time.Sleep(10 * time.Second)
		want := fmt.Sprintf("it belongs to cluster %s, but this node to %s", two.all[0].identity().Cluster, one.all[0].identity().Cluster)
		one.all[0].wantLog(want)
		for _, st := range one.all[1].node.Status().Links {
			if st.Connected {
				t.Errorf("connected to %s", st.Node.Address)
			}
		}
		one.stop()
	})
}
