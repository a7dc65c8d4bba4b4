// Package hook is the contract between Curfew's broker and its Go plugins.
//
// A plugin is attached once to every queue, at declaration and again whenever
// the queue's effective settings change. It reads the settings and returns a
// [Hooks] value: callbacks, any of which may be nil, and a few facts that the
// broker acts on by itself. Callbacks get a batch of messages and change the
// messages' verdicts in place. A plugin may also offer expiry strategies
// ([Strategist]), exchange types ([ExchangeTyper]) and filters of exchanges
// ([ExchangeFilterer]), and declare arguments and keys of policies ([Argument]).
//
// The package is a leaf, and a plugin needs no other of Curfew. What only plugins
// need that run code of others is in package guest.
//
// # Compatibility
//
// A plugin that compiles against one version of this package compiles against each
// later one, and means the same there. Exported names, their types, fields of
// structs, parameters, values of constants, what fields and their zero values mean,
// when callbacks are asked and what verdicts may say do not change. The interfaces
// that plugins implement get no methods.
//
// New versions may add names; constants after the last of their type, which a plugin
// must not use as an index unchecked ([Reasons] and [Parts] grow with them); fields
// whose zero value means what was there before, so that structs are written with the
// names of their fields; and methods of [Queue] and [Source], which the broker
// implements.
//
// A plugin finds out at compile time: its go.mod requires the version whose names it
// uses, and a build with an older broker is refused.
package hook

import (
	"time"

	"github.com/curfewmq/curfew/sdk/hook/internal/access"
)

// Instant is a point in time in nanoseconds since the Unix epoch. Zero means
// "none": no deadline, not asked again.
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

// AddMillis returns t moved ms milliseconds into the future, or into the past if
// ms is negative, saturating: a policy may set a TTL of any size.
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

// Limit is an optional non-negative integer. The zero value means "absent",
// which is different from [LimitOf](0): a TTL of zero is a TTL.
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
	// ReasonDuplicate: the queue holds an equal message already. Such a message is
	// dropped, and never dead-lettered: its twin is there.
	ReasonDuplicate
	// The broker moved or removed it because somebody asked for that, and plugins were
	// not: no verdict can have these.
	ReasonReleased  // an exchange that had scheduled it published it
	ReasonRedriven  // it was moved to another queue or exchange
	ReasonCancelled // it was held, and was cancelled or replaced

	ReasonTooLarge // its properties fit the frames of none of its queue's consumers

	// Reasons is the number of reasons, for tables indexed by Reason.
	Reasons
)

// String returns the reason's name in x-death, metrics and events.
func (r Reason) String() string {
	return [Reasons]string{"", "expired", "rejected", "maxlen", "delivery_limit", "queue_expired", "duplicate", "released", "redriven", "cancelled", "too_large"}[r]
}

// Action is what becomes of a message.
type Action uint8

// The actions a verdict can hold.
const (
	// Keep leaves the message where it is, or enqueues it.
	Keep Action = iota
	// Drop removes the message, for Verdict.Reason.
	Drop
	// Route removes the message and publishes it to Verdict.Target. The broker
	// adds x-death, and drops the message if it would cycle.
	Route
	// Refuse keeps a message out of the queue: its publisher gets basic.nack. It
	// ends the chain, and is valid in OnEnqueue only.
	Refuse
)

// Target is where Route publishes. Make it once, in Attach, and share it.
type Target struct {
	Exchange string
	Key      string // used when HasKey; otherwise the message keeps its own keys
	HasKey   bool
	// AtLeastOnce keeps the message in its queue until every queue that it is
	// routed to has confirmed it, and publishes it again until then.
	AtLeastOnce bool
}

// Verdict is the chain's decision about a message so far. It starts as the broker's
// own decision, and callbacks change it. The chain puts back the previous verdict
// in place of an invalid one: a Drop or Route without a Reason, a Route without a
// Target, an Action that the callback does not allow.
type Verdict struct {
	Action  Action
	Reason  Reason // with Drop and Route
	Nack    bool   // OnEnqueue: send the publisher basic.nack, whatever Action is
	Final   bool   // with Drop: do not dead-letter the message, whatever the queue's settings are
	AskHead bool   // Keep: call OnHead before each delivery of the message
	// Watch, from OnEnqueue, passes the message to OnGone when it leaves the queue. A
	// later plugin cannot take it back.
	Watch bool
	// DeadLetter, with Drop from OnIdle, passes the queue's messages to OnHead with
	// Drop(ReasonQueueExpired) before the queue is deleted.
	DeadLetter bool
	// Again, with Keep from OnHead, means that Deadline is only when to ask again:
	// the deadline in force stays, and applies after a restart. From OnEnqueue, OnRestamp
	// and OnRequeue it means, of a strategy of guest.Dynamic, that it could not decide:
	// Deadline is in force, and OnRestamp, or OnRequeue again, is asked with WhyAgain after a
	// second, then after longer pauses, and when the queue is attached again. After a
	// restart OnRestamp is asked, not OnRequeue.
	Again bool
	// Hold, with Keep, is when the message may be delivered: until then it is held, and
	// others pass it. 0 or an instant that has passed does not hold it. Of several
	// plugins the latest counts. A message that was at the head is held for a second at
	// least.
	Hold     Instant
	Deadline Instant // Keep: the message's deadline; OnIdle: when to ask again; 0 = never
	State    int64   // Keep: the strategy's own 8 bytes, stored with the message
	Target   *Target // with Route

	digest uint64 // see package guest
}

// Guest gives package guest its field; no other package can call it.
func (v *Verdict) Guest(access.Key) (digest *uint64) { return &v.digest }

// Why is the reason for which a callback is asked about a message.
type Why uint8

// The reasons of calls.
const (
	WhyEnqueue Why = iota // it is about to be enqueued
	WhyDue                // its deadline is reached
	WhyHead               // it reached the head
	WhyRequeue            // it was requeued
	WhyLeaving            // the broker already decided to remove it: Drop or Route it, Keep is invalid
	WhyChange             // the queue's settings have changed
	WhyAgain              // the strategy could not decide before: see Verdict.Again
)

// Return is how a delivered message came back to its queue.
type Return uint8

// The ways to come back.
const (
	NotReturned  Return = iota
	ReturnFailed        // basic.reject with requeue=true, or its channel or its delivery lease ended
	ReturnNacked        // basic.nack with requeue=true, or basic.recover
)

// Message is a callback's view of a message. It is valid during the call only: a
// plugin that retains it, or its slice, reads garbage.
type Message struct {
	Enqueued   Instant // when it was enqueued in this queue; now in OnEnqueue
	Deadline   Instant // in force; 0 = none
	State      int64   // the strategy's own bytes
	Expiration Limit   // the publisher's expiration property, milliseconds
	Size       int     // body bytes
	Deliveries uint32  // how often a delivery of it failed, as the delivery limit counts
	Returns    uint32  // OnReturn: how often it came back in either way, this time included
	Return     Return  // OnRequeue and OnReturn: how it came back
	Priority   uint8   // the property that its publisher gave it, whatever priorities the queue has; 0 = none
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
	PartExchange   Part = iota // it was published to
	PartRoutingKey             // it was published with
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

// Source reads the parts and headers of a message on demand. Byte slices are valid
// during the callback only.
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

// Bind ties a message to its source; the broker and test kits call it.
func (m *Message) Bind(s Source, i int) { m.source, m.index = s, int32(i) }

// Exchange returns the exchange the message was published to.
func (m *Message) Exchange() []byte { return m.source.Part(int(m.index), PartExchange) }

// RoutingKey returns the routing key it was published with.
func (m *Message) RoutingKey() []byte { return m.source.Part(int(m.index), PartRoutingKey) }

// Part returns a part of the message; nil if it has none.
func (m *Message) Part(p Part) []byte { return m.source.Part(int(m.index), p) }

// Header returns the value of a header and whether the message has it.
func (m *Message) Header(name string) (any, bool) { return m.source.Header(int(m.index), name) }

// HeaderInt returns the value of a header that is a number: an integer, a float
// that has no fraction, a boolean (0 or 1), decimal digits in a string, or a
// timestamp, which becomes milliseconds. It does not allocate.
func (m *Message) HeaderInt(name string) (int64, bool) {
	return m.source.HeaderInt(int(m.index), name)
}

// HeaderText returns the value of a header that is a string or a binary. It does
// not allocate.
func (m *Message) HeaderText(name string) ([]byte, bool) {
	return m.source.HeaderText(int(m.index), name)
}

// Deaths returns how often the message was dead-lettered so far.
func (m *Message) Deaths() int { return m.source.Deaths(int(m.index)) }

// Guest gives package guest its fields; no other package can call it.
func (m *Message) Guest(access.Key) (digest *uint64, s Source, i int) {
	return &m.digest, m.source, int(m.index)
}

// Scan is where in a queue deadlines are acted on. The queue's expiry strategy
// chooses it.
type Scan uint8

// The choices.
const (
	ScanAnywhere Scan = iota // anywhere, when the message is due
	ScanHeads                // at the head of each priority level
	ScanTop                  // at the head of the highest level with messages
	ScanLazy                 // only before a delivery, or when it is requeued
)

// Hooks are a plugin's callbacks for one queue. They run in the queue's turn: they
// must not block, retain ms or vs, start a goroutine or read a clock (now is the
// time). A panic is contained and counted, and leaves the verdicts unchanged.
type Hooks struct {
	// OnEnqueue is called with messages about to be enqueued; verdicts start as
	// Keep, with the Hold that the publisher asked for, see [HoldReader].
	OnEnqueue func(now Instant, ms []Message, vs []Verdict)
	// OnHead is called with messages that are due or at the head, verdicts
	// starting as Keep with the deadline, state and hold in force, and with messages
	// being removed for another reason (rejected, maxlen, delivery_limit,
	// queue_expired, too_large), starting as Drop.
	OnHead func(now Instant, ms []Message, vs []Verdict)
	// OnRequeue is asked for new deadlines and states of requeued messages; verdicts
	// start with those in force, which stay if it is nil. It can only Keep: due
	// messages are passed to OnHead afterwards. Only the queue's expiry strategy is
	// asked.
	OnRequeue func(now Instant, ms []Message, vs []Verdict)
	// OnReturn is asked, after OnRequeue, whether requeued messages are held before they
	// are delivered again. It can only Keep, and only Hold is used. Any plugin may be
	// asked.
	OnReturn func(now Instant, ms []Message, vs []Verdict)
	// OnRestamp is asked for the deadline and state of every queued message when the
	// queue's settings change, ready or unacknowledged, in batches with other tasks
	// between. Verdicts start as for OnEnqueue, and only Deadline and State are used,
	// so that it can often be the same function. If it is nil, messages keep theirs.
	// Only the queue's expiry strategy is asked. See [Verdict].Again for another occasion.
	OnRestamp func(now Instant, ms []Message, vs []Verdict)
	// OnIdle is called when the queue is or becomes unused (idle counts from the
	// last use), and again at the Deadline of its verdict while the queue has no
	// consumer. Drop deletes the queue. The queue's expiry strategy is asked last.
	OnIdle func(now Instant, idle time.Duration, v *Verdict)

	// OnGone is called with messages that leave the queue, for whatever reason, if
	// OnEnqueue set Watch in their verdicts: acknowledged, delivered without
	// acknowledgement, dropped, dead-lettered, purged, or kept out by the verdict of a
	// later plugin. It is called before the message's place can be taken by another, with
	// messages that any plugin watches. Only the message's parts and headers, Size and
	// Priority are set. ms is nil when the queue has lost all of its messages at once: it
	// was purged, deleted or stopped, or its settings no longer give it an OnGone.
	// Messages that a restart brought back are not watched. One that has to be
	// dead-lettered at least once leaves when that begins, and so does one that a redrive
	// moves: see OnStay.
	OnGone func(ms []Message)

	// OnStay is called, for plugins with an OnGone, with messages that OnGone was called
	// with because they were to move to other queues, which did not take them: they stay.
	// Verdicts start as Keep, and only Watch is used: it passes them to OnGone again when
	// they leave. An equal message may have entered meanwhile.
	OnStay func(now Instant, ms []Message, vs []Verdict)

	// Strategy marks the plugin as the queue's expiry strategy: it alone may
	// move a deadline later, and its Scan is the queue's.
	Strategy bool
	Scan     Scan

	// DeadlineFromReady means, of the queue's strategy, that the deadlines of OnEnqueue
	// count from when a message is ready: if it is held at first, the broker moves its
	// deadline by that time, unless others' code has set it (see package guest). Otherwise a message whose deadline comes before the end of
	// its hold expires while it is held.
	DeadlineFromReady bool

	// Refuses says that OnEnqueue may Refuse messages. What became of dead letters for the
	// queue is then reported when they have entered, or were refused, not before.
	Refuses bool

	// DeadLetters is where the callbacks Route messages that leave for a reason, if the
	// plugin knows that when it is attached. The broker only shows it: verdicts count,
	// and another plugin's may lead elsewhere. nil means nowhere, or that it depends on
	// the message.
	DeadLetters *Target

	// Shared promises that the Hooks depend only on the queue's type, strategy and
	// settings, and that callbacks do not read the Queue, so that queues equal in
	// these may share the Hooks, which saves memory. A plugin without callbacks for a
	// queue may promise it, too.
	Shared bool

	// Length and Bytes limit the ready messages and the sum of their bodies. The
	// broker drops messages above the limits from the head (reason maxlen).
	Length, Bytes Limit

	// ReleaseLength and ReleaseBytes limit the same for messages that were held since they
	// entered: one that would exceed a limit, while others are ready, stays held, and so do
	// those behind it. The broker looks again after a second, or when nothing is ready. With
	// DropReleased it is removed instead (reason maxlen).
	ReleaseLength, ReleaseBytes Limit
	DropReleased                bool
}

// Queue is a plugin's view of a queue. The live counts may be read in callbacks
// only.
type Queue interface {
	VHost() string
	Name() string
	// Type is "classic" or "quorum".
	Type() string
	// Setting returns an effective setting by its name in policies ("message-ttl",
	// not "x-message-ttl"), merged from the queue's arguments and policies.
	Setting(name string) (any, bool)
	// Strategy is the name of the expiry strategy in force.
	Strategy() string

	Ready() int        // ready messages
	ReadyBytes() int64 // of their bodies
	Unacked() int      // unacknowledged messages
	Held() int         // messages that wait for the end of their hold
	Consumers() int    // with or without credit
	Credit() int       // messages that its consumers can take now
}

// IntSetting reads a setting that was validated as an integer.
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

// StringSetting reads a setting that was validated as a string.
func StringSetting(q Queue, name string) (string, bool) {
	v, ok := q.Setting(name)
	if !ok {
		return "", false
	}
	s, ok := v.(string)
	return s, ok
}
