package queue

import (
	"testing"
	"time"

	"github.com/curfewmq/curfew/sdk/hook"
)

// Hooks cannot keep what an ending queue drops: it would never end, and ask them without a pause.
func TestHooksDoNotKeepWhatAnEndingQueueHolds(t *testing.T) {
	for name, seconds := range map[string]uint8{"ready": 0, "held": 200} {
		t.Run(name, func(t *testing.T) {
			h := holdHooks()
			h.OnIdle = func(now hook.Instant, idle time.Duration, v *hook.Verdict) {
				if v.Deadline = now.Add(time.Minute - idle); idle >= time.Minute {
					*v = hook.Verdict{Action: hook.Drop, Reason: hook.ReasonQueueExpired, DeadLetter: true}
				}
			}
			h.OnHead = func(_ hook.Instant, ms []hook.Message, vs []hook.Verdict) { clear(vs) }
			q, host := passive(t, Config{}, h)
			q.enqueue(second, batchOf(heldUntil(1, seconds), heldUntil(2, seconds)))
			for turns := 0; len(host.gone) == 0; turns++ {
				if turns == 10 {
					t.Fatalf("it has not ended: %+v", q.Stats())
				}
				q.tick(max(q.next(), 61*second))
			}
			if host.gone[0].Messages != 2 {
				t.Errorf("it ended: %+v", host.gone)
			}
		})
	}
}

// Hooks cannot release a message before its hold ends: it would pass the limits of a full queue.
func TestHooksReleaseNothingIntoAFullQueue(t *testing.T) {
	h := limited(hook.LimitOf(1), 0, false)
	shown := 0
	h.OnHead = func(_ hook.Instant, _ []hook.Message, vs []hook.Verdict) {
		shown += len(vs)
		clear(vs) // not held, and without a deadline
	}
	h.DeadlineFromReady = false
	q, _ := passive(t, Config{}, h)
	m := heldUntil(2, 100)
	m.Expiration = hook.LimitOf(2000)
	q.enqueue(second, batchOf(heldUntil(1, 0), m))
	for now := second; now <= 110*second; now += second {
		q.tick(now)
		wantStats(t, q, 1, 1, 0)
	}
	if shown != 1 {
		t.Errorf("hooks saw %d messages, want the one that was due", shown)
	}
	q.settleAll(111*second, Ack, takeOne(t, q, 111*second))
	q.tick(112 * second)
	wantStats(t, q, 1, 0, 0)
}
