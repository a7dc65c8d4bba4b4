package crash

import (
	"encoding/json"
	"os"
	"testing"
	"time"

	"github.com/curfewmq/curfew/tests/cluster"
	"github.com/curfewmq/curfew/tests/process"
)

// schedulesVariable sets how many faults the nodes of a cluster are to survive.
const schedulesVariable = "SCHEDULES"

// Nodes of a cluster are killed, stopped and cut off while clients are at work. To them each fault ends a life: what was confirmed is
// there in the next, whoever owns it then, nothing comes early, and nothing comes twice that was settled for certain.
func TestCluster(t *testing.T) {
	if os.Getenv(schedulesVariable) == "" {
		t.Skipf("it takes minutes: make cluster sets %s", schedulesVariable)
	}
	l := newLoop(t, 1)
	l.cycles, l.busy = 2, 300*time.Millisecond
	if n := variable(t, schedulesVariable, 0); n > 0 {
		l.cycles, l.busy = int(n), 700*time.Millisecond
	}
	l.ledger.takeover = 100 * time.Millisecond
	x := &trio{loop: l, Cluster: cluster.New(t, "limits: {heartbeat: 0s, handshake-timeout: 10m}\nmemory: {bodies: 16MiB}", l.dir), faults: map[string]int{}}
	l.brokers, l.end = x, x.fail
	t.Cleanup(func() { t.Logf("faults: %v", x.faults) })
	l.run()
}

// trio is the nodes of a cluster, of which one may have failed.
type trio struct {
	*loop
	*cluster.Cluster
	faults map[string]int // by name
	away   *cluster.Node  // clients do not use it; nil = they use all
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
	x.Owner("/")
	if !process.Poll(x.quiet) {
		x.Fatal("the connections of former clients do not end")
	}
}

// recover has all nodes take part again.
func (x *trio) recover() {
	x.away = nil
	x.Network.Heal()
	for _, n := range x.Nodes {
		n.Continue()
		if !n.Running() {
			n.Launch()
		}
	}
}

// quiet reports whether no node has a connection.
func (x *trio) quiet() bool {
	for _, n := range x.Nodes {
		if n == x.away {
			continue
		}
		var all []any
		if json.Unmarshal(n.Get("connections"), &all) != nil || len(all) > 0 {
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
	x.Network.Heal()
	for _, n := range x.Nodes {
		if n.Running() {
			n.Kill()
		}
	}
}

// stop implements [brokers].
func (x *trio) stop() {
	x.recover()
	for _, n := range x.Nodes {
		n.AwaitReady()
	}
	for _, n := range x.Nodes {
		n.Stop()
	}
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
	if x.away != nil && n != x.away { // one at a time: two would leave no majority
		x.recover()
	}
	x.Logf("life %d: %s, node %d", x.ledger.life, f.name, n.Number)
	f.do(n)
	if f.stays {
		x.away = n
	}
	time.Sleep(time.Duration(x.random.IntN(1500)) * time.Millisecond)
	x.gate.cut()
}

// fault is what may happen to a node.
type fault struct {
	name  string
	owner bool // of the vhost; else to another
	stays bool // clients had better not use the node
	do    func(n *cluster.Node)
}

func (x *trio) possible() []fault {
	isolated := func(do func(from, to int)) func(*cluster.Node) {
		return func(n *cluster.Node) { x.Network.Isolate(n.Number, do) }
	}
	deaf := func(n *cluster.Node) {
		x.Network.Isolate(n.Number, func(from, to int) {
			if to == n.Number {
				x.Network.Hold(from, to)
			}
		})
	}
	mute := func(n *cluster.Node) {
		x.Network.Isolate(n.Number, func(from, to int) {
			if from == n.Number {
				x.Network.Hold(from, to)
			}
		})
	}
	slow := func(*cluster.Node) {
		for i := range x.Nodes {
			for j := range x.Nodes {
				x.Network.Delay(i, j, time.Duration(x.random.IntN(40))*time.Millisecond)
			}
		}
	}
	return []fault{
		{"owner killed", true, true, (*cluster.Node).Kill},
		{"owner killed again", true, true, (*cluster.Node).Kill}, // the most frequent one
		{"follower killed", false, true, (*cluster.Node).Kill},
		{"owner stopped", true, true, (*cluster.Node).Stop},
		{"owner frozen", true, true, (*cluster.Node).Freeze},
		{"follower frozen", false, true, (*cluster.Node).Freeze},
		{"owner cut off", true, true, isolated(x.Network.Cut)},
		{"owner isolated", true, true, isolated(x.Network.Hold)},
		{"owner deaf", true, true, deaf},
		{"owner mute", true, true, mute},
		{"follower isolated", false, true, isolated(x.Network.Hold)},
		{"slow network", false, false, slow},
		{"all killed", true, false, func(*cluster.Node) { x.kill() }},
	}
}
