package wasm

import (
	"slices"

	"github.com/curfewmq/curfew/sdk/hook"
)

// A policy that fails, or a version of it that has to go, leaves messages behind that were decided about without it, or by
// a version that was none: they may wait for ever. When a version is in force that works, they are asked about again.

// doubt says which messages those are: the ones that no module decided about, and those of versions that failed.
type doubt struct{ failed []uint64 } // digests

func (d *doubt) covers(m *hook.Message) bool {
	return m.Digest == 0 || slices.Contains(d.failed, m.Digest)
}

// maxSuspects is how many versions that failed are remembered.
const maxSuspects = 16

// suspect notes that a version failed. The caller holds mu.
func (p *policy) suspect(v *version) {
	p.doubtful = true
	if slices.Contains(p.suspects, v.digest) {
		return
	}
	if len(p.suspects) == maxSuspects {
		p.suspects = p.suspects[1:]
	}
	p.suspects = append(p.suspects, v.digest)
}

// misses notes how many messages a version that failed has seen come.
func (p *policy) misses(entered uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.misled += entered
}

// review says whether messages that are there are to be asked about, now that a version is in force: all, if that is
// wanted, or those in doubt, if there may be any.
func (p *policy) review(all bool) bool {
	n := p.undecided.Swap(0)
	p.mu.Lock()
	defer p.mu.Unlock()
	doubtful := p.doubtful || n > 0
	p.doubtful = false
	switch {
	case all:
		p.doubt.Store(nil)
		p.suspects = nil
		return true
	case !doubtful || p.origin == Shadow:
		return false
	}
	p.doubt.Store(&doubt{slices.Clone(p.suspects)})
	p.report.reviewed(n + p.misled)
	p.misled = 0
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
		return atChange, c.binding.doubt.covers(m)
	}
	c.runs(inDoubt, func(run call) {
		run.again = true
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
