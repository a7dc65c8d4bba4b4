package live

import (
	"math"
	"time"

	"github.com/curfewmq/curfew/core/queue"
	"github.com/curfewmq/curfew/core/vhost"
	"github.com/curfewmq/curfew/sdk/hook"
)

// Entry is a queue as it was after its last change. Its exported members are valid while [Survey.Read] calls a function, which must not
// change them.
type Entry struct {
	VHost   *vhost.VHost
	Mailbox *queue.Mailbox
	Config  *queue.Config
	Stats   queue.Stats
	Oldest  hook.Instant // when the oldest message at the head of a level entered; 0 = none is ready
	In, Out float64      // messages that entered and that were delivered, per second, between the last two collections

	seen    bool         // it was looked at
	gone    bool         // it is deleted
	listed  uint64       // the number of the collection that found it in its vhost
	changes uint32       // of the mailbox, before it was looked at
	looked  hook.Instant // when In and Out were counted last; 0 = never

	// When its messages are due: see queue.DueSurvey.Marks.
	due, held []queue.DueMark
	never     int
	earliest  hook.Instant
	counted   hook.Instant // when that was counted; 0 = never
	again     hook.Instant // when it is counted again without a change; 0 = never
	stale     bool         // it has changed since, and there was no time to count again
}

// flow computes the rates of entering and leaving messages since the last collection, when the counters had the values in was. The first
// call only notes the time.
func (e *Entry) flow(now hook.Instant, was *queue.Counters) {
	is, passed := &e.Stats.Counters, now.Sub(e.looked)
	if e.looked == 0 {
		e.looked = now
		return
	}
	const tenths = 10
	per := func(n uint64) float64 { return math.Round(float64(n)/passed.Seconds()*tenths) / tenths }
	e.In = per(is.Published - min(was.Published, is.Published))
	e.Out = per(is.Delivered + is.DeliveredNoAck - min(was.Delivered+was.DeliveredNoAck, is.Delivered+is.DeliveredNoAck))
	e.looked = now
}

// oldest is how old counts by step may become while nothing changes.
const oldest = time.Minute

// whole reports whether the counts describe the queue as it is now.
func (e *Entry) whole() bool { return !e.stale && e.counted != 0 || e.gone }

// take keeps the counts of a survey.
func (e *Entry) take(s *queue.DueSurvey) {
	e.due, e.held = s.Marks(e.due[:0], e.held[:0])
	e.never, e.earliest, e.counted, e.stale, e.again = s.Never, s.Due.Earliest, s.Now(), false, 0
	for _, marks := range [...][]queue.DueMark{e.due, e.held} {
		if n := len(marks); n > 0 && !s.Exact() {
			e.again = e.counted.Add(min(oldest, max(period, first(marks, e.counted).Sub(e.counted)/2)))
		}
	}
}

// first returns the first instant of marks that is after now, or the last one.
func first(marks []queue.DueMark, now hook.Instant) hook.Instant {
	for _, m := range marks {
		if m.At > now {
			return m.At
		}
	}
	return marks[len(marks)-1].At
}

// addTo adds the queue's deadlines, as seen from now.
func (e *Entry) addTo(c *Counts, now hook.Instant) {
	c.Never += e.never
	c.Held += e.Stats.Held
	for _, m := range e.due {
		c.due.Add(now, m.At, m.N)
	}
	for _, m := range e.held {
		c.held.Add(now, m.At, m.N)
	}
	c.Earliest = earlier(c.Earliest, e.earliest)
	c.NextRelease = earlier(c.NextRelease, e.Stats.NextRelease)
	c.Complete = c.Complete && e.whole()
}

// earlier returns the earlier of two instants; 0 stands for no instant.
func earlier(a, b hook.Instant) hook.Instant {
	if a == 0 || b != 0 && b < a {
		return b
	}
	return a
}
