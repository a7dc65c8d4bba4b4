package quorum

import (
	"context"
	"testing"
	"time"

	"github.com/curfewmq/curfew/core/wlog"
)

// A node whose clock is wrong does not want to own anything. If it alone has the newest entries, nobody else can: it leads until another has
// got them, without owning the shard, and gives that one the lead. Nobody owned the shard until the clock was set.
func TestReluctantNodeHasTheNewestEntries(t *testing.T) {
	inTrio(t, func(c *trio) {
		l := c.open(0, c.owner(0))
		c.write(l, 1, 5)
		c.isolate(3, true)
		c.write(l, 6, 20)
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
		c.isolate(3, false)
		if id := c.owner(0); id != 3 {
			t.Fatalf("owned by node %d", id)
		}
		n := uint64(0)
		l3, err := c.nodes[3].Open(c.Context(), 0, func(wlog.Index, []byte) error { n++; return nil })
		if err != nil || n != 20 {
			t.Fatalf("%d entries, %v", n, err)
		}
		c.write(l3, 21, 22)
		if owned > 0 {
			t.Error("the node that does not want to has owned a shard")
		}
	})
}
