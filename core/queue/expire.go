package queue

import "github.com/curfewmq/curfew/sdk/hook"

// askAgainMillis delays the next hook call for a due message that its hooks kept, perhaps
// because a plugin crashed. While the hooks keep every message the delay doubles, up to
// askAgainMost, because perhaps no plugin acts on deadlines any more. Example: a message
// that was due at 0 s is asked about again after 1, 3, 7, 15, 31 and 63 s, then every 64
// s.
const (
	askAgainMillis = 1000
	askAgainMost   = 64 * askAgainMillis
)

// askBackoff is the delay before the next hook call for due messages that their hooks
// kept.
type askBackoff struct {
	millis int64        // until a message is asked about again; 0 means that no message was kept lately
	until  hook.Instant // when millis doubles
}

// askAgain returns when the hooks are asked again about a message that they kept.
func (w *askBackoff) askAgain(now hook.Instant) hook.Instant {
	if w.millis == 0 || now >= w.until {
		w.millis = min(max(2*w.millis, askAgainMillis), askAgainMost)
		w.until = now.AddMillis(w.millis)
	}
	return now.AddMillis(w.millis)
}

// expireDue runs the head hooks for due messages. Discards that are due to be sent again
// go first, because they died first.
func (q *Queue) expireDue(now hook.Instant) {
	if len(q.departing.list) == 0 && !q.discards.sendDue(q, now) {
		q.expireReady(now)
	}
}

// maxHookBytes is about how many bytes of messages are shown to the hooks at once.
const maxHookBytes = 4 << 20

// expireReady runs the head hooks for at most maxBatch due messages.
func (q *Queue) expireReady(now hook.Instant) {
	due, bytes := q.buf.due[:0], 0
	for len(due) < maxBatch && bytes < maxHookBytes && q.ready+q.held() > 0 {
		r, at, ok := q.earliest()
		if !ok || now < at {
			break
		}
		bytes += q.takeForHooks(q.at(r))
		due = append(due, r)
	}
	q.buf.due = due
	if len(due) > 0 {
		q.runHeadHooks(now, due, hook.WhyDue, hook.ReasonNone)
	}
}

// takeForHooks takes a message that its hooks are about to see, and returns the size of
// its record.
func (c *contents) takeForHooks(h handle) (bytes int) {
	s := h.slot()
	if s.is(stateHeld) {
		c.showHeld(h)
		return int(s.length)
	}
	c.take(h, len(c.store.read(*s).body))
	return int(s.length)
}
