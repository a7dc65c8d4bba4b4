package queue

import (
	"fmt"
	"testing"

	"github.com/curfewmq/curfew/core/slab"
	"github.com/curfewmq/curfew/sdk/hook"
)

// Whatever was done with a queue, nothing of what it held counts as memory when it is gone.
func TestNothingCountsWhenAQueueIsGone(t *testing.T) {
	for _, budget := range []int64{-1, 0} {
		for _, scan := range []hook.Scan{hook.ScanAnywhere, hook.ScanHeads, hook.ScanLazy} {
			for _, levels := range []int{0, 3} {
				for seed := range uint64(2) {
					t.Run(fmt.Sprintf("budget%d/scan%d/levels%d/seed%d", budget, scan, levels, seed), func(t *testing.T) {
						if budget >= 0 {
							spilling(t, budget)
						}
						before := slab.Used()
						p := newPair(t, scan, levels, seed)
						p.log = &memoryJournal{}
						p.q.cfg.Storage = &Storage{Journal: p.log, ID: seed}
						p.play(300)
						p.q.close()
						for p.q.garbage != nil {
							p.q.freeGarbage()
						}
						if n := slab.Used() - before; n != 0 {
							t.Errorf("%d bytes count", n)
						}
					})
				}
			}
		}
	}
}
