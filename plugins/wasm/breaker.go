package wasm

import (
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/curfewmq/curfew/sdk/hook"
	"github.com/curfewmq/curfew/sdk/hook/guest"
)

// breaker stops calls of a failing version: for a minute after five failures within a minute, and for longer after each failed trial. Any
// goroutine may use it.
type breaker struct {
	until atomic.Int64 // the instant of the next trial; 0: closed

	mu     sync.Mutex // guards the fields below
	recent [tolerated - 1]hook.Instant
	next   int // index of the oldest in recent
	pause  time.Duration
}

const (
	tolerated     = 5 // failures
	toleratedIn   = time.Minute
	shortestPause = time.Minute
	longestPause  = 30 * time.Minute
)

// allows reports whether the version may be called.
func (b *breaker) allows(now hook.Instant) bool {
	until := b.until.Load()
	return until == 0 || now >= hook.Instant(until)
}

// success closes the breaker after a successful trial.
func (b *breaker) success(v *version) {
	if b.until.Load() == 0 {
		return
	}
	if !b.closes() {
		return
	}
	v.policy.report.recovered()
	v.policy.notify(Notice{Change: BreakerClosed, Digest: v.module.Digest})
	v.policy.host.recovered(v.policy)
}

// closes closes the breaker and reports whether it was open: another call may have closed it already.
func (b *breaker) closes() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	was := b.until.Load() != 0
	b.close()
	return was
}

// close clears all failures. The caller holds mu.
func (b *breaker) close() {
	b.until.Store(0)
	b.pause = 0
	clear(b.recent[:])
}

func (b *breaker) reset() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.close()
}

// failure counts a failure, and opens the breaker after too many.
func (b *breaker) failure(now hook.Instant, v *version) {
	if v.policy.standIn || !b.opens(now) {
		return
	}
	until := hook.Instant(b.until.Load())
	v.policy.report.opened(v.module.Digest, until)
	v.policy.notify(Notice{Change: BreakerOpened, Digest: v.module.Digest, Until: until})
	v.policy.rollBack(now, v)
}

func (b *breaker) opens(now hook.Instant) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	oldest := b.recent[b.next]
	b.recent[b.next] = now
	b.next = (b.next + 1) % len(b.recent)
	tried := b.until.Load() != 0
	if tried && now < hook.Instant(b.until.Load()) {
		return false // the call began before the breaker opened
	}
	if !tried && (oldest == 0 || now.Sub(oldest) > toleratedIn) {
		return false
	}
	b.pause = min(max(2*b.pause, shortestPause), longestPause)
	b.until.Store(int64(now.Add(b.pause)))
	return true
}

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
