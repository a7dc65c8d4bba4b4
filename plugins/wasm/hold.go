package wasm

import (
	"slices"

	"github.com/curfewmq/curfew/sdk/abi"
	"github.com/curfewmq/curfew/sdk/hook"
)

// A guest holds messages of its present call with the host function hold. A hold takes effect together with the verdict about its message,
// when the call has succeeded: a failing call holds nothing.

// noHold is the time of a message that is not held.
const noHold = 0

// hostHold records until when a message is held. If a message gets several times, the last one counts.
func (in *instance) hostHold(stack []uint64) {
	in.message("hold", stack[0])
	if len(in.holds) == 0 {
		n := len(in.batch)
		in.charge(8 * n)
		in.holds = slices.Grow(in.holds, n)[:n]
		clear(in.holds)
	}
	in.holds[uint32(stack[0])] = int64(stack[1])
}

// held returns until when the guest holds message i of its call, in its milliseconds.
func (in *instance) held(i int) int64 {
	if len(in.holds) == 0 {
		return noHold
	}
	return in.holds[i]
}

// decide applies a guest's verdict about a message, together with its hold. If either is invalid, neither has an effect.
func (c *call) decide(i int, a *verdict, in *instance) mistake {
	if atOnceOrNever(a.hold) {
		return c.apply(i, a, in)
	}
	if a.latest = c.latestHold(in.version); a.hold < abi.Earliest || a.hold > a.latest {
		return invalidHold
	}
	v := &c.vs[i]
	before := v.Hold
	v.Hold = max(before, c.holdUntil(i, a.hold))
	what := c.apply(i, a, in)
	if what != fine || !c.stays(v) {
		v.Hold = before
	}
	return what
}

// latestHold returns the latest time until which a message may be held, in a guest's milliseconds.
func (c *call) latestHold(v *version) int64 {
	most := v.policy.host.env.MaxHold
	if !most.Set() {
		most = hook.LimitOf(hook.MaxMillis)
	}
	return min(millis(c.now.AddMillis(most.N())), abi.Latest)
}

// holdUntil returns until when to hold a message for which the guest gave a time; 0 means not at all. Except when the message is being
// enqueued, the hold lasts at least a second, so that a policy that is called again and again costs a bounded number of calls.
func (c *call) holdUntil(i int, until int64) hook.Instant {
	if until <= millis(c.now) {
		return 0
	}
	t := c.instant(&c.ms[i], until)
	if c.at == atHead || c.at == atDue {
		t = max(t, c.now.AddMillis(retryMillis))
	}
	return t
}

// stays reports whether a verdict keeps its message, so that a hold applies. A requeued message that the guest removes gets a deadline
// in the past.
func (c *call) stays(v *hook.Verdict) bool {
	due := v.Deadline != 0 && v.Deadline <= c.now
	return v.Action == hook.Keep && c.at != atChange && (c.at != atRequeue || !due)
}
