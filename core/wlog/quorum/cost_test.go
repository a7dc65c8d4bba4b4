package quorum

import (
	"testing"
	"time"

	"github.com/curfewmq/curfew/core/wlog"
	"github.com/curfewmq/curfew/core/wlog/seg"
)

// syncs returns how often a node has synced a shard's local log.
func (c *trio) syncs(id wlog.NodeID, shard uint32) int {
	c.Helper()
	st, ok := c.nodes[id].options.Local.(*seg.Engine).Stats(shard)
	if !ok {
		c.Fatalf("node %d: shard %d is not open", id, shard)
	}
	return int(st.Syncs.Count)
}

// An entry costs each node one append to its local log, and the owner one message to each other node. Its commit costs neither, except in
// shards that nodes follow, where it is announced at once.
func TestCostOfAnEntry(t *testing.T) {
	const entries = 100
	for shard, messages := range map[uint32]int{0: 4, 1: 2} {
		inTrio(t, func(c *trio) {
			owner := c.owner(shard)
			l := c.open(shard, owner)
			time.Sleep(time.Second)
			before := map[wlog.NodeID]int{}
			for id := range c.nodes {
				before[id] = c.syncs(id, shard)
			}
			sent := c.sent[shard]
			last := c.write(l, 1, entries)
			time.Sleep(time.Second)
			for id, e := range c.nodes {
				if n := c.syncs(id, shard) - before[id]; n != entries {
					t.Errorf("shard %d: node %d has made its log durable %d times for %d entries", shard, id, n, entries)
				}
				if applied, _ := e.running(shard).progress.read(); applied != uint64(last) {
					t.Errorf("shard %d: node %d has applied %d entries a second later, want %d", shard, id, applied, last)
				}
			}
			if n := c.sent[shard] - sent; n < messages*entries || n > messages*entries+entries/10 { // a heartbeat may cause one more message
				t.Errorf("shard %d: %d messages for %d entries, want %d for each", shard, n, entries, messages)
			}
		})
	}
}
