package wasm

import (
	"slices"
	"sync/atomic"
	"time"

	"github.com/curfewmq/curfew/sdk/abi"
	"github.com/curfewmq/curfew/sdk/hook"
	"github.com/curfewmq/curfew/sdk/hook/guest"
)

// When a policy fails, or one of its versions is replaced for failing, some queued messages have no deadline of a working
// module and may wait for ever. Once a working version is in force it is asked about them again.

// recheck selects those messages: those without a module's deadline, and those with a deadline of a failed version.
type recheck struct {
	failed []uint64     // digests
	faults atomic.Int32 // failed calls
}

// maxFaults is the most calls of a review that fail before those that fail are not repeated for fewer messages.
const maxFaults = 64

// mayFail counts a failed call, and reports whether more may follow.
func (d *recheck) mayFail() bool { return d.faults.Add(1) <= maxFaults }

func (d *recheck) covers(m *hook.Message) bool {
	return guest.MessageDigest(m) == 0 || slices.Contains(d.failed, guest.MessageDigest(m))
}

// maxFailedVersions is the most failed versions that a policy remembers.
const maxFailedVersions = 16

// addFailedVersion remembers a version that failed. The caller holds mu.
func (p *policy) addFailedVersion(v *version) {
	p.recheckDue = true
	if slices.Contains(p.failedVersions, v.digest) {
		return
	}
	if len(p.failedVersions) == maxFailedVersions {
		p.failedVersions = p.failedVersions[1:]
	}
	p.failedVersions = append(p.failedVersions, v.digest)
}

// addEnteredFailed counts messages that a failed version has decided about at their enqueueing.
func (p *policy) addEnteredFailed(entered uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.enteredFailed += entered
}

// review reports whether queued messages need new deadlines from the version now in force: all messages if all is set,
// otherwise those in doubt if there may be any.
func (p *policy) review(all bool) bool {
	n := p.undecided.Swap(0)
	p.mu.Lock()
	defer p.mu.Unlock()
	doubtful := p.recheckDue || n > 0
	p.recheckDue = false
	switch {
	case all:
		p.recheck.Store(nil)
		p.failedVersions = nil
		return true
	case !doubtful || p.origin == Shadow:
		return false
	}
	p.recheck.Store(&recheck{failed: slices.Clone(p.failedVersions)})
	p.report.reviewed(n + p.enteredFailed)
	p.enteredFailed = 0
	return true
}

// recovered arranges for asking about messages that were enqueued while the policy was not asked. It runs in a queue's turn.
func (h *Host) recovered(p *policy) {
	if h.env.Go == nil || p.undecided.Load() == 0 {
		return
	}
	h.env.Go(func() {
		if p.review(false) {
			h.changed(p.chosenAs(), true)
		}
	})
}

// reviewLater arranges for a review when the policy can be asked again: in a second, after the pause for a lost instance, or when the
// breaker allows a trial.
func (p *policy) reviewLater(now hook.Instant, v *version) {
	h := p.host
	if h == nil || h.env.After == nil || p.standIn || !p.reviewing.CompareAndSwap(false, true) {
		return
	}
	h.env.After(max(retryMillis*time.Millisecond, v.pool.pause(now), hook.Instant(v.breaker.until.Load()).Sub(now)), func() {
		p.reviewing.Store(false)
		if p.review(false) {
			h.changed(p.chosenAs(), true)
		}
	})
}

// stillInDoubt counts messages of a review that the policy could not be asked about.
func (c *call) stillInDoubt(v *version) {
	if c.rechecking {
		v.policy.undecided.Add(uint64(len(c.ms)))
		v.policy.reviewLater(c.now, v)
	}
}

// askHalves repeats a failed call of a review with half of its messages at a time: one of them must not keep the policy from being
// asked about the others.
func (v *version) askHalves(h abi.Hook, c *call) {
	n := len(c.ms)
	if !c.rechecking || n == 1 || !c.recheck.mayFail() {
		return
	}
	for _, half := range [...]call{c.slice(0, n/2), c.slice(n/2, n)} {
		v.askBatch(h, &half, &fuelBudget{})
	}
}

// askRest goes on with a review behind a message that failed, the first of c.
func (v *version) askRest(c *call) {
	if !c.rechecking || len(c.ms) == 1 || !c.recheck.mayFail() {
		return
	}
	rest := c.slice(1, len(c.ms))
	v.askEach(&rest)
}

// reconsider asks about messages in doubt. A failed call leaves them unchanged and does not count for the breaker: one of
// them may be the message that made the failed version fail.
func (c *call) reconsider(v *version) {
	inDoubt := func(_ hook.Instant, m *hook.Message, _ *hook.Verdict) (callReason, bool) {
		return atChange, c.binding.recheck.covers(m)
	}
	c.forEachRun(inDoubt, func(run call) {
		run.rechecking = true
		v.ask(&run)
		changed := 0
		for i := range run.ms {
			if run.vs[i].Deadline != run.ms[i].Deadline {
				changed++
			}
		}
		c.policy.asked.Add(uint64(len(run.ms)))
		c.policy.renewed.Add(uint64(changed))
	})
}
