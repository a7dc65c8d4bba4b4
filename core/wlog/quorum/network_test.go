package quorum

import (
	"slices"
	"time"

	"go.etcd.io/raft/v3/raftpb"

	"github.com/curfewmq/curfew/core/wlog"
	"github.com/curfewmq/curfew/sdk/hook"
)

// flight is a message on its way.
type flight struct {
	from uint64
	m    *raftpb.Message
}

// deliver delivers or loses one of the oldest messages.
func (c *cluster) deliver() {
	if len(c.net) == 0 {
		return
	}
	i := c.rng.IntN(min(len(c.net), 8))
	f := c.net[i]
	to := c.nodes[f.m.GetTo()]
	if to != nil && c.asleep(to) {
		c.net = slices.Delete(c.net, i, i+1)
		to.waits = append(to.waits, f)
		return
	}
	if c.rng.IntN(50) > 0 { // else the message comes twice
		c.net = slices.Delete(c.net, i, i+1)
	}
	lost := to == nil || !to.up || c.cut[[2]uint64{f.from, f.m.GetTo()}] || c.rng.IntN(40) == 0
	c.report(f, !lost)
	if !lost {
		c.hand(to, f)
		c.after(to)
	}
}

// hand passes a message to its receiver, as the bytes that travel over the network.
func (c *cluster) hand(to *simNode, f flight) {
	m, err := decode(encode(f.m), wlog.NodeID(f.from), wlog.NodeID(to.id))
	if err == nil {
		err = to.g.step(m)
	}
	if err != nil {
		c.fail("node %d: %v", to.id, err)
	}
}

func (c *cluster) report(f flight, ok bool) {
	if from := c.nodes[f.from]; from.up && c.fault != staysSilent {
		from.g.delivered(f.m, ok)
		c.after(from)
	}
}

// isolate cuts a node off, or ends all cuts, after a while.
func (c *cluster) isolate(n *simNode) {
	clear(c.cut)
	c.now += hook.Instant(c.rng.Int64N(int64(10 * time.Second)))
	if c.rng.IntN(2) == 0 {
		return
	}
	for _, id := range c.ids() {
		c.cut[[2]uint64{n.id, id}], c.cut[[2]uint64{id, n.id}] = true, true
	}
}
