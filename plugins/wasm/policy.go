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
	Configured Origin = "configuration" // loaded from a file at the start
	Loaded     Origin = "loaded"        // loaded while the broker runs
	Shadow     Origin = "shadow"        // runs in parallel with a strategy, without effect
)

// policy is a name that queues choose, with its present module. Any goroutine may use it; the fields up to counters do not change.
type policy struct {
	host   *Host
	name   string
	origin Origin
	path   string // of a configured one
	beside string // strategy that a shadow runs beside

	absentAs OnError // decides about messages while it is not loaded

	standIn bool // it replaces a policy whose module is being tried: its actions have no effect

	report   *report
	counters counters

	active atomic.Pointer[version] // nil: it could not be loaded
	source source                  // for reloading; the host's lock guards it

	revision int64 // revision in the store, see [StoredPolicy]; the host's lock guards it

	compared, differing atomic.Uint64 // of a shadow, messages
	differences         *differences  // of a shadow

	observer func(inForce, shadow hook.Verdict, differs bool) // of a shadow in a rehearsal; nil: there is none

	recheck        atomic.Pointer[recheck] // selects the queued messages about which the policy is called; nil: all
	undecided      atomic.Uint64           // messages that entered or came back while it failed, and still have no decision
	asked, renewed atomic.Uint64           // messages about which it was called again, and those of them that got another deadline

	mu             sync.Mutex // guards the fields below
	previous       *version   // the version in force before; nil: none, or released
	rolledBack     string     // digest of the version that failed too often
	fault          *failure   // its last failure
	failedVersions []uint64   // digests of versions that failed
	enteredFailed  uint64     // messages that one of them decided about
	recheckDue     bool       // the policy has failed since the last recheck
	loadError      error      // why it could not be loaded at the start
	damaged        bool       // the stored file is damaged; the policy is not a strategy then
}

// source is a module as it was loaded, with its settings.
type source struct {
	module  []byte // nil for a configured policy, whose module is in a file
	options Options
}

// probation is how long a new version is watched: if it fails too often within that time, the previous version is restored.
const probation = 5 * time.Minute

// absent returns a version that stands for one that is not loaded.
func (p *policy) absent() *version { return &version{policy: p, options: Options{OnError: p.absentAs}} }

// put puts a version in force, and returns the one that is no longer needed.
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

// setLoadError records and logs why the stored policy cannot be used.
func (p *policy) setLoadError(err error, damaged bool) {
	p.report.lost(err)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.loadError, p.damaged = err, damaged
}

// loadState returns why the policy could not be loaded; nil if it could.
func (p *policy) loadState() (damaged bool, why error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.damaged, p.loadError
}

// isStrategy reports whether queues can choose the policy. Messages of a damaged policy keep their deadlines, as if it had been
// unloaded.
func (p *policy) isStrategy() bool {
	damaged, _ := p.loadState()
	return p.origin != Shadow && !damaged
}

// rollBack restores the previous version if v is new and fails too often. It runs in a queue's turn.
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

// swapBack puts the previous version of v in force, and reports whether there was one.
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

// take removes and returns all versions.
func (p *policy) take() []*version {
	p.mu.Lock()
	defer p.mu.Unlock()
	vs := []*version{p.active.Swap(nil), p.previous}
	p.previous = nil
	return vs
}

// chosenAs returns the strategy whose queues are affected by a change of the policy.
func (p *policy) chosenAs() string {
	if p.origin == Shadow {
		return p.beside
	}
	return prefix + p.name
}

// Change is a kind of change of a policy.
type Change uint8

// The changes.
const (
	PolicyLoaded     Change = iota // a new name
	PolicyReloaded                 // another version, or the same one again
	PolicyRolledBack               // the new version failed too often; the previous one is in force again
	PolicyUnloaded
	BreakerOpened // it fails too often and is not called for a while
	BreakerClosed // it works again
)

// Notice reports a change of a policy.
type Notice struct {
	Change   Change
	Policy   string
	Digest   string       // of the version in force, or of the unloaded one
	Previous string       // digest of the version in force before; "" = none
	Beside   string       // strategy that it shadows; "" = it is not a shadow
	Until    hook.Instant // with BreakerOpened: the next trial
}

// notify passes a notice to the broker.
func (p *policy) notify(n Notice) {
	if p.host.env.Notice == nil || p.standIn {
		return
	}
	n.Policy, n.Beside = p.name, p.beside
	p.host.env.Notice(n)
}

// digest returns the digest of the version in force; "" if there is none.
func (p *policy) digest() string {
	if v := p.active.Load(); v != nil {
		return v.module.Digest
	}
	return ""
}
