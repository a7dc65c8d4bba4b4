package ttl

import (
	"time"

	"github.com/curfewmq/curfew/sdk/hook"
)

// lavin is the strategy lavinmq on one queue: deadlines are rounded down to tenths of a second, and a message with TTL 0 waits while the
// queue has a consumer, even one without credit.
type lavin struct {
	queue hook.Queue
	ttl   hook.Limit
}

const (
	tick = hook.Instant(100 * time.Millisecond)

	// zeroTTL is the state of messages with TTL 0.
	zeroTTL = 1
)

func (l *lavin) stamp(_ hook.Instant, ms []hook.Message, vs []hook.Verdict) {
	for i := range ms {
		t := l.ttl.Min(ms[i].Expiration)
		if !t.Set() {
			continue
		}
		d := ms[i].Enqueued.AddMillis(t.N())
		setDeadline(&vs[i], max(d-d%tick, 1)) // 0 would mean no deadline
		if t.N() == 0 {
			vs[i].State = zeroTTL
		}
	}
}

func (l *lavin) expireDue(now hook.Instant, ms []hook.Message, vs []hook.Verdict) {
	for i := range ms {
		m, v := &ms[i], &vs[i]
		if !due(now, m, v) {
			continue
		}
		if m.State == zeroTTL && !m.Redelivered && l.queue.Consumers() > 0 {
			v.Again, v.Deadline = true, now.Add(time.Duration(tick)) // the consumer may leave
			continue
		}
		expire(v)
	}
}

// requeue expires messages with TTL 0, because they have had their delivery.
func (l *lavin) requeue(now hook.Instant, ms []hook.Message, vs []hook.Verdict) {
	for i := range ms {
		if ms[i].State == zeroTTL {
			vs[i].Deadline = now
		}
	}
}
