package queue

import (
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/curfewmq/curfew/sdk/hook"
)

// messages_persistent and messages_ram were not there at all. Whatever happens to messages, spilled ones included, they are what a
// count of all messages says.
func TestPersistentMessagesAreCounted(t *testing.T) {
	for seed := range uint64(4) {
		t.Run(strconv.FormatUint(seed, 10), func(t *testing.T) {
			spilling(t, 1<<20)
			cfg := Config{Durable: seed != 3, Profile: &Profile{Kind: Classic, Levels: int(seed % 3)}}
			q, _ := passive(t, cfg, ttlHooks(hook.ScanAnywhere, &hook.Target{}))
			playKinds(t, q, rand.New(rand.NewPCG(seed, 17)))
			if !cfg.Durable && q.Stats().Persistent != 0 {
				t.Error("a queue that is not durable has persistent messages")
			}
			q.close()
			for q.garbage != nil {
				q.freeGarbage()
			}
		})
	}
}

func playKinds(t *testing.T, q *Queue, rng *rand.Rand) {
	t.Helper()
	var taken []PendingAck
	id, seen, now := uint64(0), 0, second
	for range 200 {
		switch rng.IntN(10) {
		case 0, 1, 2, 3:
			for range rng.IntN(300) {
				m := patterned(id, 1+rng.IntN(8<<10))
				id++
				m.Flags, m.Priority = Flags(rng.IntN(2))*Persistent, uint8(rng.IntN(4))
				if rng.IntN(4) == 0 {
					m.Expiration = hook.LimitOf(int64(rng.IntN(500)))
				}
				q.enqueue(now, batchOf(m))
			}
		case 4, 5, 6:
			for range rng.IntN(300) {
				q.Get(now, nil2(), func(d Delivery, _ int) { taken = append(taken, PendingAck{Ref: d.Ref}) })
			}
		case 7:
			n := rng.IntN(len(taken) + 1)
			q.settleAll(now, []SettleKind{Ack, Reject, Requeue, Return}[rng.IntN(4)], taken[:n])
			taken = slices.Clone(taken[n:])
		case 8:
			if rng.IntN(6) == 0 {
				q.Purge(now)
			}
		case 9:
			now += hook.Instant(rng.IntN(200)) * hook.Instant(time.Millisecond)
		}
		q.tick(now)
		checkSums(t, q)
		if s := q.Stats(); s.InMemory < s.Ready+s.Unacked {
			seen++
		}
	}
	if seen == 0 {
		t.Error("nothing was spilled: the test does not see what it is for")
	}
}
