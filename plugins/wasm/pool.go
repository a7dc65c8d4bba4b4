package wasm

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/curfewmq/curfew/sdk/hook"
)

// pool holds the instances of a version: up to one per processor, made on demand. Any goroutine may use it. As long as there are enough
// instances, taking and returning one takes no lock.
type pool struct {
	version *version
	slots   []slot
	waiting atomic.Int32 // goroutines in await
	retired atomic.Bool  // returned instances are closed

	mu       sync.Mutex   // guards the fields below
	freed    *sync.Cond   // signalled when an instance or a slot becomes free
	live     int          // instances, in use or not
	failures int          // instances lost since the last successful call
	retry    hook.Instant // no instance is made before this instant

	hasFailed atomic.Bool // failures > 0
}

// slot holds an instance while it is not in use.
type slot struct {
	in    atomic.Pointer[instance]
	taken bool     // the slot has an instance, in use or not, or will get one; the pool's lock guards it
	_     [48]byte // gives each slot its own cache line
}

const (
	firstPause = 100 * time.Millisecond // before a lost instance is replaced
	lastPause  = 30 * time.Second
)

func (p *pool) init(v *version, slots int, first *instance) {
	p.version, p.slots = v, make([]slot, slots)
	p.freed = sync.NewCond(&p.mu)
	p.live = 1
	p.slots[0].taken = true
	p.slots[0].in.Store(first)
}

// take takes an instance out of the pool; nil if none is available now.
func (p *pool) take(now hook.Instant) *instance {
	if in := p.free(); in != nil {
		return in
	}
	return p.await(now)
}

func (p *pool) free() *instance {
	for i := range p.slots {
		s := &p.slots[i]
		if s.in.Load() == nil {
			continue
		}
		if in := s.in.Swap(nil); in != nil {
			return in
		}
	}
	return nil
}

// await makes an instance if a slot is free. Otherwise it waits for one, for as long as a call takes.
func (p *pool) await(now hook.Instant) *instance {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.waiting.Add(1)
	defer p.waiting.Add(-1)
	for {
		if in := p.free(); in != nil {
			return in
		}
		if i := p.vacancy(now); i >= 0 {
			if in := p.fill(i, now); in != nil {
				return in
			}
			continue
		}
		if p.live == 0 {
			return nil
		}
		p.freed.Wait()
	}
}

// vacancy returns the index of a free slot; -1 = there is none. The caller holds mu.
func (p *pool) vacancy(now hook.Instant) int {
	if now < p.retry || p.retired.Load() {
		return -1
	}
	for i := range p.slots {
		if !p.slots[i].taken {
			return i
		}
	}
	return -1
}

// fill makes an instance for a slot: at once if that takes no longer than a call may, otherwise on another goroutine. The caller holds mu,
// which is released in between.
func (p *pool) fill(i int, now hook.Instant) *instance {
	p.slots[i].taken = true
	background := p.version.policy.host.env.Go
	if background != nil && p.version.initFuel > p.version.budget(p.version.capacity) {
		background(func() { p.build(i, now) })
		return nil
	}
	p.live++
	p.mu.Unlock()
	in, err := p.start(now)
	p.mu.Lock()
	if err != nil {
		p.live--
		p.freeSlot(i, now)
		return nil
	}
	in.slot = i
	return in
}

// start makes an instance. The caller must not hold mu: a failure may roll back the version and retire this pool.
func (p *pool) start(now hook.Instant) (*instance, error) {
	in, err := p.version.start()
	if err != nil {
		p.version.failed(now, asFailure(err))
		p.version.breaker.failure(now, p.version)
	}
	return in, err
}

// build makes an instance on a goroutine of its own.
func (p *pool) build(i int, now hook.Instant) {
	in, err := p.start(now)
	p.mu.Lock()
	if err != nil {
		p.freeSlot(i, now)
		p.mu.Unlock()
		return
	}
	p.live++
	in.slot = i
	p.mu.Unlock()
	p.restore(in)
}

// freeSlot empties a slot, and delays the next instance in it. The caller holds mu.
func (p *pool) freeSlot(i int, now hook.Instant) {
	p.slots[i].taken = false
	pause := lastPause
	if p.failures < 10 {
		pause = min(firstPause<<p.failures, lastPause)
	}
	p.failures++
	p.hasFailed.Store(true)
	p.retry = now.Add(pause)
	p.freed.Broadcast()
}

// put returns an instance after a successful call.
func (p *pool) put(in *instance) {
	if in.pending.calls >= flushCalls {
		p.version.addStats(&in.pending)
	}
	if p.hasFailed.Load() {
		p.recover()
	}
	p.restore(in)
}

// restore puts an instance back into its slot.
func (p *pool) restore(in *instance) {
	p.slots[in.slot].in.Store(in)
	if p.retired.Load() {
		p.sweep()
	}
	if p.waiting.Load() > 0 {
		p.mu.Lock()
		p.freed.Signal()
		p.mu.Unlock()
	}
}

func (p *pool) recover() {
	p.mu.Lock()
	p.failures = 0
	p.hasFailed.Store(false)
	p.mu.Unlock()
}

// lose is discard without a pause: the next call makes another instance.
func (p *pool) lose(in *instance) {
	in.close()
	p.mu.Lock()
	p.live--
	p.slots[in.slot].taken = false
	p.freed.Broadcast()
	p.mu.Unlock()
}

// discard closes an instance that must not be used again, and delays the next one.
func (p *pool) discard(in *instance, now hook.Instant) {
	in.close()
	p.mu.Lock()
	p.live--
	p.freeSlot(in.slot, now)
	p.mu.Unlock()
}

// retire closes all instances; those in use are closed when they are returned.
func (p *pool) retire() {
	p.retired.Store(true)
	p.sweep()
}

// revive undoes retire: instances are made again on demand.
func (p *pool) revive() { p.retired.Store(false) }

func (p *pool) sweep() {
	for in := p.free(); in != nil; in = p.free() {
		p.lose(in)
	}
}

// countInstances returns the number of instances, and adds the counts of the free
// ones to the version's.
func (p *pool) countInstances() (instances int) {
	for i := range p.slots {
		if in := p.slots[i].in.Swap(nil); in != nil {
			p.version.addStats(&in.pending)
			p.restore(in)
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.live
}
