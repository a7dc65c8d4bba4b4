package queue

import "github.com/curfewmq/curfew/sdk/hook"

// maxOverflow is about how many messages a turn drops because of a limit. A batch has
// fewer messages, so only a new limit leaves some for later turns.
const maxOverflow = 16 * maxBatch

// enforceLimits drops messages from the head while the queue exceeds its limits.
func (q *Queue) enforceLimits(now hook.Instant) {
	if q.contents == nil {
		return
	}
	before := q.ready
	if q.overLimit() {
		q.dropFromHead(now, hook.ReasonMaxLen, func() bool { return q.overLimit() && before-q.ready < maxOverflow })
	}
	q.overflowing = before-q.ready >= maxOverflow && q.overLimit()
}

func (q *Queue) overLimit() bool {
	return q.hooks.Length.Set() && int64(q.ready) > q.hooks.Length.N() ||
		q.hooks.Bytes.Set() && q.readyBytes > q.hooks.Bytes.N()
}

// dropFromHead runs the head hooks for messages that leave from the head for a reason,
// while there are too many.
func (q *Queue) dropFromHead(now hook.Instant, reason hook.Reason, tooMany func() bool) {
	for q.ready > 0 && tooMany() {
		leaving, bytes := q.buf.due[:0], 0
		for len(leaving) < maxBatch && bytes < maxHookBytes && q.ready > 0 && tooMany() {
			r := q.nextRef()
			bytes += q.takeForHooks(q.at(r))
			leaving = append(leaving, r)
		}
		q.buf.due = leaving
		before := q.ready
		q.runHeadHooks(now, leaving, hook.WhyLeaving, reason)
		if q.ready > before { // a plugin kept some: the limit yields
			return
		}
	}
}
