package queue

import (
	"sync"

	"github.com/curfewmq/curfew/sdk/hook"
)

// Touch renews the queue's lease, because the queue was used.
func (q *Queue) Touch(now hook.Instant) {
	q.lastUse = now
	q.lease, q.ending = 0, nil
	if q.stopped != nil || !q.hooks.WantsIdle() || q.consumers.count() > 0 {
		return
	}
	v := hook.Verdict{}
	q.hooks.Idle(now, 0, &v)
	q.lease = v.Deadline
}

// Use keeps the lease from running out until done is called, as a consumer does. Any
// goroutine may call it.
func (m *Mailbox) Use() (done func()) {
	m.users.Add(1)
	return sync.OnceFunc(func() { m.users.Add(-1) })
}

// idle asks the hooks about a queue whose lease has run out: they renew the lease, have
// the queue deleted, or have it deleted after its messages were dead-lettered.
func (q *Queue) idle(now hook.Instant) {
	due := q.lease
	q.lease = 0
	if q.consumers.count() > 0 {
		return
	}
	if q.redrive != nil || q.mailbox.users.Load() > 0 {
		q.Touch(now)
		return
	}
	v := hook.Verdict{}
	q.hooks.Idle(now, now.Sub(q.lastUse), &v)
	if v.Action != hook.Drop {
		q.lease = v.Deadline
		if q.lease != 0 && q.lease <= now { // a hook that asks for the past must not spin
			q.lease = now.AddMillis(askAgainMillis)
		}
		return
	}
	if v.DeadLetter && q.contents != nil {
		q.ending = &ending{
			lease: due, before: q.count.DeadLettered[hook.ReasonQueueExpired], dropped: q.count.Dropped[hook.ReasonQueueExpired],
		}
		return
	}
	q.end(now, Deletion{Reason: DeletedExpired, Lease: due})
}

// ending is the progress of a queue whose lease has run out, and which dead-letters its
// messages before it is deleted. If it is used meanwhile, it stays.
type ending struct {
	lease   hook.Instant
	before  uint64 // messages that had been dead-lettered for this reason before
	dropped uint64 // messages that had been dropped for this reason before
}

// advance dead-letters some of the remaining messages, and deletes the queue once all
// have left. e may be nil.
func (e *ending) advance(q *Queue, now hook.Instant) {
	if e == nil {
		return
	}
	if q.consumers.count() > 0 {
		q.ending = nil
		return
	}
	switch {
	case len(q.departing.list) > 0:
	case q.ready > 0:
		before := q.ready
		q.dropFromHead(now, hook.ReasonQueueExpired, func() bool { return before-q.ready < maxBatch })
	case q.held() > 0:
		q.holding.drop(q, now, hook.ReasonQueueExpired)
	}
	if q.ready+q.held()+q.waiting() > 0 {
		return
	}
	q.end(now, Deletion{
		Reason: DeletedExpired, Lease: e.lease, DeadLettered: int(q.count.DeadLettered[hook.ReasonQueueExpired] - e.before),
		Messages: int(q.count.Dropped[hook.ReasonQueueExpired] - e.dropped),
	})
}
