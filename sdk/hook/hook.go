// Package hook is the contract between Curfew's broker and its Go plugins.
//
// A plugin is attached once to every queue, at declaration and again whenever
// the queue's effective settings change. It reads those settings there and
// hands back a [Hooks] value: callbacks, any of which may be nil, and a few
// facts the broker acts on by itself. Callbacks see a batch of messages and
// amend the verdicts beside them in place.
//
// The package is a leaf: it imports nothing of Curfew's, and a plugin needs
// nothing else.
package hook

import "time"

// Instant is a point in time in nanoseconds since the Unix epoch. Zero means
// "none": no deadline, not asked again.
type Instant int64

// Add returns t moved by d, saturating instead of overflowing.
func (t Instant) Add(d time.Duration) Instant {
	s := t + Instant(d)
	if d > 0 && s < t {
		return maxInstant
	}
	return s
}

// AddMillis returns t moved ms milliseconds into the future, saturating: a
// policy may set a TTL of any size.
func (t Instant) AddMillis(ms int64) Instant {
	if ms > int64(maxInstant-t)/int64(time.Millisecond) {
		return maxInstant
	}
	return t + Instant(ms)*Instant(time.Millisecond)
}

// Sub returns the time from u to t.
func (t Instant) Sub(u Instant) time.Duration { return time.Duration(t - u) }

// Time returns t as a [time.Time] in UTC.
func (t Instant) Time() time.Time { return time.Unix(0, int64(t)).UTC() }

const maxInstant = Instant(1<<63 - 1)

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

// Reason says why a message or a queue leaves. The strings are what clients
// find in x-death.
type Reason uint8

// The reasons, in the order RabbitMQ documents them, and ours behind them.
const (
	ReasonNone          Reason = iota
	ReasonExpired              // its time was up
	ReasonRejected             // basic.reject or basic.nack with requeue=false
	ReasonMaxLen               // the queue was longer than its limit
	ReasonDeliveryLimit        // it was returned too often
	ReasonQueueExpired         // its queue's time was up

	// Reasons is how many reasons there are, for tables indexed by Reason.
	Reasons
)

// String returns the reason as x-death carries it.
func (r Reason) String() string {
	return [Reasons]string{"", "expired", "rejected", "maxlen", "delivery_limit", "queue_expired"}[r]
}

// Action is what becomes of a message.
type Action uint8

// The actions a verdict can hold.
const (
	// Keep leaves the message where it is, or lets it into the queue.
	Keep Action = iota
	// Drop takes the message out for good, for Verdict.Reason.
	Drop
	// Route takes the message out and publishes it to Verdict.Target; the
	// broker adds x-death and drops the message where it would cycle.
	Route
	// Refuse keeps a message from entering: its publisher is told with
	// basic.nack. It ends the chain, and only OnEnqueue may say it.
	Refuse
)

// Target names where a Route goes. Make it once, when attached, and share it.
type Target struct {
	Exchange string
	Key      string // used when HasKey; otherwise the message keeps its own keys
	HasKey   bool
	// AtLeastOnce keeps the message where it was until every queue it is routed
	// to has taken it, and sends it again while one has not or none is found.
	AtLeastOnce bool
}

// Verdict is what the chain has decided for a message so far. A callback
// amends it; it starts as the broker's own decision. The chain puts back what
// it was given in place of a verdict that makes no sense: a Drop or Route
// without a Reason, a Route without a Target, an Action out of place.
type Verdict struct {
	Action  Action
	Reason  Reason // with Drop and Route
	Nack    bool   // OnEnqueue: tell the publisher with basic.nack, whatever Action is
	Final   bool   // with Drop: it is not to be dead-lettered, whatever the queue's settings say
	AskHead bool   // Keep: call OnHead whenever the message is next to be handed out, before it is
	// DeadLetter asks, with Drop from OnIdle, that the queue's messages are
	// put through OnHead with Drop(ReasonQueueExpired) before it goes.
	DeadLetter bool
	// Again says, with Keep from OnHead, that Deadline is no new deadline but only
	// when to ask again: the one in force stays, and counts after a restart.
	Again    bool
	Deadline Instant // Keep: when the message's time is up; OnIdle: when to ask again; 0 = never
	State    int64   // Keep: the strategy's own 8 bytes, stored with the message
	// Digest is, with a Deadline that a module said, the first 8 bytes of the
	// module's SHA-256 as a big-endian number: it is stored with the message, so
	// that everybody can see whose deadline it is. 0 = no module's.
	Digest uint64
	Target *Target // with Route
}

// Why says what brought a message before a callback.
type Why uint8

// The occasions.
const (
	WhyEnqueue Why = iota // it is about to enter
	WhyDue                // its deadline is reached
	WhyHead               // it reached the head
	WhyRequeue            // it came back unacknowledged
	WhyLeaving            // the broker already decided that it leaves: Drop or Route it, Keep is not heard
	WhyChange             // the queue's settings have changed
)

// Message is what a callback sees of a message. It is valid during the call
// only: a plugin that keeps one, or the slice it came in, reads garbage.
type Message struct {
	Enqueued   Instant // when it entered this queue; before it has, now
	Deadline   Instant // in force; 0 = none
	State      int64   // the strategy's own bytes
	Digest     uint64  // whose the deadline is: see [Verdict]
	Expiration Limit   // the publisher's expiration property, milliseconds
	Size       int     // body bytes
	Deliveries uint32  // how often it was handed out and came back
	Priority   uint8
	Why        Why
	Redelivered,
	Persistent,
	Traced bool // somebody follows it: see [Message.Decided]

	index  int32
	source Source
}

// Part is a piece of a message that is a string of bytes.
type Part uint8

// The parts.
const (
	PartExchange   Part = iota // it was published to
	PartRoutingKey             // it was published with
	PartMessageID              // the property message-id, and so on
	PartType
	PartAppID
	PartUserID
	PartExpiration // decimal digits: milliseconds
	PartHeaders    // the table as it was sent, encoded; its length is what a search costs
	PartBody

	// Parts is how many parts there are.
	Parts
)

// Source gives a callback what a message carries beyond the fixed fields, on
// demand. Byte slices are valid during the callback only.
type Source interface {
	// Part returns a part of the message, nil where it has none.
	Part(i int, p Part) []byte
	// Header returns a header's value in the Go type that stands for its AMQP
	// type, and whether there is one.
	Header(i int, name string) (any, bool)
	// HeaderInt is Header for values that are a number: see [Message.HeaderInt].
	HeaderInt(i int, name string) (int64, bool)
	// HeaderText is Header for strings and binaries.
	HeaderText(i int, name string) ([]byte, bool)
	// Deaths returns how often the message was dead-lettered so far.
	Deaths(i int) int
}

// Bind ties a message to its source; the broker and test kits call it.
func (m *Message) Bind(s Source, i int) { m.source, m.index = s, int32(i) }

// Exchange returns the exchange the message was published to.
func (m *Message) Exchange() []byte { return m.source.Part(int(m.index), PartExchange) }

// RoutingKey returns the routing key it was published with.
func (m *Message) RoutingKey() []byte { return m.source.Part(int(m.index), PartRoutingKey) }

// Part returns a part of the message, nil where it has none.
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

// Decided tells what a policy that is not part of the broker decided about a
// message, for its trace. It does nothing for a message that is not traced. The
// decision is read before it returns.
func (m *Message) Decided(d *Decision) {
	if w, ok := m.source.(Witness); ok && m.Traced {
		w.Decided(int(m.index), d)
	}
}

// Decision is what a policy decided about one message.
type Decision struct {
	Policy  string        // its name
	Digest  string        // of its module, "sha256:" and hexadecimal digits
	Hook    string        // that was called, "on_enqueue" for example
	Took    time.Duration // for the whole batch
	Batch   int           // messages that were decided about in the same call
	Fuel    int64         // that the call used
	Verdict Verdict
	Failure string // why there is no verdict of its own; "" = there is one
	// Attributes are what it says about the message, name and value by turns.
	Attributes []string
}

// Witness is a [Source] that wants to know of decisions.
type Witness interface {
	// Decided is [Message.Decided].
	Decided(i int, d *Decision)
}

// Scan says where in a queue a message's deadline is acted on. The expiry
// strategy of the queue chooses it.
type Scan uint8

// The choices.
const (
	ScanAnywhere Scan = iota // wherever it stands, when it is due
	ScanHeads                // at the head of each priority level
	ScanTop                  // at the head of the highest level that holds messages
	ScanLazy                 // only when it is about to be handed out, or comes back
)

// Hooks is what a plugin does for one queue. Callbacks run on the queue's
// turn: they must not block, keep ms or vs, start a goroutine or read a clock
// (now is the clock). One that panics is contained and counted, and leaves the
// verdicts it was given.
type Hooks struct {
	// OnEnqueue is called with messages about to enter the queue; verdicts
	// start as Keep.
	OnEnqueue func(now Instant, ms []Message, vs []Verdict)
	// OnHead is called with messages that are due or at the head, verdicts
	// starting as Keep with the deadline and state in force, and with messages
	// leaving for a reason the broker already knows (rejected, maxlen,
	// delivery_limit, queue_expired), starting as Drop.
	OnHead func(now Instant, ms []Message, vs []Verdict)
	// OnRequeue, when set, is asked for a new deadline and state when messages
	// come back; verdicts start with those in force, and without it they stay.
	// It can only Keep: what is due is put through OnHead afterwards. Only the
	// queue's expiry strategy is asked.
	OnRequeue func(now Instant, ms []Message, vs []Verdict)
	// OnRestamp, when set, is asked for the deadline and state of every message
	// that is there when the queue's settings change, handed out or not, in
	// batches, with other work between them. Verdicts start as for OnEnqueue,
	// and nothing but Deadline and State is heard, so that it can often be the
	// same function. Without it messages keep what they have. Only the queue's
	// expiry strategy is asked.
	OnRestamp func(now Instant, ms []Message, vs []Verdict)
	// RestampAsked keeps OnRestamp for when a [Dynamic] plugin asks for it: a
	// change of the settings alone is no reason.
	RestampAsked bool
	// OnIdle is called when the queue is or becomes unused (idle counts from
	// the last use), again at the Deadline its verdict sets, and for as long as
	// nobody consumes. Drop deletes the queue. The queue's expiry strategy is
	// asked last.
	OnIdle func(now Instant, idle time.Duration, v *Verdict)

	// Strategy marks the plugin as the queue's expiry strategy: it alone may
	// move a deadline later, and its Scan is the queue's.
	Strategy bool
	Scan     Scan

	// Shared promises that all of this follows from the queue's type, strategy
	// and settings, and that the callbacks do not look at the Queue, so that
	// queues alike in these may share it. A plugin with nothing to do for a
	// queue may promise it too. It spares memory where there are many queues.
	Shared bool

	// Length and Bytes bound the ready messages and the sum of their bodies.
	// The broker drops from the head while there are more (reason maxlen).
	Length, Bytes Limit
}

// Queue is a queue as a plugin sees it when attached. The live counts may be
// read from callbacks only.
type Queue interface {
	VHost() string
	Name() string
	// Type is "classic" or "quorum".
	Type() string
	// Setting returns an effective setting, named as policies name it
	// ("message-ttl", not "x-message-ttl"), merged from the queue's arguments
	// and its policies.
	Setting(name string) (any, bool)
	// Strategy is the name of the expiry strategy in force.
	Strategy() string

	Ready() int        // messages waiting
	ReadyBytes() int64 // their bodies
	Unacked() int      // messages handed out
	Consumers() int    // consumers registered, with credit or without
	Credit() int       // messages its consumers would take at once
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
