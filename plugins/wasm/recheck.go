package wasm

import (
	"slices"

	"github.com/curfewmq/curfew/sdk/hook"
	"github.com/curfewmq/curfew/sdk/hook/guest"
)

// When a policy fails, or one of its versions is replaced because it failed, some queued messages have no deadline of a working
// module and might wait for ever. Once a working version is in force, it is called about them again.

// recheck selects these messages: those without a module's deadline, and those with a deadline of a failed version.
type recheck struct{ failed []uint64 } // digests

func (d *recheck) covers(m *hook.Message) bool {
	return guest.MessageDigest(m) == 0 || slices.Contains(d.failed, guest.MessageDigest(m))
}

// maxFailedVersions bounds the failed versions that a policy remembers.
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

// addEnteredFailed counts enqueued messages about which a failed version decided.
func (p *policy) addEnteredFailed(entered uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.enteredFailed += entered
}

// review reports whether queued messages need new deadlines from the version now in force: all messages if all is set,
// otherwise those in doubt, if there may be any.
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
	p.recheck.Store(&recheck{slices.Clone(p.failedVersions)})
	p.report.reviewed(n + p.enteredFailed)
	p.enteredFailed = 0
	return true
}

// recovered starts a recheck of messages that were enqueued while the policy was not called. It runs in a queue's turn.
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

// decided counts messages that are no longer in doubt. left is how many still are.
func (p *policy) decided(messages, left int) {
	for {
		n := p.undecided.Load()
		next := max(n-min(n, uint64(messages)), uint64(left))
		if n == next || p.undecided.CompareAndSwap(n, next) {
			return
		}
	}
}

// inDoubt returns about how many messages the policy still has to be called. Some of the
// counted messages have left their queues, and only the queues know that.
func (p *policy) inDoubt() uint64 {
	n := p.undecided.Load()
	if n == 0 || p.host.env.Undecided == nil {
		return n
	}
	there := uint64(p.host.env.Undecided(prefix + p.name))
	if there == 0 {
		p.undecided.CompareAndSwap(n, 0)
	}
	return there
}

// reconsider calls the policy about messages in doubt, after a review.
func (c *call) reconsider() {
	inDoubt := func(_ hook.Instant, m *hook.Message, _ *hook.Verdict) (callReason, bool) {
		return c.at, c.binding.recheck.covers(m)
	}
	c.forEachRun(inDoubt, func(run call) { run.tryAgain() })
}
