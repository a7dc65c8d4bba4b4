// Package abi has the names and numbers of policy_v1, the contract between
// Curfew and expiry policies that are compiled to WebAssembly: a module's
// exports, its permitted imports, and the layout of the memory they share.
//
// The package imports nothing, so that the broker and guests written in Go can
// share it. README.md is the specification; a test compares the two.
//
// Conventions: little endian; instants are milliseconds since 1970 (i64), -1 is
// none or never; strings are UTF-8, given as pointer and length (i32, i32). The
// guest owns all memory. The host uses a guest's pointer during that call only,
// except the one that policy_buf returns. One call at a time.
package abi

const (
	// Name is the export that names a module's version, and the module of the
	// broker's functions.
	Name = "policy_v1"
	// Prefix begins the names of all versions; the number follows.
	Prefix = "policy_v"
	// Version is the number of this one.
	Version = 1
	// WASI is the module that compilers import the operating system from.
	WASI = "wasi_snapshot_preview1"
)

const (
	// MaxCapacity is the highest number of messages per call that a module may ask for.
	MaxCapacity = 1024
	// MaxModule is the maximum size of a module, in bytes.
	MaxModule = 8 << 20
	// MaxConfig is the maximum size of a configuration, in bytes of JSON.
	MaxConfig = 64 << 10
	// MaxText is the maximum length of a text of log and fail, in bytes; longer ones are truncated.
	MaxText = 1024
	// MaxName is the maximum length of an exchange, a routing key, or the name of a
	// header, a setting, a counter or an attribute, in bytes.
	MaxName = 255
	// MaxCounters is how many names a policy may use with counter_add.
	MaxCounters = 32
)

// Hook is a question that the broker asks a policy.
type Hook uint8

// The hooks. Their numbers are the bits of policy_hooks' result.
const (
	Deadline   Hook = iota // when is this message's time up: a call for each message
	OnEnqueue              // messages are about to enter the queue
	OnDeadline             // they are due
	OnHead                 // they are delivered next, and a verdict asked for this call
	OnRequeue              // they were requeued
	OnIdle                 // the queue has no consumers

	// Hooks is the number of hooks.
	Hooks
)

// String returns the name under which the hook is exported.
func (h Hook) String() string {
	return [Hooks]string{"deadline", "on_enqueue", "on_deadline", "on_head", "on_requeue", "on_idle"}[h]
}

// The other exports.
const (
	ExportInitialize = "_initialize"      // called first, where there is one
	ExportBuffer     = "policy_buf"       // address of records and verdicts
	ExportConfigure  = "policy_configure" // is given the configuration
	ExportHooks      = "policy_hooks"     // which of the exported hooks are in use
)

// A record describes a message to a hook. The buffer holds the records of all messages
// of the call, one after the other, followed by their verdicts.
const (
	RecordSize = 64

	RecordEnqueued   = 0  // i64: when it entered this queue
	RecordExpiration = 8  // i64: the publisher's expiration, a duration; -1 none
	RecordQueueTTL   = 16 // i64: the queue's message-ttl, a duration; -1 none
	RecordDeadline   = 24 // i64: in force; -1 none
	RecordState      = 32 // i64: the policy's own
	RecordSizeOf     = 40 // u32: bytes of body
	RecordDeliveries = 44 // u32: how often it was delivered and requeued
	RecordDeaths     = 48 // u32: how often it was dead-lettered
	RecordQueue      = 52 // u32: for queue_arg_i64 and queue_arg_str
	RecordPriority   = 56 // u8
	RecordFlags      = 57 // u8: see FlagRedelivered and so on
	RecordWhy        = 58 // u8: see WhyEnqueue and so on
	RecordReserved   = 59 // to 63: zero
)

// Bits of a record's flags.
const (
	FlagRedelivered = 1 << iota // it was delivered before
	FlagPersistent              // its publisher asked for it to survive a restart
	FlagDLX                     // the queue has a dead-letter exchange
)

// The occasions on which a hook is called about a message.
const (
	WhyEnqueue  = 1 // on_enqueue and deadline, also for messages already queued
	WhyDeadline = 2
	WhyHead     = 3
	WhyRequeue  = 4
)

// A verdict is a hook's decision about a message. Before each call the broker sets
// all verdicts to NoOpinion, with until -1 or, in on_head and on_requeue, the
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
	Expire     = 1   // dead-lettered if the queue is configured for it, dropped otherwise
	DeadLetter = 2   // to an exchange of the policy's choice; not before until
	Requeue    = 3   // stays, and is asked about again; not before until
	Drop       = 4   // without dead-lettering
	NoOpinion  = 255 // the broker decides as without a policy
)

// Bits of a verdict's flags.
const (
	SetState  = 1 << iota // store the state with the message
	AskAtHead             // call on_head when the message is delivered next
)

// Results of on_idle other than the time of the next call.
const (
	IdleDelete    = -1 // delete the queue
	IdleNever     = -2 // it stays
	IdleNoOpinion = 0  // the queue's x-expires decides
)

// Levels of log.
const (
	LogDebug = iota
	LogInfo
	LogWarn
	LogError
)

// The properties of prop_str.
const (
	PropExchange = 1 + iota
	PropRoutingKey
	PropMessageID
	PropType
	PropAppID
	PropUserID
)

// Earliest and Latest bound valid instants. Values outside are taken for mistakes, such as
// seconds or nanoseconds.
const (
	Earliest = 100_000_000_000     // 1973
	Latest   = 253_402_300_799_999 // 9999
)

// Grant is a permission that an operator gives a policy.
type Grant string

// The grants.
const (
	Always  Grant = ""        // no grant is needed
	Headers Grant = "headers" // read headers, exchange, routing key and some properties of messages
	Body    Grant = "body"    // read bodies of messages
	Route   Grant = "route"   // dead-letter messages to an exchange of its choice
	Metrics Grant = "metrics" // count
	Trace   Grant = "trace"   // add attributes to traces
	Hold    Grant = "hold"    // keep messages from being delivered before a time
)

// Grants returns the grants that can be given.
func Grants() []Grant { return []Grant{Headers, Body, Route, Metrics, Trace, Hold} }
