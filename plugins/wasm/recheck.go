package wasm

import (
	"slices"

	"github.com/curfewmq/curfew/sdk/hook"
)

// A policy that fails, or a version of it that has to go, leaves messages behind that were decided about without it, or by
// a version that was none: they may wait for ever. When a version is in force that works, they are asked about again.

// recheck says which messages those are: the ones that no module decided about, and those of versions that failed.
type recheck struct{ failed []uint64 } // digests

func (d *recheck) covers(m *hook.Message) bool {
	return m.Digest == 0 || slices.Contains(d.failed, m.Digest)
}

// maxFailedVersions is how many versions that failed are remembered.
const maxFailedVersions = 16

// addFailedVersion notes that a version failed. The caller holds mu.
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

// addEnteredFailed notes how many messages a version that failed has seen come.
func (p *policy) addEnteredFailed(entered uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.enteredFailed += entered
}

// review says whether messages that are there are to be asked about, now that a version is in force: all, if that is
// wanted, or those in doubt, if there may be any.
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

// recovered has messages asked about again that came while the policy was not asked. It is called on a queue's turn.
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

// reconsider answers for messages that are in doubt. A call that fails leaves them as they are, and is not held against the
// version: what made another fail may be among them.
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
