package chain

import (
	"github.com/curfewmq/curfew/sdk/hook"
	"github.com/curfewmq/curfew/sdk/hook/guest"
)

// allowed has the valid actions of each hook point, as bits.
var allowed = [hookPoints]uint8{
	onEnqueue: 1<<hook.Keep | 1<<hook.Drop | 1<<hook.Route | 1<<hook.Refuse,
	onHead:    1<<hook.Keep | 1<<hook.Drop | 1<<hook.Route,
	onRequeue: 1 << hook.Keep,
	onRestamp: 1 << hook.Keep,
	onReturn:  1 << hook.Keep,
	onIdle:    1<<hook.Keep | 1<<hook.Drop,
}

// valid reports whether the queue can carry out v at hook point p.
func valid(p hookPoint, v *hook.Verdict) bool {
	if v.Action > hook.Refuse || allowed[p]&(1<<v.Action) == 0 {
		return false
	}
	switch v.Action {
	case hook.Drop:
		return hasReason(v.Reason)
	case hook.Route:
		return hasReason(v.Reason) && v.Reason != hook.ReasonDuplicate && v.Target != nil
	case hook.Keep:
		return v.Deadline >= 0 && v.Hold >= 0
	}
	return true
}

// hasReason reports whether plugins may use r as the reason for removing a message.
func hasReason(r hook.Reason) bool {
	return r != hook.ReasonNone && r < hook.ReasonReleased || r == hook.ReasonTooLarge
}

// vet checks a plugin's verdicts against the previous ones and returns how many refuse. If before is nil, the previous verdicts were zero.
func (h *Hooks) vet(by *pluginEntry, p hookPoint, ms []hook.Message, before, vs []hook.Verdict) int {
	refused := 0
	strategy := by == h.strategy
	var zero hook.Verdict
	was := &zero
	for i := range vs {
		v := &vs[i]
		if before != nil {
			was = &before[i]
		}
		v.Watch = v.Watch && p == onEnqueue || was.Watch
		if v.Hold >= 0 {
			v.Hold = max(v.Hold, was.Hold)
		}
		if keeps(was, v) && v.Hold >= 0 && (strategy && v.Deadline >= 0 || v.Deadline == was.Deadline && v.State == was.State && guest.Digest(v) == guest.Digest(was) && v.Again == was.Again) {
			if strategy && v.Deadline != was.Deadline && guest.Digest(v) != 0 && !by.dynamic {
				guest.SetDigest(v, 0) // the digest of a module that did not set this deadline
			}
			continue // the most frequent case
		}
		if v.Action == hook.Keep && p == onHead && ms[i].Why == hook.WhyLeaving {
			by.putBack(p, was, v)
			continue
		}
		h.vetOne(by, p, was, v)
		if v.Action == hook.Refuse {
			refused++
		}
	}
	return refused
}

func keeps(was, v *hook.Verdict) bool { return v.Action == hook.Keep && was.Action == hook.Keep }

// vetOne replaces an invalid verdict by the previous one, and undoes changes that only the strategy may make.
func (h *Hooks) vetOne(by *pluginEntry, p hookPoint, was, v *hook.Verdict) {
	if !valid(p, v) {
		by.putBack(p, was, v)
		return
	}
	if by == h.strategy {
		return
	}
	v.State, v.Again = was.State, was.Again
	guest.SetDigest(v, guest.Digest(was))
	if was.Deadline != 0 && (v.Deadline == 0 || v.Deadline > was.Deadline) {
		v.Deadline = was.Deadline
	}
}

// putBack counts an invalid verdict and replaces it by the previous one.
func (p *pluginEntry) putBack(at hookPoint, was, v *hook.Verdict) {
	p.invalid[at].Add(1)
	*v = *was
}
