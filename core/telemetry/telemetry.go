// Package telemetry records broker activity as events, histograms and spans. Recording never blocks. Data that does not fit is
// counted and dropped. The package starts no goroutine.
//
// Queues, vhosts and sessions call a [Recorder] from queues' turns and connections' reader goroutines. Calls with nothing
// to record return at once, as do all calls of a nil Recorder.
package telemetry

import (
	"time"

	"github.com/curfewmq/curfew/sdk/hook"
)

// Recorder records the broker's activity. Any goroutine may use it; nil records nothing.
type Recorder struct {
	clock  func() hook.Instant
	events *Ring
	spans  *Spans // nil: traces are off

	late Lateness
}

// Options configure a Recorder.
type Options struct {
	Clock  func() hook.Instant
	Events int    // capacity of the ring for events of messages; 0 = no ring
	Spans  *Spans // nil: traces are off
}

// New returns a Recorder.
func New(o Options) *Recorder {
	var begin uint64
	if o.Clock != nil {
		begin = uint64(o.Clock()) / uint64(time.Microsecond)
	}
	return &Recorder{clock: o.Clock, events: newRing(o.Events, begin), spans: o.Spans}
}

// Events returns the ring of events; nil if there is none.
func (r *Recorder) Events() *Ring {
	if r == nil {
		return nil
	}
	return r.events
}

// Spans returns nil while traces are off. Callers check this before they collect the data for a span.
func (r *Recorder) Spans() *Spans {
	if r == nil {
		return nil
	}
	return r.spans
}

// Lateness returns the lateness of expired and of released messages, and how long consumers held messages past their deadlines.
func (r *Recorder) Lateness() *Lateness {
	if r == nil {
		return nil
	}
	return &r.late
}

// QueueRef names a queue, or an exchange that holds messages.
type QueueRef struct {
	VHost    string
	Queue    string // or the exchange; see Schedule
	Strategy string // "" for an exchange
	Schedule bool   // it is an exchange
}

func (q *QueueRef) kind() string {
	if q.Schedule {
		return OfExchanges
	}
	return OfQueues
}

// Labels for the kinds of objects that hold messages.
const (
	OfQueues    = "queue"
	OfExchanges = "exchange"
)

// late returns how long after its deadline the message's removal was decided. It returns false if there was no deadline or the time of
// the decision is unknown.
func (r *Removal) late(now hook.Instant) (time.Duration, bool) {
	if r.Deadline == 0 || r.Underway < 0 {
		return 0, false
	}
	return max(0, now.Sub(r.Deadline)-r.Underway), true
}

// Outcome is the fate of a removed message.
type Outcome uint8

// The outcomes.
const (
	Dropped      Outcome = iota // it was not to be dead-lettered
	DeadLettered                // enqueued in at least one queue, or with at-least-once in all of them
	Unroutable                  // dropped: no queue was bound
	NoExchange                  // dropped: the exchange did not exist
	Cycle                       // dropped: dead-lettering would have repeated forever
	Filtered                    // dropped: a plugin's filter kept it out of the exchange
	Routed                      // a released or redriven message: enqueued in at least one queue; see [Removal.Became]
	Ready                       // a held message: it stays in its queue, and is no longer held
	Refused                     // dropped: every queue that it was routed to refused it
	Outcomes
)

// String returns the outcome's name in events and spans.
func (o Outcome) String() string {
	return [Outcomes]string{"dropped", "dead_lettered", "unroutable", "no_exchange", "cycle", "filtered", "routed", "ready", "refused"}[o]
}

// Removal is a message that leaves its queue for a reason, with its outcome. The slices are valid during the call.
type Removal struct {
	Exchange, Key, Props []byte // as published to this queue; Props as on the wire
	Size                 int    // of the body, bytes
	Enqueued, Deadline   hook.Instant
	Held                 hook.Instant // end of its hold; 0 = it was not held, or is released on request
	Reason               hook.Reason
	Outcome              Outcome
	Target               *hook.Target // target of its dead-lettering; nil: none
	Entered              *Entered     // the queues that it entered; nil: none, or unknown
	Digest               uint64       // first 8 bytes of the digest of the policy that set its deadline; 0 = none
	// Underway is the time since the decision, for an at-least-once dead letter; negative: the decision was made before a restart.
	Underway time.Duration
	Traced   bool // sampled, by its context or by chance when it was published
	// Overstayed means that a consumer returned the message after its deadline, so the broker could not expire it in time.
	Overstayed bool
}

// Became returns the final outcome. A released or redriven message that entered a queue is Routed, because it is not a dead letter.
func (r *Removal) Became() Outcome {
	if r.Outcome == DeadLettered && (r.Reason == hook.ReasonReleased || r.Reason == hook.ReasonRedriven) {
		return Routed
	}
	return r.Outcome
}

// afterHold returns how long after the end of its hold the message was released. It returns false if it was not released, or on request.
func (r *Removal) afterHold(now hook.Instant) (time.Duration, bool) {
	if r.Reason != hook.ReasonReleased || r.Held == 0 {
		return 0, false
	}
	return max(0, now.Sub(r.Held)), true
}

// Moved reports whether messages that leave for a reason were moved or removed on request: they are neither dead letters nor dropped.
func Moved(r hook.Reason) bool {
	return r == hook.ReasonReleased || r == hook.ReasonRedriven || r == hook.ReasonCancelled
}

// Removed records messages that were removed from a queue together, and held messages that were released there.
func (r *Recorder) Removed(q *QueueRef, now hook.Instant, rs []Removal) {
	if r == nil || len(rs) == 0 {
		return
	}
	r.late.add(q, now, rs)
	r.events.removed(q, now, rs)
	if r.spans != nil {
		r.spans.removed(q, now, rs)
	}
}

// QueueExpired records that a queue was deleted at the end of its lease.
func (r *Recorder) QueueExpired(q *QueueRef, now hook.Instant, e *QueueEnd) {
	if r == nil {
		return
	}
	r.events.queueExpired(q, now, e)
	if r.spans != nil {
		r.spans.queueExpired(q, now, e)
	}
}

// QueueEnd describes an expired queue.
type QueueEnd struct {
	LastUse      hook.Instant
	Lease        hook.Instant // its end
	Messages     int          // deleted with it
	DeadLettered int          // dead-lettered before
}
