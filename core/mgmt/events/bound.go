package events

import (
	"time"

	"github.com/curfewmq/curfew/core/mgmt/jsonobj"
	"github.com/curfewmq/curfew/core/telemetry"
	"github.com/curfewmq/curfew/sdk/hook"
)

// bound limits a stream to a number of events of messages and queues per second, for people who watch. Of faster events the latest are
// sent, and the others counted. Events of the broker, such as alarms, are few, and are all sent. An example with 10 a second: after 300
// expiries in half a second, the stream sends one left_out event with the count 295, and the last 5 expiries.
type bound struct {
	every time.Duration // pause between two batches
	most  int           // counted events in a batch
	next  hook.Instant  // time of the next batch

	kept    []telemetry.Event // events for the next batch, in order
	counted int               // kept events of messages and queues
	leftOut uint64            // number of events left out before the first of these
}

// perSecondAtMost is the maximum of per_second: more than people can read, and little for a browser.
const perSecondAtMost = 1000

// boundOf returns a bound of n events a second. Batches are sent twice a second, or less often if n is 1.
func boundOf(n int, now hook.Instant) *bound {
	const often = 2
	most := max(1, n/often)
	every := (time.Second*time.Duration(most) + time.Duration(n) - 1) / time.Duration(n) // rounded up
	return &bound{every: every, most: most, next: now}
}

// counts reports whether the bound applies to events of a kind.
func counts(k telemetry.Kind) bool { return k.OfMessage() || k == telemetry.QueueExpired }

// keep keeps an event; of counted events it keeps at least the latest most ones.
func (b *bound) keep(e *telemetry.Event, most int) {
	b.kept = append(b.kept, *e)
	if !counts(e.Kind) {
		return
	}
	if b.counted++; b.counted >= 2*most {
		b.trim(most) // not for each event, which would be slow
	}
}

// trim leaves out the earliest counted events, until there are most of them.
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
	clear(b.kept[len(stay):]) // releases the objects that the events refer to
	b.kept = stay
}

// keep keeps an event for the next batch. The history that the reader has asked for, which happened before the stream began, is a batch of
// its own.
func (s *Stream) keep(e *telemetry.Event) {
	b := s.bound
	if e.Seq > s.began && len(b.kept) > 0 && b.kept[0].Seq <= s.began {
		s.release()
	}
	b.keep(e, s.mostOf(e.Seq))
}

// mostOf returns how many counted events the batch of an event may have; seq is the event's number.
func (s *Stream) mostOf(seq uint64) int {
	if seq <= s.began {
		return max(s.bound.most, s.Filter.history)
	}
	return s.bound.most
}

// kindLeftOut is the kind of the event that reports how many events the bound has left out.
const kindLeftOut = "left_out"

// release writes the kept events, and before the first counted one the number of events left out.
func (s *Stream) release() {
	b := s.bound
	if len(b.kept) > 0 {
		first := b.kept[0].Seq
		b.trim(s.mostOf(first))
		if s.restarted { // the reader's last event was before the first one
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

// due reports whether it is time for a batch. all means that all events in the ring were read. Events that come together are sent together,
// unless more keep coming for a whole pause.
func (b *bound) due(now hook.Instant, all bool) bool {
	return now >= b.next && (all || now.Sub(b.next) >= b.every)
}

// unsent reports whether events wait for the next batch.
func (s *Stream) unsent() bool {
	return s.bound != nil && (len(s.bound.kept) > 0 || len(s.b) > 0 || s.missed > 0 || s.restarted)
}

// collect returns how long a stream waits for more events after one.
func (s *Stream) collect() time.Duration {
	if s.bound == nil {
		return gather
	}
	now := s.Clock()
	s.bound.next = max(s.bound.next, now.Add(gather))
	return s.bound.next.Sub(now)
}
