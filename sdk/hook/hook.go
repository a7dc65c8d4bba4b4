// Package hook is the contract between Curfew's broker and its Go plugins.
//
// A plugin is attached once to every queue, when the queue is declared and again whenever
// its effective settings change. It reads the settings and returns a [Hooks] value:
// callbacks, any of which may be nil, and a few settings that the broker itself acts on.
// Callbacks get a batch of messages and change the messages' verdicts in place. A plugin
// may also offer expiry strategies ([Strategist]), exchange types ([ExchangeTyper]) and
// filters of exchanges ([ExchangeFilterer]), and declare arguments and keys of policies
// ([Argument]).
//
// The package imports nothing else of Curfew, and a plugin needs no other package. Package guest is only for plugins that run others' code.
//
// # Compatibility
//
// A plugin that compiles against one version of this package compiles against each later
// one, and works the same there. The following do not change: exported names, their types,
// fields of structs, parameters, values of constants, the meaning of fields and their zero
// values, when callbacks are called, and the permitted verdicts. The interfaces that
// plugins implement get no methods.
//
// New versions may add names; constants after the last one of their type, so a plugin must
// not use such a value as an index without checking it ([Reasons] and [Parts] grow with
// them); fields whose zero value means the previous behaviour, so structs must be written
// with the names of their fields; and methods of [Queue] and [Source], which the broker
// implements.
//
// An incompatibility shows at compile time: the plugin's go.mod requires the version whose
// names it uses, and a build with an older broker is refused.
package hook

import (
	"time"

	"github.com/curfewmq/curfew/sdk/hook/internal/access"
)

// Instant is a point in time in nanoseconds since the Unix epoch. Zero means "none": no deadline, no further call.
type Instant int64

// Add returns t moved by d, saturating instead of overflowing.
func (t Instant) Add(d time.Duration) Instant {
	s := t + Instant(d)
	switch {
	case d > 0 && s < t:
		return maxInstant
	case d < 0 && s > t:
		return minInstant
	}
	return s
}

// AddMillis returns t moved ms milliseconds into the future, or into the past if ms is negative. It saturates, because a policy may set a
// TTL of any size.
func (t Instant) AddMillis(ms int64) Instant {
	const most = int64(maxInstant) / int64(time.Millisecond)
	switch {
	case ms > most:
		return maxInstant
	case ms < -most:
		return minInstant
	}
	return t.Add(time.Duration(ms) * time.Millisecond)
}

// Sub returns the time from u to t.
func (t Instant) Sub(u Instant) time.Duration { return time.Duration(t - u) }

// Time returns t as a [time.Time] in UTC.
func (t Instant) Time() time.Time { return time.Unix(0, int64(t)).UTC() }

const (
	maxInstant = Instant(1<<63 - 1)
	minInstant = -maxInstant - 1
)

// Limit is an optional non-negative integer. The zero value means "absent", which differs from [LimitOf](0): a TTL of zero is a TTL.
type Limit int64

// LimitOf returns the limit n. A negative n is absent.
func LimitOf(n int64) Limit {
	if n < 0 {
		return 0
	}
	if n == 1<<63-1 {
		n--
	}
	return Limit(n + 1)
}

// Set reports whether there is a limit.
func (l Limit) Set() bool { return l > 0 }

// N returns the limit; it is -1 when absent.
func (l Limit) N() int64 { return int64(l) - 1 }

// Min returns the lower of two limits; an absent one is infinite.
func (l Limit) Min(o Limit) Limit {
	if !l.Set() || o.Set() && o < l {
		return o
	}
	return l
}

// Reason is why a message is removed or a queue deleted. Its strings are those of
// x-death, metrics and events.
type Reason uint8

// The reasons, in the order of RabbitMQ's documentation, followed by ours.
const (
	ReasonNone          Reason = iota
	ReasonExpired              // its deadline was reached
	ReasonRejected             // basic.reject or basic.nack with requeue=false
	ReasonMaxLen               // the queue was longer than its limit
	ReasonDeliveryLimit        // it was requeued too often
	ReasonQueueExpired         // its queue's lease ended
	// ReasonDuplicate means that the queue already holds an equal message. The message is
	// dropped, and never dead-lettered, because the equal one is still there.
	ReasonDuplicate
	// The broker moved or removed the message on request, without calling plugins: a verdict cannot have these reasons.
	ReasonReleased  // it was published by an exchange that had scheduled it
	ReasonRedriven  // it was moved to another queue or exchange
	ReasonCancelled // it was held, and was cancelled or replaced

	ReasonTooLarge // its properties do not fit into the frames of any of its queue's consumers

	// Reasons is the number of reasons, for tables indexed by Reason.
	Reasons
)

// String returns the reason's name in x-death, metrics and events.
func (r Reason) String() string {
	return [Reasons]string{"", "expired", "rejected", "maxlen", "delivery_limit", "queue_expired", "duplicate", "released", "redriven", "cancelled", "too_large"}[r]
}

// Action says how to handle a message.
type Action uint8

// The actions a verdict can hold.
const (
	// Keep leaves the message where it is, or enqueues it.
	Keep Action = iota
	// Drop removes the message, for Verdict.Reason.
	Drop
	// Route removes the message and publishes it to Verdict.Target. The broker adds x-death, and drops the message if it would circulate
	// forever.
	Route
	// Refuse keeps a message out of the queue: its publisher gets basic.nack. It ends the chain, and is valid only in OnEnqueue.
	Refuse
)

// Target is the destination of Route. Make it once, in Attach, and share it.
type Target struct {
	Exchange string
	Key      string // used when HasKey; otherwise the message keeps its own keys
	HasKey   bool
	// AtLeastOnce keeps the message in its queue until every queue to which it is routed
	// has confirmed it, and publishes it again until then.
	AtLeastOnce bool
}

// Verdict is the chain's present decision about a message. It starts as the broker's own decision, and callbacks change it. If a verdict is
// invalid, the chain restores the previous one. Invalid are a Drop or Route without a Reason, a Route without a Target, and an Action that
// the callback does not allow.
type Verdict struct {
	Action  Action
	Reason  Reason // with Drop and Route
	Nack    bool   // OnEnqueue: send the publisher basic.nack, whatever Action is
	Final   bool   // with Drop: do not dead-letter the message, whatever the queue's settings are
	AskHead bool   // Keep: call OnHead before each delivery of the message
	// Watch, from OnEnqueue, makes the broker call OnGone when the message leaves the queue. A later plugin cannot undo it.
	Watch bool
	// DeadLetter, with Drop from OnIdle, passes the queue's messages to OnHead with Drop(ReasonQueueExpired) before the queue is deleted.
	DeadLetter bool
	// Again, with Keep from OnHead, means that Deadline is only the time of the next call:
	// the deadline in force stays, and applies after a restart. From OnEnqueue, OnRestamp
	// and OnRequeue, a strategy of guest.Dynamic uses Again to say that it could not
	// decide. Deadline is then in force, and OnRestamp (or OnRequeue again) is called with
	// WhyAgain after a second, then after longer pauses, and when the queue is attached
	// again. After a restart OnRestamp is called, not OnRequeue.
	Again bool
	// Hold, with Keep, is when the message may be delivered. Until then it is held, and
	// other messages pass it. 0 or a time in the past does not hold it. If several plugins
	// set a Hold, the latest applies. A message that was at the head is held for at least a
	// second.
	Hold     Instant
	Deadline Instant // Keep: the message's deadline; OnIdle: time of the next call; 0 = never
	State    int64   // Keep: 8 bytes for use by the strategy, stored with the message
	Target   *Target // with Route

	digest uint64 // see package guest
}

// Guest gives package guest its field; no other package can call it.
func (v *Verdict) Guest(access.Key) (digest *uint64) { return &v.digest }

// Why is the occasion on which a callback is called about a message.
type Why uint8

// The reasons of calls.
const (
	WhyEnqueue Why = iota // it is about to be enqueued
	WhyDue                // its deadline is reached
	WhyHead               // it reached the head
	WhyRequeue            // it was requeued
	WhyLeaving            // the broker has already decided to remove it: Drop or Route it, Keep is invalid
	WhyChange             // the queue's settings have changed
	WhyAgain              // the strategy could not decide before: see Verdict.Again
)

// Return says how a delivered message came back to its queue.
type Return uint8

// The ways to come back.
const (
	NotReturned  Return = iota
	ReturnFailed        // basic.reject with requeue=true, or its channel or its delivery lease ended
	ReturnNacked        // basic.nack with requeue=true, or basic.recover
)

// Message is a callback's view of a message. It is valid only during the call: a plugin that retains it, or its slice, reads garbage.
type Message struct {
	Enqueued   Instant // when it was enqueued in this queue; now in OnEnqueue
	Deadline   Instant // in force; 0 = none
	State      int64   // the bytes stored by the strategy
	Expiration Limit   // the publisher's expiration property, milliseconds
	Size       int     // body bytes
	Deliveries uint32  // how many deliveries of it failed, as counted for the delivery limit
	Returns    uint32  // OnReturn: how often it came back in either way, including this time
	Return     Return  // OnRequeue and OnReturn: how it came back
	Priority   uint8   // the property set by its publisher, whatever priorities the queue has; 0 = none
	Why        Why
	Redelivered,
	Persistent,
	Traced bool // it has a trace

	index  int32
	digest uint64 // see package guest
	source Source
}

// Part is a part of a message that consists of bytes.
type Part uint8

// The parts.
const (
	PartExchange   Part = iota // exchange to which it was published
	PartRoutingKey             // routing key with which it was published
	PartMessageID              // the property message-id, and so on
	PartCorrelationID
	PartType
	PartAppID
	PartUserID
	PartExpiration // decimal digits: milliseconds
	PartTimestamp  // decimal digits: seconds since the Unix epoch
	PartHeaders    // the encoded table; a search takes time in proportion to its length
	PartBody

	// Parts is the number of parts.
	Parts
)

// Source reads the parts and headers of a message on demand. Byte slices are valid only during the callback.
type Source interface {
	// Part returns a part of the message; nil if it has none.
	Part(i int, p Part) []byte
	// Header returns a header's value in the Go type of its AMQP type, and whether
	// the message has it.
	Header(i int, name string) (any, bool)
	// HeaderInt is Header for numbers; see [Message.HeaderInt].
	HeaderInt(i int, name string) (int64, bool)
	// HeaderText is Header for strings and binaries.
	HeaderText(i int, name string) ([]byte, bool)
	// Deaths returns how often the message was dead-lettered.
	Deaths(i int) int
}

// Bind connects a message to its source; the broker and test kits call it.
func (m *Message) Bind(s Source, i int) { m.source, m.index = s, int32(i) }

// Exchange returns the exchange the message was published to.
func (m *Message) Exchange() []byte { return m.source.Part(int(m.index), PartExchange) }

// RoutingKey returns the routing key it was published with.
func (m *Message) RoutingKey() []byte { return m.source.Part(int(m.index), PartRoutingKey) }

// Part returns a part of the message; nil if it has none.
func (m *Message) Part(p Part) []byte { return m.source.Part(int(m.index), p) }

// Header returns the value of a header and whether the message has it.
func (m *Message) Header(name string) (any, bool) { return m.source.Header(int(m.index), name) }

// HeaderInt returns the value of a header that is a number: an integer, a float without a fraction, a boolean (0 or 1), decimal digits in a
// string, or a timestamp, which is converted to milliseconds. It does not allocate.
func (m *Message) HeaderInt(name string) (int64, bool) {
	return m.source.HeaderInt(int(m.index), name)
}

// HeaderText returns the value of a header that is a string or a binary. It does not allocate.
func (m *Message) HeaderText(name string) ([]byte, bool) {
	return m.source.HeaderText(int(m.index), name)
}

// Deaths returns how often the message was dead-lettered so far.
func (m *Message) Deaths() int { return m.source.Deaths(int(m.index)) }

// Guest gives package guest its fields; no other package can call it.
func (m *Message) Guest(access.Key) (digest *uint64, s Source, i int) {
	return &m.digest, m.source, int(m.index)
}

// Scan says where in a queue the broker acts on deadlines. The queue's expiry strategy chooses it.
type Scan uint8

// The choices.
const (
	ScanAnywhere Scan = iota // anywhere, when the message is due
	ScanHeads                // at the head of each priority level
	ScanTop                  // at the head of the highest level with messages
	ScanLazy                 // only before a delivery, or when it is requeued
)

// Hooks are a plugin's callbacks for one queue. They run in the queue's turn: they must not
// block, retain ms or vs, start a goroutine or read a clock (now is the time). A panic is
// contained and counted, and leaves the verdicts unchanged.
type Hooks struct {
	// OnEnqueue is called for messages that are about to be enqueued. Verdicts start as
	// Keep, with the Hold that the publisher asked for, see [HoldReader].
	OnEnqueue func(now Instant, ms []Message, vs []Verdict)
	// OnHead is called for messages that are due or at the head; their verdicts start as
	// Keep with the deadline, state and hold in force. It is also called for messages being
	// removed for another reason (rejected, maxlen, delivery_limit, queue_expired,
	// too_large); their verdicts start as Drop.
	OnHead func(now Instant, ms []Message, vs []Verdict)
	// OnRequeue is called for new deadlines and states of requeued messages. Verdicts start
	// with those in force, which stay if OnRequeue is nil. It can only Keep: due messages
	// are passed to OnHead afterwards. Only the queue's expiry strategy is called.
	OnRequeue func(now Instant, ms []Message, vs []Verdict)
	// OnReturn is called after OnRequeue, and decides whether requeued messages are held
	// before they are delivered again. It can only Keep, and only Hold is used. It is
	// called for any plugin that has it.
	OnReturn func(now Instant, ms []Message, vs []Verdict)
	// OnRestamp is called for the deadline and state of every queued message, ready or
	// unacknowledged, when the queue's settings change, in batches with other tasks in
	// between. Verdicts start as for OnEnqueue, and only Deadline and State are used, so
	// that it can often be the same function. If it is nil, messages keep their deadline
	// and state. Only the queue's expiry strategy is called. See [Verdict].Again for
	// another occasion.
	OnRestamp func(now Instant, ms []Message, vs []Verdict)
	// OnIdle is called when the queue is or becomes unused (idle counts from the last use),
	// and again at the Deadline of its verdict while the queue has no consumer. Drop
	// deletes the queue. The queue's expiry strategy is called last.
	OnIdle func(now Instant, idle time.Duration, v *Verdict)

	// OnGone is called for messages that leave the queue, for any reason, if OnEnqueue set
	// Watch in their verdicts. They may be acknowledged, delivered without acknowledgement,
	// dropped, dead-lettered, purged, or kept out by the verdict of a later plugin. OnGone
	// is called before another message can take the message's place, with messages that any
	// plugin watches. Only the message's parts and headers, Size and Priority are set. ms
	// is nil if the queue has lost all of its messages at once: it was purged, deleted or
	// stopped, or its new settings give it no OnGone. Messages restored by a restart are
	// not watched. A dead letter with at-least-once leaves when the dead-lettering begins,
	// and a message that a redrive moves leaves when the move begins: see OnStay.
	OnGone func(ms []Message)

	// OnStay is called, for plugins with an OnGone, for messages that stay after all:
	// OnGone was called for them because they were to move to other queues, which then did
	// not accept them. Verdicts start as Keep, and only Watch is used: it makes the broker
	// call OnGone again when they leave. An equal message may have entered in the meantime.
	OnStay func(now Instant, ms []Message, vs []Verdict)

	// Strategy marks the plugin as the queue's expiry strategy. Only the strategy may move a deadline later, and its Scan is the queue's.
	Strategy bool
	Scan     Scan

	// DeadlineFromReady says, for the queue's strategy, that the deadlines of OnEnqueue
	// count from when a message is ready. If the message is held at first, the broker moves
	// its deadline by that time, unless others' code has set it (see package guest).
	// Without DeadlineFromReady, a message whose deadline comes before the end of its hold
	// expires while it is held.
	DeadlineFromReady bool

	// Refuses means that OnEnqueue may Refuse messages. The outcome of dead letters for the
	// queue is then reported when they have entered or were refused, not earlier.
	Refuses bool

	// DeadLetters is where the callbacks Route messages that leave for a reason, if the
	// plugin knows that when it is attached. The broker only displays it: the verdicts
	// decide, and another plugin's may lead elsewhere. nil means nowhere, or that it
	// depends on the message.
	DeadLetters *Target

	// Shared promises that the Hooks depend only on the queue's type, strategy and
	// settings, and that callbacks do not read the Queue. Queues that are equal in these
	// may then share the Hooks, which saves memory. A plugin without callbacks for a queue
	// may promise it, too.
	Shared bool

	// Length and Bytes limit the ready messages and the sum of their bodies. The broker
	// drops messages above the limits from the head (reason maxlen).
	Length, Bytes Limit

	// ReleaseLength and ReleaseBytes limit the same for messages that have been held since
	// they entered. A message that would exceed a limit, while others are ready, stays
	// held, and so do those after it. The broker tries again after a second, or when
	// nothing is ready. With DropReleased such a message is removed instead (reason
	// maxlen).
	ReleaseLength, ReleaseBytes Limit
	DropReleased                bool
}

// Queue is a plugin's view of a queue. The live counts may be read only in callbacks.
type Queue interface {
	VHost() string
	Name() string
	// Type is "classic" or "quorum".
	Type() string
	// Setting returns an effective setting by its name in policies ("message-ttl", not
	// "x-message-ttl"), merged from the queue's arguments and policies.
	Setting(name string) (any, bool)
	// Strategy is the name of the expiry strategy in force.
	Strategy() string

	Ready() int        // ready messages
	ReadyBytes() int64 // sum of their bodies' sizes
	Unacked() int      // unacknowledged messages
	Held() int         // messages that wait for the end of their hold
	Consumers() int    // with or without credit
	Credit() int       // messages that its consumers can accept now
}

// IntSetting reads a setting that has been validated as an integer.
func IntSetting(q Queue, name string) Limit {
	v, ok := q.Setting(name)
	if !ok {
		return 0
	}
	n, ok := Int(v)
	if !ok {
		return 0
	}
	return LimitOf(n)
}

// StringSetting reads a setting that has been validated as a string.
func StringSetting(q Queue, name string) (string, bool) {
	v, ok := q.Setting(name)
	if !ok {
		return "", false
	}
	s, ok := v.(string)
	return s, ok
}
