// Package policy is the SDK for expiry policies in Go. A policy decides inside
// Curfew when messages expire; it is compiled to WebAssembly.
//
// A policy is a type with one or more of the hooks below as methods, passed to
// [Register] when the program is initialized:
//
//	type short struct{}
//
//	func (short) OnEnqueue(_ int64, m *policy.Msg, v *policy.Verdict) { v.Keep(m.Enqueued + 30_000) }
//
//	var _ = policy.Register(short{})
//
//	func main() {} // is never called
//
// It is built with
//
//	GOOS=wasip1 GOARCH=wasm go build -buildmode=c-shared -ldflags='-s -w' -o short.wasm .
//
// Instants are milliseconds since 1970 and durations milliseconds; [None] is
// none or never. One call is made at a time. A hook's arguments are valid until it
// returns. A policy has several independent instances, and any of them may be
// discarded after a call: data about a message belongs into the message's state.
//
// The package compiles for other systems too, so that a policy's tests can call
// its methods. There is no broker then: settings and headers are absent, and logs
// and counts are discarded.
package policy

import "github.com/curfewmq/curfew/sdk/abi"

// None means no time, or never.
const None = -1

// Why is the occasion on which a hook is called about a message.
type Why uint8

// The occasions.
const (
	WhyEnqueue  Why = abi.WhyEnqueue
	WhyDeadline Why = abi.WhyDeadline
	WhyHead     Why = abi.WhyHead
	WhyRequeue  Why = abi.WhyRequeue
)

// Msg is a message as seen by hooks.
type Msg struct {
	Enqueued    int64 // when it entered this queue
	Expiration  int64 // the publisher's expiration, a duration
	QueueTTL    int64 // the queue's message-ttl, a duration
	Deadline    int64 // in force
	State       int64 // stored by the policy
	Size        int   // bytes of body
	Deliveries  int   // how often it was delivered and requeued
	Deaths      int   // how often it was dead-lettered
	Priority    uint8
	Why         Why
	Redelivered bool // it was delivered before
	Persistent  bool // its publisher asked for it to survive a restart
	HasDLX      bool // its queue has a dead-letter exchange
	// Held is the argument of the last call of Hold, for tests of policies; 0 if there was none.
	Held int64

	queue, index uint32
}

// Action says how to handle a message.
type Action uint32

// The actions. Methods of [Verdict] choose them.
const (
	Keep       Action = abi.Keep
	Expire     Action = abi.Expire
	DeadLetter Action = abi.DeadLetter
	AskAgain   Action = abi.Requeue
	Drop       Action = abi.Drop
	NoOpinion  Action = abi.NoOpinion
)

// Verdict is a hook's decision about a message. It starts as no opinion: the broker
// decides by the message's expiration and the queue's message-ttl.
type Verdict struct {
	Action        Action
	Until         int64
	State         int64
	HasState      bool
	Ask           bool // call OnHead
	Exchange, Key string
}

// Keep keeps the message until a time; [None] means forever.
func (v *Verdict) Keep(until int64) { v.Action, v.Until = Keep, until }

// Expire expires the message: it is dead-lettered if the queue is configured for it,
// and dropped otherwise.
func (v *Verdict) Expire() { v.Action = Expire }

// DeadLetter dead-letters the message to an exchange of the policy's choice. With an
// empty key the message keeps its own. It needs the grant route.
func (v *Verdict) DeadLetter(exchange, key string) {
	v.Action, v.Until, v.Exchange, v.Key = DeadLetter, None, exchange, key
}

// AskAgain keeps the message, and calls the policy about it again, not before that
// time.
func (v *Verdict) AskAgain(at int64) { v.Action, v.Until = AskAgain, at }

// Drop drops the message without dead-lettering it.
func (v *Verdict) Drop() { v.Action = Drop }

// SetState stores eight bytes, whose meaning is up to the policy, with the message.
func (v *Verdict) SetState(s int64) { v.State, v.HasState = s, true }

// AskAtHead requests a call of OnHead when the message is delivered next.
func (v *Verdict) AskAtHead() { v.Ask = true }

// Configurer is a policy with settings. If Configure returns an error, the settings are refused
// and the operator sees the error.
type Configurer interface {
	Configure() error
}

// EnqueueHook is called about messages that are about to be enqueued.
type EnqueueHook interface {
	OnEnqueue(now int64, m *Msg, v *Verdict)
}

// DeadlineHook is called about due messages. Without it they expire.
type DeadlineHook interface {
	OnDeadline(now int64, m *Msg, v *Verdict)
}

// HeadHook is called about messages that are delivered next, if a verdict requested it
// with AskAtHead.
type HeadHook interface {
	OnHead(now int64, m *Msg, v *Verdict)
}

// RequeueHook is called about requeued messages. Without it they keep their deadline.
type RequeueHook interface {
	OnRequeue(now int64, m *Msg, v *Verdict)
}

// IdleHook is called while a queue has no consumers. It returns when to call it again,
// or one of the values below.
type IdleHook interface {
	OnIdle(now, idle int64, ready, unacked, consumers int) int64
}

// Results of OnIdle other than a time.
const (
	IdleNoOpinion = abi.IdleNoOpinion // the queue's x-expires decides
	IdleDelete    = abi.IdleDelete    // delete the queue
	IdleStays     = abi.IdleNever     // the queue stays, and OnIdle is not called again
)

// registered has the hooks of this program's policy; missing ones are nil.
var registered struct {
	hooks int64 // a bit for each hook, at its number

	configure                                func() error
	onEnqueue, onDeadline, onHead, onRequeue func(now int64, m *Msg, v *Verdict)
	onIdle                                   func(now, idle int64, ready, unacked, consumers int) int64
}

// Register makes p the policy of this program. It must be called once, while the
// program is initialized: var _ = policy.Register(p). It panics if p has no
// hook.
func Register(p any) bool {
	r := &registered
	if h, ok := p.(EnqueueHook); ok {
		r.onEnqueue = h.OnEnqueue
		r.hooks |= 1 << abi.OnEnqueue
	}
	if h, ok := p.(DeadlineHook); ok {
		r.onDeadline = h.OnDeadline
		r.hooks |= 1 << abi.OnDeadline
	}
	if h, ok := p.(HeadHook); ok {
		r.onHead = h.OnHead
		r.hooks |= 1 << abi.OnHead
	}
	if h, ok := p.(RequeueHook); ok {
		r.onRequeue = h.OnRequeue
		r.hooks |= 1 << abi.OnRequeue
	}
	if h, ok := p.(IdleHook); ok {
		r.onIdle = h.OnIdle
		r.hooks |= 1 << abi.OnIdle
	}
	if c, ok := p.(Configurer); ok {
		r.configure = c.Configure
	}
	if r.hooks == 0 {
		panic("policy: what is registered has none of the hooks as a method: OnEnqueue, OnDeadline, OnHead, OnRequeue, OnIdle")
	}
	return true
}
