package queue

import (
	"fmt"
	"testing"
	"time"

	"github.com/curfewmq/curfew/core/telemetry"
	"github.com/curfewmq/curfew/sdk/hook"
)

// That a message expires late is the doing of a consumer that had it past its deadline, and the broker's if it came back before that.
func TestWhoLetMessagesExpireLate(t *testing.T) {
	for _, scan := range []hook.Scan{hook.ScanAnywhere, hook.ScanHeads, hook.ScanTop, hook.ScanLazy} {
		for _, target := range []*hook.Target{nil, {Exchange: "dead"}} {
			t.Run(fmt.Sprintf("scan%d/%v", scan, target != nil), func(t *testing.T) {
				recorder := telemetry.New(telemetry.Options{Events: 8})
				q, _ := passive(t, Config{}, ttlHooks(scan, target))
				q.host = recording{recorder}
				q.enqueue(second, batchOf(expiring(1, 2*time.Second), expiring(2, 2*time.Second), expiring(3, 2*time.Second)))
				kept, back := takeOne(t, q, second), takeOne(t, q, second)
				q.settleAll(2*second, Requeue, back)
				q.tick(5 * second) // two seconds late
				q.Get(5*second, &Consumer{Sink: &sink{}}, func(Delivery, int) { t.Error("what is past its deadline is delivered") })
				q.settleAll(7*second, Requeue, kept)
				q.tick(8 * second)
				if d := recorder.Lateness().Read()["test"]; d.Count != 2 || d.Sum != 4 {
					t.Errorf("the broker let %d messages expire late, %v s in all; want 2, 4 s", d.Count, d.Sum)
				}
				if d := recorder.Lateness().Overstays()["test"]; d.Count != 1 || d.Sum != 4 {
					t.Errorf("consumers had %d messages past their deadlines, %v s in all; want 1, 4 s", d.Count, d.Sum)
				}
				if len(q.overstays) != 0 {
					t.Errorf("the queue remembers %v, which have left", q.overstays)
				}
			})
		}
	}
}

// A message that its hooks keep, and give another deadline, is late by the broker when that passes.
func TestAnOverstayEndsWithTheDeadline(t *testing.T) {
	h := ttlHooks(hook.ScanAnywhere, nil)
	expire := h.OnHead
	h.OnHead = func(now hook.Instant, ms []hook.Message, vs []hook.Verdict) {
		if now < 10*second {
			vs[0].Deadline = 12 * second
			return
		}
		expire(now, ms, vs)
	}
	recorder := telemetry.New(telemetry.Options{Events: 8})
	q, _ := passive(t, Config{}, h)
	q.host = recording{recorder}
	q.enqueue(second, batchOf(expiring(1, time.Second)))
	q.settleAll(5*second, Requeue, takeOne(t, q, second))
	q.tick(5 * second)
	q.tick(13 * second)
	if d := recorder.Lateness().Read()["test"]; d.Count != 1 || d.Sum != 1 || len(recorder.Lateness().Overstays()) != 0 {
		t.Errorf("got %d messages, %v s late in all, and %v; want 1, 1 s", d.Count, d.Sum, recorder.Lateness().Overstays())
	}
}
