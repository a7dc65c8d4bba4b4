// Package telemetry is told what the broker does, and keeps it for whoever wants to see it: events in a ring that forgets,
// distributions, and spans for OpenTelemetry. It never makes anybody wait: what cannot be kept is counted and dropped. It
// starts no goroutine.
//
// Queues, vhosts and sessions call a [Recorder], from queues' turns and connections' readers. They must not look at what it
// costs: a call with nothing to tell returns at once, and so does every call of a Recorder that is nil.
package telemetry

import (
	"time"

	"github.com/curfewmq/curfew/sdk/hook"
)

// Recorder is what the broker tells things to. Any goroutine may use it; nil is one that nobody listens to.
type Recorder struct {
	clock  func() hook.Instant
	events *Ring
	spans  *Spans // nil: traces are off

	late Lateness
}

// Options are what a Recorder is made of.
type Options struct {
	Clock  func() hook.Instant
	Events int    // how many messages' the ring remembers; 0 = there is no ring
	Spans  *Spans // nil: traces are off
}

// New returns a Recorder.
func New(o Options) *Recorder {
	var begin uint64
	if o.Clock != nil {
		begin = uint64(o.Clock()) / uint64(time.Microsecond)
	}
	return &Recorder{clock: o.Clock, events: NewRing(o.Events, begin), spans: o.Spans}
}

// Events is the ring that events are kept in, nil if nobody listens.
func (r *Recorder) Events() *Ring {
	if r == nil {
		return nil
	}
	return r.events
}

// Spans is where spans go, nil while traces are off: whoever would have to work for a span asks first.
func (r *Recorder) Spans() *Spans {
	if r == nil {
		return nil
	}
	return r.spans
}

// Lateness is how late messages left whose time was up.
func (r *Recorder) Lateness() *Lateness {
	if r == nil {
		return nil
	}
	return &r.late
}

// QueueRef is a queue.
type QueueRef struct{ VHost, Queue, Strategy string }

// Late returns how long after its deadline it was decided that the message leaves. It reports false if that is not known,
// or there was no deadline.
func (l *Removal) Late(now hook.Instant) (time.Duration, bool) {
	if l.Deadline == 0 || l.Underway < 0 {
		return 0, false
	}
	return max(0, now.Sub(l.Deadline)-l.Underway), true
}

// Outcome is what became of a message that left its queue for a reason.
type Outcome uint8

// The outcomes.
const (
	Dropped      Outcome = iota // nobody wanted it to be dead-lettered
	DeadLettered                // it entered at least one queue, or with at-least-once all of them
	Unroutable                  // dropped: no queue was bound where it was to go
	NoExchange                  // dropped: there was no such exchange
	Cycle                       // dropped: it would have gone round for ever
	Outcomes
)

// String returns the outcome as events and spans have it.
func (o Outcome) String() string {
	return [Outcomes]string{"dropped", "dead_lettered", "unroutable", "no_exchange", "cycle"}[o]
}

// Removal is a message that left its queue for a reason. The slices are valid during the call.
type Removal struct {
	Exchange, Key, Props []byte // as it was published to this queue; Props as on the wire
	Size                 int    // of the body, bytes
	Enqueued, Deadline   hook.Instant
	Reason               hook.Reason
	Outcome              Outcome
	Target               *hook.Target // where it was to go; nil: nowhere
	Digest               uint64       // of the policy that gave it its deadline, the first 8 bytes; 0 = none
	// Underway is how long it has been since that was decided, for a message that stayed until it had arrived elsewhere;
	// negative: since an earlier life of the broker.
	Underway time.Duration
	Traced   bool // its context says so, or chance did when it was published
}

// Removed tells of messages that left a queue in one go.
func (r *Recorder) Removed(p *QueueRef, now hook.Instant, ls []Removal) {
	if r == nil || len(ls) == 0 {
		return
	}
	r.late.add(p.Strategy, now, ls)
	r.events.removed(p, now, ls)
	if r.spans != nil {
		r.spans.removed(p, now, ls)
	}
}

// QueueExpired tells that a queue went because nobody used it.
func (r *Recorder) QueueExpired(p *QueueRef, now hook.Instant, e *QueueEnd) {
	if r == nil {
		return
	}
	r.events.queueExpired(p, now, e)
	if r.spans != nil {
		r.spans.queueExpired(p, now, e)
	}
}

// QueueEnd is how a queue expired.
type QueueEnd struct {
	LastUse      hook.Instant
	Lease        hook.Instant // when it was due
	Messages     int          // that went with it
	DeadLettered int          // that did not, because they were dead-lettered first
}
