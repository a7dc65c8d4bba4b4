package telemetry

import (
	"time"
	"unicode/utf8"

	"go.opentelemetry.io/otel/trace"

	"github.com/curfewmq/curfew/core/amqp"
	"github.com/curfewmq/curfew/sdk/hook"
)

// Kind is the kind of an [Event].
type Kind uint8

// The kinds. A removed message has one event. Its kind is the first that applies, in the
// order cycle, expired, cancelled, released, redriven, dead-lettered, dropped.
const (
	MessageExpired      Kind = iota // see [Event.Outcome]
	MessageDeadLettered             // for a reason other than its deadline; it is in another queue now
	MessageDropped                  // for a reason other than its deadline
	MessageCycle                    // for any reason: dead-lettering would have repeated forever
	MessageReleased                 // it was held until now: it is ready, or in another queue
	MessageRedriven                 // it was moved on request, and is in another queue now
	ScheduleCancelled               // it was held, and was dropped on request
	QueueExpired
	ExchangeDeleted // together with the messages that it held
	PolicyApplied
	ModuleLoaded
	ModuleReloaded
	ModuleRolledBack // the previous version is in force again
	ModuleUnloaded
	BreakerOpened // a module fails too often and is not called for a while
	BreakerClosed
	AlarmRaised
	AlarmCleared
	RedriveFinished
	VHostMoved // another node serves it; messages that were in memory only are lost
	Kinds      // number of kinds
)

// String returns the kind's name in the event stream.
func (k Kind) String() string {
	return [Kinds]string{
		"message_expired", "message_dead_lettered", "message_dropped", "message_cycle", "message_released", "message_redriven",
		"schedule_cancelled", "queue_expired", "exchange_deleted", "policy_applied",
		"module_loaded", "module_reloaded", "module_rolled_back", "module_unloaded", "breaker_opened", "breaker_closed",
		"alarm_raised", "alarm_cleared", "redrive_finished", "vhost_moved",
	}[k]
}

// OfMessage reports whether events of the kind are about a message.
func (k Kind) OfMessage() bool { return k <= ScheduleCancelled }

// Event is one entry of a [Ring]. Readers get copies.
type Event struct {
	Seq  uint64 // its number; consecutive
	At   hook.Instant
	Kind Kind

	// For a message or a queue; see also the methods.
	QueueRef
	Reason   hook.Reason
	Outcome  Outcome
	Deadline hook.Instant // of the message, or the end of the queue's lease; 0 = none
	Held     hook.Instant // see [Removal]
	Since    hook.Instant // when the message was enqueued, or the queue was last used; 0 = unknown

	// For a message; see [Removal].
	Target     *hook.Target
	Entered    *Entered
	Digest     uint64
	Size       int
	Underway   time.Duration
	Overstayed bool
	trace      trace.TraceID // see TraceID

	// For a queue.
	Messages     int // deleted with it
	DeadLettered int // dead-lettered before

	Notice *Notice // for all other kinds

	ends  [parts]uint8 // ends of the parts in texts
	cut   uint8        // a bit for each part that was truncated
	texts [maxTexts]byte
}

// Notice is an event of the broker, not of a message or a queue. Each kind uses some of the fields.
type Notice struct {
	Kind     Kind
	VHost    string       // vhost that moved, or of an exchange, a policy or a redrive
	Name     string       // of the exchange, the policy, the module or the alarm
	Operator bool         // it is an operator policy
	Cleared  bool         // the policy was cleared, not set
	Queues   int          // queues that the policy began or ceased to apply to, or queues of the vhost
	Messages int          // deleted with the exchange, or lost with the vhost
	Digest   string       // of the module
	Previous string       // digest of the module in force before; "" = none
	Beside   string       // strategy that the module shadows; "" = it is in force
	Until    hook.Instant // when a failed module is called again
	Disk     Shortage     // of the disk alarm
	Redrive  *RedriveEnd  // nil for all other kinds
}

// RedriveEnd is the end of a redrive.
type RedriveEnd struct {
	ID, Queue     string
	State, Reason string // Reason is "" unless it failed
	Moved, Failed int    // messages
	Took          time.Duration
}

// Shortage is the free and the needed space of a disk.
type Shortage struct {
	Path   string // "" = unknown
	Free   int64  // bytes; negative = unknown
	Needed int64  // bytes
	Files  bool   // the shortage is of open files, not of space
}

// The parts of a message that an event copies.
const (
	partID = iota
	partKey
	partExchange
	parts
)

// The longest copies of the parts, in bytes. Longer parts are truncated. Their sum fits into a uint8.
const (
	maxID       = 64
	maxKey      = 112
	maxExchange = 72
	maxTexts    = maxID + maxKey + maxExchange
)

// MessageID returns the property message-id; cut reports whether it is truncated. The slice belongs to the event.
func (e *Event) MessageID() (id []byte, cut bool) { return e.part(partID) }

// RoutingKey returns the key that the message was published with, as MessageID does.
func (e *Event) RoutingKey() (key []byte, cut bool) { return e.part(partKey) }

// Exchange returns the exchange that the message was published to, as MessageID does.
func (e *Event) Exchange() (name []byte, cut bool) { return e.part(partExchange) }

// TraceID returns the trace that the message belongs to, in hexadecimal digits; "" if it was not sampled, or has no context.
func (e *Event) TraceID() string {
	if !e.trace.IsValid() {
		return ""
	}
	return e.trace.String()
}

func (e *Event) part(i int) (text []byte, cut bool) {
	from := uint8(0)
	if i > 0 {
		from = e.ends[i-1]
	}
	return e.texts[from:e.ends[i]], e.cut&(1<<i) != 0
}

// copyPart copies part i, after the earlier parts.
func (e *Event) copyPart(i, most int, text []byte) {
	from := 0
	if i > 0 {
		from = int(e.ends[i-1])
	}
	if len(text) > most {
		text = trimPartialRune(text[:most])
		e.cut |= 1 << i
	}
	e.ends[i] = uint8(from + copy(e.texts[from:], text))
}

// trimPartialRune removes a truncated character from the end of text.
func trimPartialRune(text []byte) []byte {
	for i := 1; i < utf8.UTFMax && i <= len(text); i++ {
		if last := text[len(text)-i:]; utf8.RuneStart(last[0]) {
			if !utf8.FullRune(last) {
				return text[:len(text)-i]
			}
			break
		}
	}
	return text
}

// kindOf returns the kind of a removal's event.
func kindOf(r *Removal) Kind {
	switch {
	case r.Outcome == Cycle:
		return MessageCycle
	case r.Reason == hook.ReasonExpired:
		return MessageExpired
	case r.Reason == hook.ReasonCancelled:
		return ScheduleCancelled
	}
	switch r.Became() {
	case Ready:
		return MessageReleased
	case Routed:
		if r.Reason == hook.ReasonRedriven {
			return MessageRedriven
		}
		return MessageReleased
	case DeadLettered:
		return MessageDeadLettered
	}
	return MessageDropped
}

// message makes e the event of a removal. It sets all fields except the number, because the ring reuses events.
func (e *Event) message(p *QueueRef, now hook.Instant, l *Removal) {
	e.At, e.Kind, e.QueueRef = now, kindOf(l), *p
	e.Reason, e.Outcome, e.Deadline, e.Held, e.Since = l.Reason, l.Became(), l.Deadline, l.Held, l.Enqueued
	e.Target, e.Entered, e.Digest, e.Size, e.Underway = l.Target, l.Entered, l.Digest, l.Size, l.Underway
	e.Overstayed = l.Overstayed
	e.cut, e.trace = 0, trace.TraceID{}
	if l.Traced {
		e.trace = traceOf(l.Props)
	}
	id, _ := amqp.MessageID(l.Props)
	e.copyPart(partID, maxID, id)
	e.copyPart(partKey, maxKey, l.Key)
	e.copyPart(partExchange, maxExchange, l.Exchange)
}

// Notice records an event of the broker.
func (r *Recorder) Notice(n Notice) {
	if r == nil {
		return
	}
	var now hook.Instant
	if r.clock != nil {
		now = r.clock()
	}
	r.events.notice(now, &n)
}
