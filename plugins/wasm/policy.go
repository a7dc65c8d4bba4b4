package wasm

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/curfewmq/curfew/sdk/hook"
)

// Origin is where a policy comes from.
type Origin string

// The origins.
const (
	Configured Origin = "configuration" // there from the start, from a file
	Loaded     Origin = "loaded"        // while the broker runs
	Shadow     Origin = "shadow"        // runs beside a strategy, and nobody hears it
)

// policy is a name that queues choose, and the module behind it at the moment. Any
// goroutine may use it; name, origin and what follows from it do not change.
type policy struct {
	host   *Host
	name   string
	origin Origin
	path   string // of a configured one
	beside string // strategy that a shadow runs beside

	report   *report
	counters counters

	active atomic.Pointer[version] // nil: it could not be loaded
	source source                  // what it is loaded from again; the host's lock guards it

	compared, differing atomic.Uint64 // of a shadow, messages

	recheck        atomic.Pointer[recheck] // which messages are asked about when those are that are there; nil: all
	undecided      atomic.Uint64           // messages that entered without it, because it failed
	asked, renewed atomic.Uint64           // messages that were asked about again, and those of them with another deadline since

	mu             sync.Mutex // guards what follows
	previous       *version   // what was in force before; nil: there was nothing, or it was given up
	rolledBack     string     // digest of the version that failed too often
	fault          *failure   // of that
	failedVersions []uint64   // digests of versions that failed, as messages have them
	enteredFailed  uint64     // messages that entered with one of those
	recheckDue     bool       // it failed since messages were asked about again
	loadError      error      // why there is no version since the start
	damaged        bool       // nothing is left of it but its name: then it is no strategy, either
}

// source is a module as it came, with its settings.
type source struct {
	module  []byte // of a configured one, it is in a file
	options Options
}

// probation is how long a new version is watched: if it fails too often by then,
// the one before takes its place again.
const probation = 5 * time.Minute

// absent is a version that stands for one that could not be loaded.
func (p *policy) absent() *version { return &version{policy: p} }

// put makes a version the one in force, and returns the one that is needed no
// more.
func (p *policy) put(v *version) (old *version) {
	p.mu.Lock()
	defer p.mu.Unlock()
	old, p.previous, p.rolledBack, p.fault = p.previous, p.active.Load(), "", nil
	if p.previous != nil && p.previous.breaker.until.Load() != 0 {
		p.addFailedVersion(p.previous)
	}
	p.recheckDue = p.recheckDue || p.loadError != nil
	p.loadError, p.damaged = nil, false
	p.active.Store(v)
	if p.previous != nil {
		p.previous.pool.retire()
	}
	return old
}

// setLoadError notes why what the store has of the policy is of no use.
func (p *policy) setLoadError(err error, damaged bool) {
	p.report.lost(err)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.loadError, p.damaged = err, damaged
}

// loadState returns what was noted.
func (p *policy) loadState() (damaged bool, why error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.damaged, p.loadError
}

// isStrategy reports whether queues can choose the policy. Messages of one that is
// damaged keep the deadlines they have, as if it had been unloaded.
func (p *policy) isStrategy() bool {
	damaged, _ := p.loadState()
	return p.origin != Shadow && !damaged
}

// rollBack puts the version before in force again if v is new and fails too often.
// It is called on a queue's turn.
func (p *policy) rollBack(now hook.Instant, v *version) {
	since := hook.Instant(v.since.Load())
	if since == 0 || now.Sub(since) > probation || !p.swapBack(v) {
		return
	}
	back := p.digest()
	p.report.rolledBack(v.module.Digest, back)
	p.notify(Notice{Change: PolicyRolledBack, Digest: back, Previous: v.module.Digest})
	if p.host.env.Go != nil {
		p.host.env.Go(func() { p.host.finishRollBack(p, v) })
	}
}

// swapBack reports whether it could put the version before v in force.
func (p *policy) swapBack(v *version) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	old := p.previous
	if old == nil || p.active.Load() != v {
		return false
	}
	old.breaker.reset()
	old.pool.revive()
	p.active.Store(old)
	p.previous, p.rolledBack, p.fault = nil, v.module.Digest, v.stats.last.Load()
	p.addFailedVersion(v)
	v.pool.retire()
	return true
}

// take takes all versions away.
func (p *policy) take() []*version {
	p.mu.Lock()
	defer p.mu.Unlock()
	vs := []*version{p.active.Swap(nil), p.previous}
	p.previous = nil
	return vs
}

// chosenAs is the strategy whose queues a change of the policy matters to.
func (p *policy) chosenAs() string {
	if p.origin == Shadow {
		return p.beside
	}
	return prefix + p.name
}
