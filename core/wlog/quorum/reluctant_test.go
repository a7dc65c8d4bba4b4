package quorum

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"go.etcd.io/raft/v3/raftpb"

	"github.com/curfewmq/curfew/core/wlog"
	"github.com/curfewmq/curfew/sdk/hook"
)

// A node with a wrong clock must own no shard. If it alone has the newest entries, no other node can own the shard either. So it leads
// without owning the shard until another node has received the entries, and then hands over. The shard had no owner until the clock was
// set. The time must continue as it was, although the other node receives the entries an hour later, and never a message of their owner; it
// was an hour late.
func TestReluctantNodeHasTheNewestEntries(t *testing.T) {
	inTrio(t, func(c *trio) {
		l := c.open(0, c.owner(0))
		c.write(l, 1, 5)
		c.isolate(3, true)
		for _, to := range []wlog.NodeID{2, 1} {
			if err := c.nodes[c.owner(0)].Transfer(c.Context(), 0, to); err != nil {
				t.Fatal(err)
			}
			l = c.open(0, c.owner(0))
		}
		c.write(l, 6, 20)
		began, at := time.Now(), c.shardTime(1, l)
		ctx, cancel := context.WithTimeout(c.Context(), 10*time.Second)
		defer cancel()
		if err := c.nodes[2].Leave(ctx); err != nil {
			t.Fatal(err)
		}
		owned := 0
		defer c.nodes[2].Owners(func(o wlog.Ownership) {
			if o.Mine {
				owned++
			}
		})()
		c.kill(1)
		time.Sleep(time.Hour)
		c.isolate(3, false)
		if id := c.owner(0); id != 3 {
			t.Fatalf("owned by node %d", id)
		}
		n := uint64(0)
		l3, err := c.nodes[3].Open(c.Context(), 0, func(wlog.Index, []byte) error { n++; return nil })
		if err != nil || n != 20 {
			t.Fatalf("%d entries, %v", n, err)
		}
		off := time.Duration(c.shardTime(3, l3)-at) - time.Since(began)
		if off > 0 || off < -10*time.Millisecond-time.Since(began)/drift {
			t.Errorf("the time is off by %v", off)
		}
		c.write(l3, 21, 22)
		if owned > 0 {
			t.Error("the node that does not want to has owned a shard")
		}
	})
}

// A node with a wrong clock that alone has the newest entries leads even if no node asks for its vote: a node that was away while it became
// a voter asks only the former voters. It used to wait for such a request (simulator, seed 1021340).
func TestReluctantNodeIsNotAsked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(1, noFault, map[string]int{})
		defer c.close()
		c.settle()
		c.crash(c.owner())
		var left []*simNode
		for _, id := range c.ids() {
			if n := c.nodes[id]; n.up {
				left = append(left, n)
			}
		}
		reluctant := left[0]
		reluctant.barred = true
		for range 20 * 10 { // election timeouts
			c.now += hook.Instant(time.Millisecond)
			c.round(func(f flight) bool { return f.m.GetType() != raftpb.MsgPreVote || f.m.GetTo() != reluctant.id })
		}
		if left[1].g.owner == 0 {
			t.Error("nobody owns the shard")
		}
	})
}
