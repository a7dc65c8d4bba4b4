package wasm

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/curfewmq/curfew/sdk/hook"
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
