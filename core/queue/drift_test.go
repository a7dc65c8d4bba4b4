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

// What lists held messages lies in slabs, which a queue gives back whatever becomes of it.
func TestNothingCountsWhenHeldMessagesAreGone(t *testing.T) {
	const n = 20_000
	for _, end := range []struct {
		name string
		do   func(q *Queue)
	}{
		{"deleted", func(q *Queue) { _, _ = q.Delete(false, false) }},
		{"stopped", func(q *Queue) { q.stop(errUnreadable) }},
		{"released and purged", func(q *Queue) {
			for q.held() > 0 {
				q.tick(1000 * second)
			}
			q.Purge(1000 * second)
			q.endTurn(1000 * second)
			q.endTurn(2000 * second)
		}},
	} {
		before := slab.Used()
		q, _ := passive(t, Config{}, holdHooks())
		for i := range uint64(n / 100) {
			b := NewBatch()
			for k := range uint64(100) {
				b.Messages = append(b.Messages, heldUntil(i, uint8(2+(i*7+k)%200)))
			}
			q.enqueue(second, b)
		}
		if q.held() != n {
			t.Fatalf("%d messages are held, want %d", q.held(), n)
		}
		end.do(q)
		for q.garbage != nil {
			q.freeGarbage()
		}
		if got := slab.Used() - before; got != 0 {
			t.Errorf("%s: %d bytes count", end.name, got)
		}
	}
}
