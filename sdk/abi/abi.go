// Package abi has the names and numbers of policy_v1, the contract between
// Curfew and expiry policies that are compiled to WebAssembly: what a module
// exports, what it may import, and where in memory things are.
//
// The package imports nothing, so that the broker and guests written in Go can
// share it. README.md says what it all means; a test holds the two together.
//
// Conventions: little endian; instants are milliseconds since 1970 (i64), -1 is
// none or never; strings are UTF-8, given as pointer and length (i32, i32). The
// guest owns all memory. A pointer that the host was given is used during that
// call only, but for the one that policy_buf returns. One call at a time.
package abi

const (
	// Name is the export that says which version a module speaks, and the module
	// that it imports the broker's functions from.
	Name = "policy_v1"
	// Prefix is what the names of all versions begin with; their number follows.
	Prefix = "policy_v"
	// Version is the number of this one.
	Version = 1
	// WASI is the module that compilers import the operating system from.
	WASI = "wasi_snapshot_preview1"
)

const (
	// MaxCapacity is the most messages that a module may ask to be given at once.
	MaxCapacity = 1024
	// MaxModule is the size of the largest module, in bytes.
	MaxModule = 8 << 20
	// MaxConfig is the size of the largest configuration, in bytes of JSON.
	MaxConfig = 64 << 10
	// MaxText is how much is taken of what log and fail are given, in bytes.
	MaxText = 1024
	// MaxName is the length of the longest exchange, routing key, or name of a
	// header, a setting, a counter or an attribute, in bytes.
	MaxName = 255
	// MaxCounters is how many names a policy may use with counter_add.
	MaxCounters = 32
)

// Hook is something that a broker asks a policy.
type Hook uint8

// The hooks. Their numbers are the bits of what policy_hooks returns.
const (
	Deadline   Hook = iota // when is this message's time up: a call for each message
	OnEnqueue              // messages are about to enter the queue
	OnDeadline             // their time is up
	OnHead                 // they are next to be handed out, and asked for this
	OnRequeue              // they came back unacknowledged
	OnIdle                 // the queue has no consumers

	// Hooks is how many there are.
	Hooks
)

// String returns the name that the hook is exported by.
func (h Hook) String() string {
	return [Hooks]string{"deadline", "on_enqueue", "on_deadline", "on_head", "on_requeue", "on_idle"}[h]
}

// The other exports.
const (
	ExportInitialize = "_initialize"      // called first, where there is one
	ExportBuffer     = "policy_buf"       // where records and verdicts go
	ExportConfigure  = "policy_configure" // is given the configuration
	ExportHooks      = "policy_hooks"     // which hooks are wanted of those exported
)

// A record is what a hook is told of a message. The buffer holds as many as
// the call has messages, one behind the other, and the verdicts behind them.
const (
	RecordSize = 64

	RecordEnqueued   = 0  // i64: when it entered this queue
	RecordExpiration = 8  // i64: the publisher's expiration, a duration; -1 none
	RecordQueueTTL   = 16 // i64: the queue's message-ttl, a duration; -1 none
	RecordDeadline   = 24 // i64: in force; -1 none
	RecordState      = 32 // i64: the policy's own
	RecordSizeOf     = 40 // u32: bytes of body
	RecordDeliveries = 44 // u32: how often it was handed out and came back
	RecordDeaths     = 48 // u32: how often it was dead-lettered
	RecordQueue      = 52 // u32: for queue_arg_i64 and queue_arg_str
	RecordPriority   = 56 // u8
	RecordFlags      = 57 // u8: see FlagRedelivered and so on
	RecordWhy        = 58 // u8: see WhyEnqueue and so on
	RecordReserved   = 59 // to 63: zero
)

// Bits of a record's flags.
const (
	FlagRedelivered = 1 << iota // it was handed out before
	FlagPersistent              // its publisher asked for it to survive a restart
	FlagDLX                     // the queue has a dead-letter exchange
)

// What brings a message before a hook.
const (
	WhyEnqueue  = 1 // on_enqueue, deadline; and messages that are asked about anew
	WhyDeadline = 2
	WhyHead     = 3
	WhyRequeue  = 4
)

// A verdict is what a hook says of a message. Before each call the broker sets
// all of them to NoOpinion, with until -1 or, in on_head and on_requeue, the
// deadline in force.
const (
	VerdictSize = 32

	VerdictAction      = 0  // u32: see Keep and so on
	VerdictFlags       = 4  // u32: see SetState and AskAtHead
	VerdictUntil       = 8  // i64
	VerdictState       = 16 // i64: with SetState
	VerdictStrings     = 24 // u32: points to the exchange, and the routing key behind it
	VerdictExchangeLen = 28 // u16
	VerdictKeyLen      = 30 // u16
)

// The actions of a verdict.
const (
	Keep       = 0   // until a time; -1 = for ever
	Expire     = 1   // its time is up: dead-lettered if the queue is set up so, dropped otherwise
	DeadLetter = 2   // to an exchange of the policy's choice; not before until
	Requeue    = 3   // goes on waiting, and is asked about again; not before until
	Drop       = 4   // without dead-lettering
	NoOpinion  = 255 // what the broker would do without a policy
)

// Bits of a verdict's flags.
const (
	SetState  = 1 << iota // state is to be stored with the message
	AskAtHead             // call on_head when the message is next to be handed out
)

// What on_idle returns if it is not the time at which to ask again.
const (
	IdleDelete    = -1 // delete the queue
	IdleNever     = -2 // it stays
	IdleNoOpinion = 0  // what the queue's own x-expires says
)

// Levels of log.
const (
	LogDebug = iota
	LogInfo
	LogWarn
	LogError
)

// What prop_str can be asked for.
const (
	PropExchange = 1 + iota
	PropRoutingKey
	PropMessageID
	PropType
	PropAppID
	PropUserID
)

// Earliest is the first instant that is one: what lies before, and after
// Latest, is taken for a mistake, such as seconds or nanoseconds.
const (
	Earliest = 100_000_000_000     // 1973
	Latest   = 253_402_300_799_999 // 9999
)

// Grant is what an operator lets a policy do.
type Grant string

// The grants.
const (
	Always  Grant = ""        // every policy may
	Headers Grant = "headers" // read headers, exchange, routing key and some properties of messages
	Body    Grant = "body"    // read bodies of messages
	Route   Grant = "route"   // dead-letter messages to where it likes
	Metrics Grant = "metrics" // count
	Trace   Grant = "trace"   // add attributes to traces
)

// Grants lists those that can be given.
func Grants() []Grant { return []Grant{Headers, Body, Route, Metrics, Trace} }
