package store

import (
	"sync"
	"sync/atomic"
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
