package wasm

import (
	"slices"

	"github.com/curfewmq/curfew/sdk/hook"
	"github.com/curfewmq/curfew/sdk/hook/guest"
)

// When a policy fails, or one of its versions is replaced for failing, some queued messages have no deadline of a working
// module and may wait for ever. Once a working version is in force it is asked about them again.

// recheck selects those messages: those without a module's deadline, and those with a deadline of a failed version.
type recheck struct{ failed []uint64 } // digests

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
	p.recheck.Store(&recheck{slices.Clone(p.failedVersions)})
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

// decided counts messages that were in doubt, and those that still are.
func (p *policy) decided(messages, left int) {
	for {
		n := p.undecided.Load()
		next := max(n-min(n, uint64(messages)), uint64(left))
		if n == next || p.undecided.CompareAndSwap(n, next) {
			return
		}
	}
}

// inDoubt returns how many messages the policy is to be asked about. Some of those that were counted have left their queues, which
// know it.
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

// reconsider asks about messages in doubt, after a review.
func (c *call) reconsider() {
	inDoubt := func(_ hook.Instant, m *hook.Message, _ *hook.Verdict) (callReason, bool) {
		return c.at, c.binding.recheck.covers(m)
	}
	c.forEachRun(inDoubt, func(run call) { run.tryAgain() })
}
