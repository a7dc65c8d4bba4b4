package wasm

import (
	"slices"

	"github.com/curfewmq/curfew/sdk/abi"
	"github.com/curfewmq/curfew/sdk/hook"
)

// A guest holds messages of its present call with the host function hold. A hold counts
// together with the verdict about its message, when the call has succeeded: a call that
// fails holds nothing.

// noHold is the time of a message that is not held.
const noHold = 0

// hostHold notes until when a message is held. Of several times for one message the last
// counts.
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

// decide applies a guest's verdict about a message, and the hold that came with it. If
// either is invalid, neither changes anything.
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

// latestHold returns the latest time that a message may be held until, in a guest's
// milliseconds.
func (c *call) latestHold(v *version) int64 {
	most := v.policy.host.env.MaxHold
	if !most.Set() {
		most = hook.LimitOf(hook.MaxMillis)
	}
	return min(millis(c.now.AddMillis(most.N())), abi.Latest)
}

// holdUntil returns until when a message is held for the time that a guest has given; 0
// means not at all. Unless the message has just come it is a second at least, so that a policy
// that is asked again and again costs a bounded number of calls.
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

// stays reports whether a verdict keeps its message, and is asked for holds. A requeued
// message that the guest removes has a deadline that is over.
func (c *call) stays(v *hook.Verdict) bool {
	due := v.Deadline != 0 && v.Deadline <= c.now
	return v.Action == hook.Keep && c.at != atChange && (c.at != atRequeue || !due)
}
