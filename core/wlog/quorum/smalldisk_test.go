package quorum

import (
	"math/rand/v2"
	"strconv"
	"testing"
	"time"

	"github.com/curfewmq/curfew/core/campaign"
	"github.com/curfewmq/curfew/core/wlog"
)

// Two shards share one small disk, at one node or two. Nodes are killed and cut off, and the disk's space changes. In the end everything is
// trimmed.
func TestCampaignSmallDisk(t *testing.T) {
	from, n := campaign.Number(t, "SIMULATION_SEED", 1), campaign.Size(t, "SIMULATION_SEEDS", 0, 60)/10
	full := 0
	defer func() { t.Logf("%d shards were full", full) }()
	for seed := from; seed < from+n; seed++ {
		t.Run(strconv.FormatUint(seed, 10), func(t *testing.T) {
			inTrio(t, func(c *trio) {
				rng := rand.New(rand.NewPCG(seed, 5))
				small := wlog.NodeID(1 + rng.IntN(3))
				space := 2_100_000 + rng.Int64N(1_000_000)
				taken := int64(0)
				others := func(n int64) {
					sp, _ := c.fs[small].Space()
					free := sp.Free + taken
					taken = min(free, n)
					c.fs[small].SetSpace(free - taken)
				}
				logs := map[uint32]wlog.Log{}
				lasts := map[uint32]wlog.Index{}
				open := func(s uint32) wlog.Log {
					if l := logs[s]; l != nil {
						select {
						case <-l.Lost():
						default:
							return l
						}
					}
					o := c.owner(s)
					l, err := c.nodes[o].Open(c.Context(), s, func(wlog.Index, []byte) error { return nil })
					if err != nil {
						return nil
					}
					logs[s] = l
					return l
				}
				for s := uint32(1); s <= 2; s++ {
					open(s)
				}
				c.fs[small].SetSpace(space)
				for range 500 {
					s := uint32(1 + rng.IntN(2))
					switch r := rng.IntN(100); {
					case r < 80:
						if l := open(s); l != nil {
							size := 16 + rng.IntN(1<<(8+rng.IntN(11)))
							if at, err := l.Append(c.Context(), make([]byte, size), wlog.Purpose(rng.IntN(3))); err == nil {
								lasts[s] = at
							}
						}
					case r < 81 && rng.IntN(6) == 0:
						if l := open(s); l != nil && lasts[s] > 0 {
							_ = l.Trim(lasts[s] - wlog.Index(rng.IntN(5)))
						}
					case r < 85:
						time.Sleep(time.Duration(rng.IntN(3000)) * time.Millisecond)
					case r < 90:
						others(rng.Int64N(space / 2))
					case r < 93:
						c.isolate(small, rng.IntN(2) == 0)
					case r < 95 && seed%2 == 0:
						c.isolate(small, false)
						c.kill(small)
						clear(logs)
						time.Sleep(time.Duration(rng.IntN(3000)) * time.Millisecond)
						c.boot(small, 1, 2, 3)
					}
				}
				for s := uint32(1); s <= 2; s++ {
					if c.full(small, s) {
						full++
					}
				}
				c.isolate(small, false)
				others(0)
				time.Sleep(20 * time.Second)
				for range 5 {
					for s := uint32(1); s <= 2; s++ {
						if l := open(s); l != nil {
							if at, err := l.Append(c.Context(), make([]byte, 10), wlog.Settling); err == nil {
								lasts[s] = at
							} else {
								t.Logf("shard %d, owner %d: %v", s, c.owner(s), err)
							}
							_ = l.Trim(lasts[s] + 1)
						}
					}
					time.Sleep(20 * time.Second)
				}
				for s := uint32(1); s <= 2; s++ {
					for id := wlog.NodeID(1); id <= 3; id++ {
						if last := c.last(s, id); last < uint64(lasts[s]) {
							t.Errorf("shard %d: node %d (small %d of %d, owner %d) has %d of %d", s, id, small, space, c.owner(s), last, lasts[s])
						}
					}
				}
			})
		})
	}
}

// full reports whether a node's disk refuses the writes of a shard's replica.
func (c *trio) full(id wlog.NodeID, shard uint32) bool {
	is := make(chan bool, 1)
	r := c.nodes[id].running(shard)
	if err := r.do(func() { is <- r.group.full }); err != nil {
		return false
	}
	return <-is
}
