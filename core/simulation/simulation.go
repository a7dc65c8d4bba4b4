// Package simulation plays the fate of a message in a queue: the decisions of the queue's plugins, and their times. There is no queue, and
// nothing real happens: the plugins are those of a separate [chain.Chain], and time is a number.
//
// The message is alone in its queue. It is treated as package queue would treat it, with the same hooks in the same order. Effects of other
// messages, such as the place in the queue, are not simulated.
package simulation

import (
	"slices"
	"time"

	"github.com/curfewmq/curfew/core/chain"
	"github.com/curfewmq/curfew/core/queue"
	"github.com/curfewmq/curfew/sdk/hook"
)

// Stage is the environment of a simulation: the plugins that decide, and functions that observe them.
type Stage struct {
	Chain *chain.Chain
	// Opinions returns the verdicts of shadows in the last call of hooks, and discards them. nil means that there are no shadows.
	Opinions func() []Opinion
	// Notes returns log lines and errors of plugins since the last call, and discards them. nil means that they are not observed.
	Notes func() []string
	// Deciders returns the names of the plugins that changed the verdict in the last call
	// of hooks, and discards them. nil means that they are not observed.
	Deciders func() []string
}

// Opinion is the verdict of a shadow beside the verdict in force.
type Opinion struct {
	Policy, Digest string // of the shadow
	InForce        hook.Verdict
	Verdict        hook.Verdict
	Differs        bool
}

// Message is a message that enters a queue.
type Message struct {
	Exchange, Key string
	Props         []byte
	Body          []byte
	Size          int // bytes of the body; Body may hold only its beginning
	Priority      uint8
	Expiration    []byte // the property; nil means that the message has none
	Persistent    bool
	Deaths        int // how often the message was dead-lettered
	// Hold are the values of the headers from which holds are read: see
	// [chain.Chain.ReadHold]. nil means that the message has no such header.
	Hold []any
}

// Act is an act of a consumer.
type Act string

// The acts.
const (
	Deliver Act = "deliver" // the consumer gets the message, if it is ready
	Ack     Act = "ack"
	Reject  Act = "reject"  // basic.reject or basic.nack without requeue
	Requeue Act = "requeue" // basic.nack with requeue: no failure
	Fail    Act = "fail"    // basic.reject with requeue, or a channel that ends: a failed delivery
)

// Acts returns all acts.
func Acts() []Act { return []Act{Deliver, Ack, Reject, Requeue, Fail} }

// Known reports whether a is one of the acts.
func (a Act) Known() bool { return slices.Contains(Acts(), a) }

// Step is an act of a consumer at a time.
type Step struct {
	After time.Duration // time since the message entered
	Do    Act
}

// Play is the scenario of a simulation.
type Play struct {
	Queue   *queue.Profile
	Name    string // of the queue
	Counts  Counts // of the queue, as plugins see them
	Message Message
	At      hook.Instant // when the message enters
	Steps   []Step       // in the order of their times
	For     time.Duration
	// Expired reports that the simulation has taken too long; nil means that it never has.
	Expired func() bool
}

// Counts are the counts of a queue that plugins see. They stay the same while the message comes and goes.
type Counts struct {
	Ready, Unacked, Held, Consumers, Credit int
	ReadyBytes                              int64
}

// MaxEvents is the maximum number of events in a simulation.
const MaxEvents = 256

// Event is a moment of a simulation.
type Event struct {
	At   hook.Instant
	Hook string // "" means that no plugin was asked
	// With a hook:
	Verdict  hook.Verdict
	By       []string // plugins that changed the verdict
	Opinions []Opinion
	Notes    []string // log lines and errors of plugins
	// Text describes the event.
	Text string
}

// End is the fate of a message.
type End string

// The ends. With the first three, the message is in the queue when the simulation ends.
const (
	Ready      End = "ready"
	Held       End = "held"
	Unacked    End = "unacked"
	Acked      End = "acked"
	Expired    End = "expired"
	Dropped    End = "dropped" // for another reason than a deadline: see Result.Verdict
	DeadLetter End = "dead_lettered"
	Refused    End = "refused" // its publisher gets basic.nack
	Closed     End = "channel_closed"
)

// Result is the result of a simulation.
type Result struct {
	Events []Event
	End    End
	// Verdict is the verdict by which the message left, with Expired, Dropped, DeadLetter and Refused.
	Verdict hook.Verdict
	// Error is the reason for which the publisher's channel is closed, with Closed.
	Error string
	// Complete is false if one of its limits has ended the simulation before the message left.
	Complete bool
	Deadline hook.Instant // in force at the end, if the message is still there; 0 means none
	Hold     hook.Instant
}

// Run runs a simulation.
func Run(s *Stage, p *Play) Result {
	r := &run{stage: s, play: p, now: p.At}
	r.queue = view{profile: p.Queue, name: p.Name, counts: p.Counts}
	r.hooks = s.Chain.Attach(&r.queue, new(chain.Memo))
	r.result.Complete = true
	r.enter()
	r.advance()
	if r.hooks.WantsGone() {
		r.hooks.Gone(nil)
	}
	r.result.End, r.result.Deadline, r.result.Hold = r.end, r.deadline, r.hold
	r.result.Events = slices.Clip(r.result.Events)
	return r.result
}

// WithStrategy returns the profile of a queue with another expiry strategy in force.
func WithStrategy(p *queue.Profile, strategy string) *queue.Profile {
	const setting = "expiry-strategy"
	return &queue.Profile{
		VHost: p.VHost, Kind: p.Kind, SingleActive: p.SingleActive, Levels: p.Levels, DeliveryLimit: p.DeliveryLimit, DeliveryLease: p.DeliveryLease,
		Args: p.Args, Policies: p.Policies, Strategy: strategy,
		Settings: func(name string) (any, bool) {
			if name == setting {
				return strategy, true
			}
			return p.Settings(name)
		},
	}
}

// view is a queue as plugins see it.
type view struct {
	profile *queue.Profile
	name    string
	counts  Counts
}

var _ hook.Queue = (*view)(nil)

// The methods of [hook.Queue].

func (v *view) VHost() string                   { return v.profile.VHost }
func (v *view) Name() string                    { return v.name }
func (v *view) Type() string                    { return v.profile.Kind }
func (v *view) Setting(name string) (any, bool) { return v.profile.Settings(name) }
func (v *view) Strategy() string                { return v.profile.Strategy }
func (v *view) Ready() int                      { return v.counts.Ready }
func (v *view) ReadyBytes() int64               { return v.counts.ReadyBytes }
func (v *view) Unacked() int                    { return v.counts.Unacked }
func (v *view) Held() int                       { return v.counts.Held }
func (v *view) Consumers() int                  { return v.counts.Consumers }
func (v *view) Credit() int                     { return v.counts.Credit }
