package store

import (
	"context"
	"sync"
	"sync/atomic"

	"github.com/curfewmq/curfew/core/wlog"
)

// tenure is the state that a shard of vhosts has for one term of its owner.
type tenure struct {
	seat    *seat
	epoch   uint64
	guests  vhosts         // in the shard, served or about to be
	numbers *definitionLog // of queues' numbers that are in no vhost's definitions any more
	ending  atomic.Pointer[ending]
	leaves  func() // makes the owner's duties end, as soon as they do not wait for the log
	attends func() // calls leaves, and waits until the duties have ended

	mu        sync.Mutex // guards withdrawn; held while vhosts are published
	withdrawn bool
}

// ending is why a log has ended. err is nil if another node owns the shard.
type ending struct{ err error }

// end is called when the log has ended, with its failure; nil = another node owns the
// shard. It does not wait.
func (t *tenure) end(err error) {
	t.ending.CompareAndSwap(nil, &ending{err})
	t.seat.terms.look()
}

// lost is called when another node has taken the shard over.
func (t *tenure) lost() { t.end(nil) }

func (t *tenure) hasEnded() bool { return t.ending.Load() != nil }

// failure returns why the log failed; nil = it did not.
func (t *tenure) failure() error {
	if e := t.ending.Load(); e != nil {
		return e.err
	}
	return nil
}

// compactNumbers writes the numbers again, if they lie in a part of the log that is to be
// freed.
func (t *tenure) compactNumbers() {
	if t.numbers.NeedsCompaction() {
		t.numbers.Rewrite(func(func([]byte) bool) {})
	}
}

// publish makes vhosts known to clients, unless the shard is being dropped.
func (t *tenure) publish(in *vhosts, all ...vhostEntry) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.withdrawn {
		return
	}
	for _, v := range all {
		in.publish(v)
	}
}

// withdraw makes all vhosts unknown to clients, for good.
func (t *tenure) withdraw(in *vhosts) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.withdrawn = true
	for _, v := range t.guests.list() {
		in.withdraw(v)
	}
}

// terms follows the owner of a shard, for the one runner that takes the shard over when
// this node becomes its owner, and drops it afterwards. So late news of an earlier term
// cannot reach a later term. A takeover is cancelled as soon as ownership changes.
type terms struct {
	wake chan struct{} // capacity 1; wakes the runner

	mu     sync.Mutex // guards the fields below
	latest wlog.Ownership
	taking context.CancelFunc // ends the takeover in progress; nil = there is none
}

func newTerms() terms { return terms{wake: make(chan struct{}, 1)} }

// set notes the shard's owner, and reports whether that is news. It does not block.
func (t *terms) set(o wlog.Ownership) (news bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.latest == o {
		return false
	}
	t.latest = o
	if t.taking != nil {
		t.taking()
	}
	return true
}

// look wakes the runner.
func (t *terms) look() {
	select {
	case t.wake <- struct{}{}:
	default:
	}
}

// ownership returns the latest ownership of the shard.
func (t *terms) ownership() wlog.Ownership {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.latest
}

// take calls fn with a context that ends once the shard's ownership is no longer o. over is
// the error of the context when fn returned; nil = ownership was still o.
func (t *terms) take(ctx context.Context, o wlog.Ownership, fn func(ctx context.Context) error) (over, err error) {
	ctx, cancel := context.WithCancel(ctx)
	t.setTaking(o, cancel)
	err = fn(ctx)
	over = ctx.Err()
	t.setTaking(o, nil)
	cancel()
	return over, err
}

func (t *terms) setTaking(o wlog.Ownership, cancel context.CancelFunc) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.taking = cancel; cancel != nil && t.latest != o {
		cancel()
	}
}
