package events

import (
	"time"

	"github.com/curfewmq/curfew/core/mgmt/jsonobj"
	"github.com/curfewmq/curfew/core/telemetry"
	"github.com/curfewmq/curfew/sdk/hook"
)

// bound keeps a stream to so many events of messages and queues a second, for those who look at them: nobody reads thousands. Of those
// that come faster the latest are sent, and the others counted. Events of the broker, such as alarms, are few, and are all sent.
type bound struct {
	every time.Duration // between two times that events are sent
	most  int           // events that are sent at a time
	next  hook.Instant  // when events are sent again

	kept    []telemetry.Event // wait for that, in order
	counted int               // of those kept: events of messages and queues
	leftOut uint64            // events before the first of these that are not sent
}

// perSecondAtMost is more than anybody reads, and little for a browser.
const perSecondAtMost = 1000

// boundOf returns a bound of n events a second. They are sent twice a second, or as often as there may be one.
func boundOf(n int, now hook.Instant) *bound {
	const often = 2
	most := max(1, n/often)
	every := (time.Second*time.Duration(most) + time.Duration(n) - 1) / time.Duration(n) // rounded up
	return &bound{every: every, most: most, next: now}
}

// counts reports whether there may be many events of this kind.
func counts(k telemetry.Kind) bool { return k.OfMessage() || k == telemetry.QueueExpired }

// keep keeps an event, and of those that are counted the latest.
func (b *bound) keep(e *telemetry.Event, most int) {
	b.kept = append(b.kept, *e)
	if !counts(e.Kind) {
		return
	}
	if b.counted++; b.counted >= 2*most {
		b.trim(most) // not for each event
	}
}

// trim leaves out the earliest of the kept events that are counted, if they are more.
func (b *bound) trim(most int) {
	out := b.counted - most
	if out <= 0 {
		return
	}
	b.counted, b.leftOut = most, b.leftOut+uint64(out)
	stay := b.kept[:0]
	for i := range b.kept {
		e := &b.kept[i]
		if out > 0 && counts(e.Kind) {
			out--
			continue
		}
		stay = append(stay, *e)
	}
	clear(b.kept[len(stay):]) // what they refer to
	b.kept = stay
}

// keep keeps an event for the next time that events are sent. What had happened before the reader came comes together, as far as it is
// the history that the reader wants.
func (s *Stream) keep(e *telemetry.Event) {
	b := s.bound
	if e.Seq > s.began && len(b.kept) > 0 && b.kept[0].Seq <= s.began {
		s.release()
	}
	b.keep(e, s.mostOf(e.Seq))
}

// mostOf returns how many events are sent together with the one of this number.
func (s *Stream) mostOf(seq uint64) int {
	if seq <= s.began {
		return max(s.bound.most, s.Filter.history)
	}
	return s.bound.most
}

// kindLeftOut is the kind of the event that reports those which the bound has left out.
const kindLeftOut = "left_out"

// release writes the kept events, and before the first of them that is counted how many are left out.
func (s *Stream) release() {
	b := s.bound
	if len(b.kept) > 0 {
		first := b.kept[0].Seq
		b.trim(s.mostOf(first))
		if s.restarted { // what the reader has seen was before it
			s.reportMissed(first - 1)
		}
	}
	for i := range b.kept {
		e := &b.kept[i]
		if b.leftOut > 0 && counts(e.Kind) {
			id := e.Seq - 1
			s.write(id, kindLeftOut, object{{"id", id}, {"kind", kindLeftOut}, {"time", jsonobj.Instant(s.Clock())}, {"count", b.leftOut}})
			b.leftOut = 0
		}
		s.write(e.Seq, e.Kind.String(), describe(e))
	}
	clear(b.kept)
	b.kept, b.counted = b.kept[:0], 0
	s.reportMissed(s.after)
}

// due reports whether it is time to send events, all of which were read or not: what comes together is sent together, unless more comes
// all the time.
func (b *bound) due(now hook.Instant, all bool) bool {
	return now >= b.next && (all || now.Sub(b.next) >= b.every)
}

// unsent reports whether something waits until it is time to send.
func (s *Stream) unsent() bool {
	return s.bound != nil && (len(s.bound.kept) > 0 || len(s.b) > 0 || s.missed > 0 || s.restarted)
}

// collect is how long a stream waits for more after an event.
func (s *Stream) collect() time.Duration {
	if s.bound == nil {
		return gather
	}
	now := s.Clock()
	s.bound.next = max(s.bound.next, now.Add(gather))
	return s.bound.next.Sub(now)
}
