// Package policy is for expiry policies in Go: what decides, inside of Curfew,
// when a message's time is up, compiled to WebAssembly.
//
// A policy is a type with one or more of the hooks below as methods, handed to
// [Register] when the program is initialized:
//
//	type short struct{}
//
//	func (short) OnEnqueue(now int64, _ *policy.Msg, v *policy.Verdict) { v.Keep(now + 30_000) }
//
//	var _ = policy.Register(short{})
//
//	func main() {} // is not called
//
// It is built with
//
//	GOOS=wasip1 GOARCH=wasm go build -buildmode=c-shared -ldflags='-s -w' -o short.wasm .
//
// Instants are milliseconds since 1970 and durations milliseconds; [None] is
// none or never. One call is made at a time. What a hook is given is valid until
// it returns. What a policy keeps in memory can be gone at any call, and there
// are several instances of it that know nothing of each other: what it must
// remember about a message goes into the message's state.
//
// The package compiles for other systems too, so that a policy's tests can call
// its methods: there is no broker then, settings and headers are absent, and
// what is logged or counted goes nowhere.
package policy

import "github.com/curfewmq/curfew/sdk/abi"

// None stands for no time, or never.
const None = -1

// Why is what brings a message before a hook.
type Why uint8

// The occasions.
const (
	WhyEnqueue  Why = abi.WhyEnqueue
	WhyDeadline Why = abi.WhyDeadline
	WhyHead     Why = abi.WhyHead
	WhyRequeue  Why = abi.WhyRequeue
)

// Msg is a message as hooks see it.
type Msg struct {
	Enqueued    int64 // when it entered this queue
	Expiration  int64 // the publisher's expiration, a duration
	QueueTTL    int64 // the queue's message-ttl, a duration
	Deadline    int64 // in force
	State       int64 // what the policy had stored with it
	Size        int   // bytes of body
	Deliveries  int   // how often it was handed out and came back
	Deaths      int   // how often it was dead-lettered
	Priority    uint8
	Why         Why
	Redelivered bool // it was handed out before
	Persistent  bool // its publisher asked for it to survive a restart
	HasDLX      bool // its queue has a dead-letter exchange

	queue, index uint32
}

// Action is what becomes of a message.
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

// Verdict is what a hook says of a message. It starts as no opinion: what the
// broker does without a policy, by the message's expiration and the queue's
// message-ttl.
type Verdict struct {
	Action        Action
	Until         int64
	State         int64
	HasState      bool
	Ask           bool // call OnHead
	Exchange, Key string
}

// Keep has the message wait until then; [None] is for ever.
func (v *Verdict) Keep(until int64) { v.Action, v.Until = Keep, until }

// Expire says that its time is up: it is dead-lettered if the queue is set up
// so, and dropped otherwise.
func (v *Verdict) Expire() { v.Action = Expire }

// DeadLetter sends the message to an exchange of the policy's choice. With an
// empty key it keeps its own. It needs the grant route.
func (v *Verdict) DeadLetter(exchange, key string) {
	v.Action, v.Until, v.Exchange, v.Key = DeadLetter, None, exchange, key
}

// AskAgain has the message wait on, and the policy asked about it again at that
// time at the earliest.
func (v *Verdict) AskAgain(at int64) { v.Action, v.Until = AskAgain, at }

// Drop drops the message without dead-lettering it.
func (v *Verdict) Drop() { v.Action = Drop }

// SetState stores eight bytes of the policy's own with the message.
func (v *Verdict) SetState(s int64) { v.State, v.HasState = s, true }

// AskAtHead has OnHead called when the message is next to be handed out.
func (v *Verdict) AskAtHead() { v.Ask = true }

// Configurer is a policy with settings. An error refuses them, and the operator
// reads why.
type Configurer interface {
	Configure() error
}

// EnqueueHook is asked about messages that are about to enter a queue.
type EnqueueHook interface {
	OnEnqueue(now int64, m *Msg, v *Verdict)
}

// DeadlineHook is asked about messages whose deadline is reached. Without it they
// expire.
type DeadlineHook interface {
	OnDeadline(now int64, m *Msg, v *Verdict)
}

// HeadHook is asked about messages that are next to be handed out, if a verdict
// said AskAtHead.
type HeadHook interface {
	OnHead(now int64, m *Msg, v *Verdict)
}

// RequeueHook is asked about messages that came back unacknowledged. Without it
// they keep their deadline.
type RequeueHook interface {
	OnRequeue(now int64, m *Msg, v *Verdict)
}

// IdleHook is asked while a queue has no consumers. It returns when to ask again,
// or one of the values below.
type IdleHook interface {
	OnIdle(now, idle int64, ready, unacked, consumers int) int64
}

// What OnIdle returns if it is not a time.
const (
	IdleNoOpinion = abi.IdleNoOpinion // what the queue's own x-expires says
	IdleDelete    = abi.IdleDelete    // delete the queue
	IdleStays     = abi.IdleNever     // it stays, and is not asked about again
)

// registered is the policy of this program, taken apart: what it has none of is
// nil.
var registered struct {
	hooks int64 // a bit of its number for each that there is

	configure                                func() error
	onEnqueue, onDeadline, onHead, onRequeue func(now int64, m *Msg, v *Verdict)
	onIdle                                   func(now, idle int64, ready, unacked, consumers int) int64
}

// Register makes p the policy that this program is. It is called once, while the
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
