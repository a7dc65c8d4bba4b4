package crash

import (
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/curfewmq/curfew/core/campaign"
	"github.com/curfewmq/curfew/tests/cluster"
	"github.com/curfewmq/curfew/tests/process"
)

// schedulesVariable sets how many faults the nodes of a cluster are to survive.
const schedulesVariable = "SCHEDULES"

// Nodes of a cluster are killed, stopped and cut off while clients are at work. To them each fault ends a life: what was confirmed is
// there in the next, whoever owns it then, nothing comes early, and nothing comes twice that was settled for certain. While the former
// owner still has clients, others are at work at the new one.
//
// The nodes' clocks differ by up to 900 ms; more would bar a node from serving.
func TestCampaignCluster(t *testing.T) {
	runSchedules(t, 12, func(l *loop, yaml string) *cluster.Cluster {
		c := cluster.New(t, yaml, l.dir)
		for _, n := range c.Nodes {
			n.SetClock(time.Duration(l.random.IntN(901)-450) * time.Millisecond)
		}
		return c
	})
}

// The same with a network that loses packets, and with cables that are pulled.
func TestCampaignClusterInNamespaces(t *testing.T) {
	runSchedules(t, 8, func(l *loop, yaml string) *cluster.Cluster {
		c, err := cluster.NewInNamespaces(t, yaml, l.dir)
		if err != nil {
			t.Skipf("TestCampaignCluster's proxies have to do: %v", err)
		}
		return c
	})
}

// runSchedules plays as many faults as SCHEDULES says, or the short form.
func runSchedules(t *testing.T, short uint64, nodes func(l *loop, yaml string) *cluster.Cluster) {
	t.Helper()
	l := newLoopOf(t, 1, int(campaign.Size(t, schedulesVariable, 0, short)))
	l.ledger.takeover = 100 * time.Millisecond
	x := &trio{loop: l, Cluster: nodes(l, "limits: {heartbeat: 0s, handshake-timeout: 10m}\nmemory: {bodies: 16MiB}"), faults: map[string]int{}}
	x.narrow()
	l.brokers, l.end = x, x.fail
	t.Cleanup(func() { t.Logf("faults: %v; %d entries of logs compared", x.faults, x.compared) })
	l.run()
}

// trio is the nodes of a cluster, of which one may have failed.
type trio struct {
	*loop
	*cluster.Cluster
	faults   map[string]int // by name
	away     *cluster.Node  // clients do not use it; nil = they use all
	second   sync.WaitGroup // clients that came after the fault
	waves    int            // numbers those
	compared int            // entries of the nodes' logs
	disk     string         // the small disk of the last node; "" = it has none
}

// start implements [brokers]. It waits until what was sent before is over: nobody is connected any more.
func (x *trio) start() {
	if x.random.IntN(3) > 0 || x.away == nil {
		x.recover()
	}
	for _, n := range x.Nodes {
		if n != x.away {
			n.AwaitReady()
		}
	}
	x.await(func() bool { return x.Owner("/") != x.away }, "an owner that hears nobody goes on") // it says so itself for a while
	// One that was cut off goes on until it hears of the other: who connects to it gets what is there no more.
	x.await(x.settled, "two nodes go on as owners")
	x.await(x.quiet, "the connections of former clients do not end")
	x.await(x.roomy, "a disk that has space again has an alarm on")
}

// await waits until something is so. It fails at once when a node has ended by itself: nothing gets well by waiting then.
func (x *trio) await(so func() bool, otherwise string) {
	if process.Poll(func() bool { return x.fallen() != nil || so() }) && x.fallen() == nil {
		return
	}
	if n := x.fallen(); n != nil {
		x.Fatalf("node %d has ended by itself: its log is below", n.Number)
	}
	x.Fatal(otherwise)
}

// fallen returns a node that has ended by itself, nil if there is none.
func (x *trio) fallen() *cluster.Node {
	for _, n := range x.Nodes {
		if n.Running() && n.Ended() {
			return n
		}
	}
	return nil
}

// recover has all nodes take part again.
func (x *trio) recover() {
	x.away = nil
	x.Heal()
	x.empty()
	for _, n := range x.Nodes {
		n.Continue()
		if !n.Running() {
			n.Launch()
		}
	}
}

// settled reports whether just one of the nodes that clients use takes itself for the owner.
func (x *trio) settled() bool {
	var all struct {
		Shards []struct {
			VHosts   []string
			Replicas []struct{ Node, Role string }
		}
	}
	if json.Unmarshal(x.any().Get("cluster"), &all) != nil {
		return false
	}
	owners := 0
	for _, s := range all.Shards {
		for _, r := range s.Replicas {
			if slices.Contains(s.VHosts, "/") && r.Role == "owner" && (x.away == nil || r.Node != "curfew@"+x.away.Address) {
				owners++
			}
		}
	}
	return owners == 1
}

// quiet reports whether no node has a connection, or sends messages back to where they died.
func (x *trio) quiet() bool {
	for _, n := range x.Nodes {
		if n == x.away {
			continue
		}
		var all []any
		if json.Unmarshal(n.Get("connections"), &all) != nil || len(all) > 0 {
			return false
		}
		var redrives []struct{ State string }
		if json.Unmarshal(n.Get("redrives"), &redrives) != nil {
			return false
		}
		for _, r := range redrives {
			if r.State == "running" {
				return false
			}
		}
	}
	return true
}

// roomy reports whether no node has an alarm on.
func (x *trio) roomy() bool {
	for _, n := range x.Nodes {
		if n == x.away {
			continue
		}
		if status, _ := n.Process.Health(); status != http.StatusOK {
			return false
		}
	}
	return true
}

// any returns a node that clients use.
func (x *trio) any() *cluster.Node {
	for {
		if n := x.Nodes[x.random.IntN(len(x.Nodes))]; n != x.away {
			return n
		}
	}
}

func (x *trio) url() string        { return x.any().URL() }
func (x *trio) management() string { return x.any().Management }

// kill implements [brokers].
func (x *trio) kill() {
	x.away = nil
	x.Heal()
	for _, n := range x.Nodes {
		if n.Running() {
			n.Kill()
		}
	}
	x.compare()
}

// compare compares the nodes' logs, none of which runs.
func (x *trio) compare() { x.compared += x.Compare() }

// stop implements [brokers].
func (x *trio) stop() {
	x.recover()
	for _, n := range x.Nodes {
		n.AwaitReady()
	}
	for _, n := range x.Nodes {
		n.Stop()
	}
	x.compare()
}

// fail ends a life: something happens to a node, and clients notice it or do not, until all of them leave.
func (x *trio) fail() {
	x.ledger.end()
	all := x.possible()
	f := all[x.random.IntN(len(all))]
	x.faults[f.name]++
	n := x.Owner("/")
	if !f.owner {
		n = x.Nodes[(n.Number+1+x.random.IntN(2))%len(x.Nodes)]
	}
	if x.away != nil && (n != x.away || !n.Running()) { // one at a time: two would leave no majority, and what has ended cannot be frozen
		x.recover()
		for _, n := range x.Nodes {
			n.AwaitReady()
		}
	}
	x.Logf("life %d: %s, node %d", x.ledger.life, f.name, n.Number)
	if f.do(n); f.severs {
		x.ledger.sever(n.URL(), time.Now())
	}
	longest := 1500
	if f.stays {
		x.away = n
		if x.random.IntN(2) == 0 {
			x.wave()
			longest = 3500
		}
	}
	time.Sleep(time.Duration(x.random.IntN(longest)) * time.Millisecond)
	x.gate.cut()
	x.second.Wait()
}

// wave has more clients at work, at the nodes that are left, while those of the former owner are there still.
func (x *trio) wave() {
	x.ledger.takeOver()
	var urls []string
	for _, n := range x.Nodes {
		if n != x.away && n.Running() {
			urls = append(urls, n.URL())
		}
	}
	var attended []*place
	for _, p := range x.layout.places {
		if p.attended {
			attended = append(attended, p)
		}
	}
	p := attended[x.random.IntN(len(attended))]
	for _, do := range []job{
		func(c *client) error { return publisher(c, x.layout) },
		func(c *client) error { return transactor(c, x.layout) },
		func(c *client) error { return consume(c, p, attended) },
	} {
		const attempts = 1 << 10 // more than there are in a life
		x.waves++
		g, first, random := x.gate, 100+x.waves%32*attempts, x.randomFor(99+x.waves)
		x.second.Go(func() {
			for n := range attempts {
				if g.isShut.Load() {
					return
				}
				c, err := dial(x.ledger, g, urls[random.IntN(len(urls))], first+n, random)
				if err != nil {
					time.Sleep(10 * time.Millisecond) // the nodes may not know yet that the owner is gone
					continue
				}
				_ = do(c) // it always ends with an error; the ledger knows what matters
				c.close()
			}
		})
	}
}

// narrow has the last node keep its data on a small disk, if one can be had. An owner with a larger disk whose majority needs the small one
// demands as much free space there as on its own disk: twelve quarters of its segments of 64 MiB, and 256 MiB for each further log that it
// owns, which makes 704 MiB. With less, the alarm would last as long as the third node is away.
func (x *trio) narrow() {
	const size = 1536 // MiB
	disk, err := process.SmallDisk(x.T, size)
	if err != nil {
		x.Logf("no disk gets full: %v", err)
		return
	}
	x.disk, x.ledger.fills = disk, true
	x.Nodes[len(x.Nodes)-1].Data = filepath.Join(disk, "node")
}

func (x *trio) ballast() string { return filepath.Join(x.disk, "ballast") }

// fill fills the small disk, of the owner if the fault is to be the owner's.
func (x *trio) fill(n *cluster.Node) {
	x.whole()
	last := x.Nodes[len(x.Nodes)-1]
	if n == x.Owner("/") && n != last {
		x.insist("cluster", "transfer", "-p", "/", last.Address)
		x.wave()
	}
	f, err := os.Create(x.ballast())
	if err != nil {
		x.Fatal(err)
	}
	defer f.Close()
	for b := make([]byte, 64<<10); err == nil; {
		_, err = f.Write(b)
	}
}

// empty makes room on the small disk again.
func (x *trio) empty() {
	if x.disk != "" {
		_ = os.Remove(x.ballast()) // there may be none
	}
}
