package crash

import (
	"time"

	"github.com/curfewmq/curfew/tests/cluster"
	"github.com/curfewmq/curfew/tests/process"
)

// fault is what may happen to a node.
type fault struct {
	name   string
	owner  bool // of the vhost; else to another
	stays  bool // clients had better not use the node
	severs bool // it has no majority from then on, and runs
	do     func(n *cluster.Node)
}

// possible returns the faults that may happen now. Those that happen most are there several times.
func (x *trio) possible() []fault {
	all := []fault{
		{"owner killed", true, true, false, (*cluster.Node).Kill},
		{"owner killed", true, true, false, (*cluster.Node).Kill},
		{"follower killed", false, true, false, (*cluster.Node).Kill},
		{"owner stopped", true, true, false, (*cluster.Node).Stop},
		{"owner frozen", true, true, false, (*cluster.Node).Freeze},
		{"follower frozen", false, true, false, (*cluster.Node).Freeze},
		{"owner cut off", true, true, true, x.isolated(x.Network.Cut)},
		{"owner isolated", true, true, true, x.isolated(x.Network.Hold)},
		{"owner deaf", true, true, true, x.deaf},
		{"owner mute", true, true, true, x.mute},
		{"follower isolated", false, true, true, x.isolated(x.Network.Hold)},
		{"follower deaf", false, true, true, x.deaf},
		{"slow network", false, false, false, x.slow},
		{"all killed", true, false, false, func(*cluster.Node) { x.kill() }},
		{"transfer", true, false, false, x.transfer},
		{"rolling restart", false, false, false, x.roll},
		{"disk lost", true, false, false, x.replace},
		{"disk lost", false, false, false, x.replace},
	}
	if x.disk != "" { // of one node, which may own the vhost
		all = append(all, fault{"disk full", false, false, false, x.fill}, fault{"disk of the owner full", true, false, false, x.fill})
	}
	if x.Pluggable() {
		all = append(all, fault{"owner unplugged", true, true, true, (*cluster.Node).Unplug}, fault{"follower unplugged", false, true, true, (*cluster.Node).Unplug})
	}
	return all
}

func (x *trio) isolated(do func(from, to int)) func(*cluster.Node) {
	return func(n *cluster.Node) { x.Isolate(n.Number, do) }
}

// deaf has nothing reach a node.
func (x *trio) deaf(n *cluster.Node) {
	x.Isolate(n.Number, func(from, to int) {
		if to == n.Number {
			x.Network.Hold(from, to)
		}
	})
}

// mute has nothing come from a node.
func (x *trio) mute(n *cluster.Node) {
	x.Isolate(n.Number, func(from, to int) {
		if from == n.Number {
			x.Network.Hold(from, to)
		}
	})
}

func (x *trio) slow(*cluster.Node) {
	for i := range x.Nodes {
		for j := range x.Nodes {
			x.Network.Delay(i, j, time.Duration(x.random.IntN(40))*time.Millisecond)
		}
	}
}

// transfer hands the vhost over to another node, as an operator does.
func (x *trio) transfer(n *cluster.Node) {
	x.whole()
	x.insist("cluster", "transfer", "-p", "/", x.Nodes[(n.Number+1+x.random.IntN(2))%len(x.Nodes)].Address)
	x.wave()
}

// roll restarts one node after the other, as an operator does.
func (x *trio) roll(*cluster.Node) {
	x.whole()
	for _, n := range x.Nodes {
		n.Stop()
		n.Launch()
		n.AwaitReady()
		x.wave()
	}
}

// replace loses a node's disk, and gives its seat to one with an empty disk.
func (x *trio) replace(n *cluster.Node) {
	x.whole()
	n.Kill()
	n.Empty()
	n.Launch()
	x.away = n
	x.wave()
	n.Await("waiting to be let into the cluster, which has begun without this node")
	x.insist("cluster", "replace", n.Address)
	n.AwaitReady()
	x.away = nil
}

// insist repeats a command of curfew ctl: it is refused until there are the owners that it needs, and the nodes that have failed before are
// well.
func (x *trio) insist(args ...string) {
	var err error
	if !process.Poll(func() bool {
		err = x.Ctl(x.any(), args...)
		return err == nil
	}) {
		x.Fatal(err)
	}
}

// whole has all nodes take part: what an operator does waits for that.
func (x *trio) whole() {
	if x.away == nil {
		return
	}
	x.recover()
	for _, n := range x.Nodes {
		n.AwaitReady()
	}
}
