package simulation

import (
	"fmt"
	"math"
	"strings"

	"github.com/curfewmq/curfew/core/chain"
	"github.com/curfewmq/curfew/core/queue"
	"github.com/curfewmq/curfew/sdk/hook"
	"github.com/curfewmq/curfew/sdk/hook/guest"
)

// run is a simulation. It follows package queue, whose functions the comments name.
type run struct {
	stage  *Stage
	play   *Play
	queue  view
	hooks  *chain.Hooks
	now    hook.Instant
	steps  int // steps of the play that were done
	result Result

	// The message.
	end            End // Ready, Held or Unacked while the message is in the queue
	deadline, hold hook.Instant
	state          int64
	digest         uint64
	askHead        bool
	redelivered    bool
	failed, nacked uint32       // how often the message came back by a failure, and by basic.nack
	lease          hook.Instant // end of its delivery's lease; 0 means none
	kept           int64        // milliseconds until plugins are asked again about a due message that they have kept
}

// enter publishes the message.
func (r *run) enter() {
	m := &r.play.Message
	expiration, err := r.expiration()
	if err != nil {
		r.refuse(fmt.Sprintf("invalid expiration '%s': %v", strings.ToValidUTF8(string(m.Expiration), "?"), err))
		return
	}
	v := hook.Verdict{}
	if m.Hold != nil {
		w, err := r.stage.Chain.ReadHold(r.now, m.Hold)
		if err != nil {
			r.refuse(err.Error())
			return
		}
		v.Hold = max(w.Until, 0)
		if w.After > 0 {
			v.Hold = max(v.Hold, r.now.AddMillis(w.After))
		}
	}
	if r.hooks.WantsEnqueue {
		ask := r.hooks.Enqueue
		if v.Hold != 0 {
			ask = r.hooks.EnqueueWaiting
		}
		view := hook.Message{Expiration: expiration}
		v = r.ask("on_enqueue", hook.WhyEnqueue, view, v, ask)
	} else {
		r.note("enters the queue")
	}
	r.admit(&v)
}

// refuse closes the publisher's channel because of a message that reaches no queue.
func (r *run) refuse(text string) {
	r.end, r.result.Error = Closed, "PRECONDITION_FAILED - "+text
	r.note("its publisher's channel is closed: " + r.result.Error)
}

func (r *run) expiration() (hook.Limit, error) {
	if r.play.Message.Expiration == nil {
		return 0, nil
	}
	return r.stage.Chain.CheckExpiration(r.play.Message.Expiration)
}

// admit carries out the verdict about the message that enters: see queue.applyEnqueueVerdicts and queue.admit.
func (r *run) admit(v *hook.Verdict) {
	switch v.Action {
	case hook.Refuse:
		r.end, r.result.Verdict = Refused, *v
		return
	case hook.Drop, hook.Route:
		r.leave(v)
		return
	}
	r.take(v)
	r.end = Ready
	if v.Hold > r.now {
		r.end, r.hold = Held, v.Hold
		if r.hooks.DeadlineFromReady && r.digest == 0 && r.deadline != 0 {
			r.deadline = r.deadline.Add(v.Hold.Sub(r.now))
			r.note("the time that it is held does not count: its deadline is " + r.after(r.deadline))
		}
		return
	}
	r.overflow()
}

// take stores a verdict that keeps the message.
func (r *run) take(v *hook.Verdict) {
	r.deadline, r.state, r.digest = v.Deadline, v.State, guest.Digest(v)
	r.askHead = r.askHead || v.AskHead
}

// overflow applies the queue's limits: see queue.enforceLimits.
func (r *run) overflow() {
	l, c, size := &r.hooks.Length, &r.play.Counts, int64(r.play.Message.Size)
	alone := l.Set() && l.N() == 0 || r.hooks.Bytes.Set() && size > r.hooks.Bytes.N()
	over := l.Set() && int64(c.Ready)+1 > l.N() || r.hooks.Bytes.Set() && c.ReadyBytes+size > r.hooks.Bytes.N()
	switch {
	case !over || r.end != Ready || r.delivers():
	case alone:
		r.drop("the queue's limit leaves no message this size", hook.ReasonMaxLen)
	default:
		r.note("the queue is full: its oldest message leaves")
	}
}

// delivers reports whether a consumer waits for the message.
func (r *run) delivers() bool {
	return r.steps < len(r.play.Steps) && r.play.Steps[r.steps].After == 0 && r.play.Steps[r.steps].Do == Deliver
}

// there reports whether the message is in the queue.
func (r *run) there() bool { return r.end == Ready || r.end == Held || r.end == Unacked }

const never = hook.Instant(math.MaxInt64)

// advance lets time pass until nothing more can happen.
func (r *run) advance() {
	horizon := r.play.At.Add(r.play.For)
	for r.there() {
		at, do := r.next()
		if do == nil {
			return
		}
		if at > horizon || len(r.result.Events) >= MaxEvents || r.play.Expired != nil && r.play.Expired() {
			r.result.Complete = false
			return
		}
		r.now = max(r.now, at)
		do()
	}
}

// next returns the next event and its time; a nil event means that nothing happens any more.
func (r *run) next() (at hook.Instant, do func()) {
	at = never
	earlier := func(t hook.Instant, f func()) {
		if t != 0 && t < at {
			at, do = t, f
		}
	}
	if r.delivers() { // a delivery comes before the deadline, which may be now
		return r.play.At, r.step
	}
	if r.end == Held {
		earlier(r.hold, r.release)
	}
	if r.end != Unacked && r.hooks.Scan != hook.ScanLazy {
		earlier(r.deadline, r.due)
	}
	if r.end == Unacked {
		earlier(r.lease, r.endLease)
	}
	if r.steps < len(r.play.Steps) {
		earlier(r.play.At.Add(r.play.Steps[r.steps].After), r.step)
	}
	return at, do
}

// release ends a hold: see queue.endHold.
func (r *run) release() {
	r.end, r.hold = Ready, 0
	r.note("its hold ends: it is ready")
	if r.deadline != 0 && r.deadline <= r.now {
		r.deadline = r.now + 1
	}
}

// due asks the plugins about a due message.
func (r *run) due() {
	v := r.ask("on_deadline", hook.WhyDue, hook.Message{}, hook.Verdict{Hold: r.hold}, r.head())
	r.putBack(&v, hook.WhyDue)
}

// head returns the hook for messages that are due, at the head of the queue, or leaving it.
func (r *run) head() call {
	if !r.hooks.WantsHead {
		return func(hook.Instant, []hook.Message, []hook.Verdict) {}
	}
	return r.hooks.Head
}

// The pauses between questions about a due message that is kept: see queue.askBackoff.
const (
	askAgainMillis = 1000
	askAgainMost   = 64 * askAgainMillis
	leastHold      = 1000 // milliseconds
)

// putBack applies a verdict about a message that is in the queue.
func (r *run) putBack(v *hook.Verdict, why hook.Why) {
	if v.Action != hook.Keep {
		r.leave(v)
		return
	}
	if why == hook.WhyHead {
		v.AskHead = true // the plugins are asked whenever it comes to the head again
	}
	r.take(v)
	if r.deadline != 0 && r.deadline <= r.now {
		r.kept = min(max(2*r.kept, askAgainMillis), askAgainMost)
		r.deadline = r.now.AddMillis(r.kept)
		r.note("it is kept although it is due: the queue asks again " + r.after(r.deadline))
	}
	switch {
	case v.Hold <= r.now:
		r.end, r.hold = Ready, 0
	case v.Hold != r.hold || r.end != Held:
		r.end, r.hold = Held, max(v.Hold, r.now.AddMillis(leastHold))
	}
}

// leave removes the message.
func (r *run) leave(v *hook.Verdict) {
	r.result.Verdict = *v
	switch {
	case v.Action == hook.Route:
		r.end = DeadLetter
	case v.Reason == hook.ReasonExpired:
		r.end = Expired
	default:
		r.end = Dropped
	}
}

// drop removes the message for another reason than a deadline.
func (r *run) drop(text string, reason hook.Reason) {
	r.note(text)
	v := r.ask("on_head", hook.WhyLeaving, hook.Message{}, hook.Verdict{Action: hook.Drop, Reason: reason}, r.head())
	r.leave(&v)
}

// after describes an instant by the time since the message entered.
func (r *run) after(t hook.Instant) string { return "at +" + t.Sub(r.play.At).String() }

// step carries out the next step of the play.
func (r *run) step() {
	s := r.play.Steps[r.steps]
	r.steps++
	switch {
	case s.Do == Deliver:
		r.deliver()
	case r.end != Unacked:
		r.note(fmt.Sprintf("%s: no consumer has it", s.Do))
	case s.Do == Ack:
		r.end = Acked
		r.note("acknowledged")
	case s.Do == Reject:
		r.drop("rejected", hook.ReasonRejected)
	case s.Do == Requeue:
		r.nacked++
		r.note("requeued")
		r.comeBack(hook.ReturnNacked)
	default:
		r.fail("its delivery failed")
	}
}

// deliver delivers the message to a consumer, if it is ready: see queue.nextMessage.
func (r *run) deliver() {
	if r.end == Unacked {
		r.note("deliver: a consumer has it already")
		return
	}
	entering := r.now == r.play.At // a message that goes straight to a waiting consumer has not expired
	if r.end == Ready && r.deadline != 0 && r.now >= r.deadline && !entering {
		r.due()
	}
	if r.end == Ready && r.askHead {
		v := r.ask("on_head", hook.WhyHead, hook.Message{}, hook.Verdict{}, r.head())
		r.putBack(&v, hook.WhyHead)
	}
	switch r.end {
	case Held:
		r.note("not delivered: it is held until " + r.after(r.hold))
	case Ready:
		r.end, r.lease = Unacked, 0
		if l := r.play.Queue.DeliveryLease; l > 0 {
			r.lease = r.now.Add(l)
		}
		r.note("delivered")
	}
}

func (r *run) endLease() { r.fail("the lease of its delivery ends") }

// fail carries out a failed delivery: see queue.countReturn.
func (r *run) fail(text string) {
	r.failed++
	p := r.play.Queue
	if p.Kind == queue.Quorum && p.DeliveryLimit >= 0 && int64(r.failed) > p.DeliveryLimit {
		r.drop(text+", once more than the delivery limit allows", hook.ReasonDeliveryLimit)
		return
	}
	r.note(text)
	r.comeBack(hook.ReturnFailed)
}

// comeBack makes the message ready again: see queue.requeue.
func (r *run) comeBack(how hook.Return) {
	r.lease, r.redelivered = 0, true
	if r.hooks.Scan == hook.ScanLazy && r.deadline != 0 && r.now >= r.deadline {
		r.end = Ready
		r.due()
		return
	}
	r.end = Ready
	v := hook.Verdict{}
	guest.Restore(&v, r.inForce())
	if r.hooks.WantsRequeue {
		v = r.ask("on_requeue", hook.WhyRequeue, hook.Message{Return: how}, v, r.hooks.Requeue)
		r.take(&v)
	}
	if r.hooks.WantsReturn() {
		v = r.ask("on_return", hook.WhyRequeue, hook.Message{Return: how, Returns: r.failed + r.nacked}, v, r.hooks.Return)
	}
	if v.Hold > r.now {
		r.end, r.hold = Held, v.Hold
	}
}

// inForce returns the message with its present deadline and state.
func (r *run) inForce() *hook.Message {
	m := &hook.Message{Deadline: r.deadline, State: r.state}
	guest.SetMessageDigest(m, r.digest)
	return m
}
