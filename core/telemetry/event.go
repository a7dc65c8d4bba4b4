package telemetry

import (
	"time"
	"unicode/utf8"

	"github.com/curfewmq/curfew/core/amqp"
	"github.com/curfewmq/curfew/sdk/hook"
)

// Kind is what sort of thing an [Event] is.
type Kind uint8

// The kinds. A message has one event when it leaves its queue for a reason: its kind says what matters most about that.
const (
	MessageExpired      Kind = iota // its time was up; [Event.Outcome] says what became of it
	MessageDeadLettered             // it left for another reason, and is in another queue now
	MessageDropped                  // it left for another reason, for good
	MessageCycle                    // it left for whatever reason, for good: it would have gone round for ever
	QueueExpired
	PolicyApplied
	ModuleLoaded
	ModuleReloaded
	ModuleRolledBack // the version before is in force again
	ModuleUnloaded
	BreakerOpened // a module fails too often and is not asked for a while
	BreakerClosed
	AlarmRaised
	AlarmCleared
	Kinds // how many there are
)

// String returns the kind as the event stream has it.
func (k Kind) String() string {
	return [Kinds]string{
		"message_expired", "message_dead_lettered", "message_dropped", "message_cycle", "queue_expired", "policy_applied",
		"module_loaded", "module_reloaded", "module_rolled_back", "module_unloaded", "breaker_opened", "breaker_closed",
		"alarm_raised", "alarm_cleared",
	}[k]
}

// OfMessage reports whether events of the kind are about a message.
func (k Kind) OfMessage() bool { return k <= MessageCycle }

// Event is something that happened. A [Ring] hands out copies: they are the reader's.
type Event struct {
	Seq  uint64 // its number; each is one more than the last
	At   hook.Instant
	Kind Kind

	// Of a message and a queue, all of them; see also the methods.
	QueueRef
	Reason   hook.Reason
	Outcome  Outcome
	Deadline hook.Instant // of the message, or of the queue's lease; 0 = it had none
	Since    hook.Instant // when the message was enqueued, or the queue last used; 0 = unknown

	// Of a message.
	Target *hook.Target // where it was to go; nil: nowhere
	Digest uint64       // see [Left]
	Size   int          // of the body, bytes
	// Underway is as in [Left].
	Underway time.Duration

	// Of a queue.
	Messages     int // that went with it
	DeadLettered int // that did not

	Notice *Notice // of anything else

	cuts  [parts]uint8 // where each part ends in texts
	cut   uint8        // bit by part: there was more of it
	texts [maxTexts]byte
}

// Notice is what happens to the broker rather than to a message or a queue. Each kind has some of it.
type Notice struct {
	Kind     Kind
	VHost    string       // of a policy
	Name     string       // of the policy, the module or the alarm
	Operator bool         // it is an operator policy
	Cleared  bool         // the policy was cleared, not set
	Queues   int          // that it applies to now, or did, and that changed for it
	Digest   string       // of the module
	Previous string       // digest of the module that was in force before; "" = there was none
	Beside   string       // strategy that the module runs beside, unheard; "" = it is in force
	Until    hook.Instant // when a module that failed is asked again
	Disk     Shortage     // why the alarm for the disk was raised
}

// Shortage is what a disk has, and what is needed of it.
type Shortage struct {
	Path   string // "" = nothing is known
	Free   int64  // bytes; less than 0 = not known
	Needed int64  // bytes
}

// The parts of a message that an event has copies of.
const (
	partID = iota
	partKey
	partExchange
	parts
)

// How much of the parts is kept, in bytes: what is beyond is cut off. Together they fit into a byte.
const (
	maxID       = 64
	maxKey      = 112
	maxExchange = 72
	maxTexts    = maxID + maxKey + maxExchange
)

// MessageID is the property of that name, as far as it is kept; cut says that there was more of it. The slice belongs to the
// event.
func (e *Event) MessageID() (id []byte, cut bool) { return e.part(partID) }

// RoutingKey is what the message had been published with, as MessageID is.
func (e *Event) RoutingKey() (key []byte, cut bool) { return e.part(partKey) }

// Exchange is what the message had been published to, as MessageID is.
func (e *Event) Exchange() (name []byte, cut bool) { return e.part(partExchange) }

func (e *Event) part(i int) (text []byte, cut bool) {
	from := uint8(0)
	if i > 0 {
		from = e.cuts[i-1]
	}
	return e.texts[from:e.cuts[i]], e.cut&(1<<i) != 0
}

// copyPart copies a part, after those before it.
func (e *Event) copyPart(i, most int, text []byte) {
	from := 0
	if i > 0 {
		from = int(e.cuts[i-1])
	}
	if len(text) > most {
		text = trimPartialRune(text[:most])
		e.cut |= 1 << i
	}
	e.cuts[i] = uint8(from + copy(e.texts[from:], text))
}

// trimPartialRune leaves out the beginning of a character at the end of text, the rest of which was cut off.
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

// kindOf is the kind of event that a message's leaving is.
func kindOf(l *Removal) Kind {
	switch {
	case l.Outcome == Cycle:
		return MessageCycle
	case l.Reason == hook.ReasonExpired:
		return MessageExpired
	case l.Outcome == DeadLettered:
		return MessageDeadLettered
	}
	return MessageDropped
}

// message makes e the event of a message's leaving. Everything but the number is set: there was another event here before.
func (e *Event) message(p *QueueRef, now hook.Instant, l *Removal) {
	e.At, e.Kind, e.QueueRef = now, kindOf(l), *p
	e.Reason, e.Outcome, e.Deadline, e.Since = l.Reason, l.Outcome, l.Deadline, l.Enqueued
	e.Target, e.Digest, e.Size, e.Underway = l.Target, l.Digest, l.Size, l.Underway
	e.cut = 0
	id, _ := amqp.MessageID(l.Props)
	e.copyPart(partID, maxID, id)
	e.copyPart(partKey, maxKey, l.Key)
	e.copyPart(partExchange, maxExchange, l.Exchange)
}

// Notice tells of something that happened to the broker.
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
