package store

import (
	"context"
	"sync"

	"github.com/curfewmq/curfew/core/wlog"
)

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
