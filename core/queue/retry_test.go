package queue

import (
	"testing"

	"github.com/curfewmq/curfew/sdk/hook"
)

// A consumer with a prefetch of 1 that gave a message back gets it again when it has
// waited, also as the single active one.
func TestReturnedMessagesAreDeliveredAgain(t *testing.T) {
	for _, single := range []bool{false, true} {
		hooks := holdHooks()
		hooks.OnReturn = func(now hook.Instant, _ []hook.Message, vs []hook.Verdict) {
			for i := range vs {
				vs[i].Hold = now + second
			}
		}
		q, _ := passive(t, Config{Profile: &Profile{SingleActive: single}}, hooks)
		c, s := consume(t, q, Consumer{Prefetch: 1}, 100)
		q.enqueue(second, batchOf(heldUntil(1, 0), heldUntil(2, 0)))
		wantIDs(t, "first", s.take(), 1)
		q.settleAll(2*second, Requeue, []PendingAck{{Ref: ref(0, 0), Consumer: c}})
		wantIDs(t, "the next", s.take(), 2)
		q.settleAll(2*second, Ack, []PendingAck{{Ref: ref(0, 1), Consumer: c}})
		q.tick(3*second - 1)
		wantIDs(t, "too early", s.take())
		q.tick(3 * second)
		wantIDs(t, "again", s.take(), 1)
	}
}

// A TTL that ends while a message waits for another delivery ends the wait. The only message of a queue stayed for the whole
// wait, if its deadline was in the sorted run.
func TestAReturnedMessageExpiresWhileItWaits(t *testing.T) {
	hooks := ttlAndExpiration(hook.ScanAnywhere, hook.LimitOf(3000), false)
	hooks.DeadlineFromReady = true
	hooks.OnReturn = func(now hook.Instant, _ []hook.Message, vs []hook.Verdict) {
		for i := range vs {
			vs[i].Hold = now + 3600*second
		}
	}
	q, h := passive(t, Config{}, hooks)
	q.enqueue(second, batchOf(message(1, 10)))
	q.settleAll(2*second, Requeue, takeOne(t, q, second))
	wantStats(t, q, 0, 1, 0)
	if next := q.next(); next != 4*second {
		t.Errorf("the next tick is at %d, want at the deadline", next)
	}
	q.tick(4 * second)
	wantStats(t, q, 0, 0, 0)
	if len(h.dead) != 1 {
		t.Errorf("%d dead letters", len(h.dead))
	}
}
