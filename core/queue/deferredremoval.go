package queue

import (
	"sync"
	"sync/atomic"

	"github.com/curfewmq/curfew/core/journal"
	"github.com/curfewmq/curfew/sdk/hook"
)

// DeferredRemoval removes dead-lettered messages from their old queue once every new
// queue has them. If the last target shares the journal, both operations are committed
// in one entry: then a message is in one place at any time. Otherwise the removal comes
// later, so that a crash may show the message in both queues, but never in none.
type DeferredRemoval struct {
	journal Journal
	ops     []byte
	deltas  []journal.Delta
	pending atomic.Int32          // batches that have not arrived, less one once the removal has joined the last of them
	failed  atomic.Pointer[error] // why a batch failed: then nothing is removed
	tracker *pendingRemovals      // of the old queue
}

// Expect sets the number of batches that the removal waits for. It must be called
// before any of them is published, and may be called on nil.
func (r *DeferredRemoval) Expect(batches int) {
	switch {
	case r == nil:
	case batches == 0:
		r.commit()
	default:
		r.pending.Store(int32(batches))
	}
}

// joins reports whether the batch at hand is the last one and goes to the journal j:
// then the removal is committed with it.
func (r *DeferredRemoval) joins(j Journal) bool {
	return r.journal == j && r.failed.Load() == nil && r.pending.CompareAndSwap(1, 0)
}

// arrived is called when a batch is durable, or has failed. The last one decides.
func (r *DeferredRemoval) arrived(err error) {
	if err != nil {
		r.failed.Store(&err)
	}
	pending, failed := r.pending.Add(-1), r.failed.Load()
	switch {
	case pending > 0:
	case failed != nil:
		r.tracker.end(*failed)
	case pending == 0:
		r.commit()
	default: // it was committed with that batch
		r.tracker.end(nil)
	}
}

func (r *DeferredRemoval) commit() { r.journal.Commit(r.ops, r.deltas, (*removalCommit)(r)) }

// removalCommit ends a removal when its operations are durable.
type removalCommit DeferredRemoval

var _ journal.Completer = (*removalCommit)(nil)

// Durable implements [journal.Completer].
func (c *removalCommit) Durable() { c.tracker.end(nil) }

// Failed implements [journal.Completer].
func (c *removalCommit) Failed(err error) { c.tracker.end(err) }

// pendingRemovals counts a queue's removals that are not durable yet: a restart finds
// their messages in the queue. Any goroutine may use it.
type pendingRemovals struct {
	mu     sync.Mutex // guards the rest
	open   int
	failed error // why one never will be durable
	then   func(error)
}

func (p *pendingRemovals) begin() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.open++
}

func (p *pendingRemovals) end(err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.failed == nil {
		p.failed = err
	}
	if p.open--; p.open <= 0 && p.then != nil {
		go p.then(p.failed)
		p.then = nil
	}
}

// AfterDeadLetters calls fn when all dead letters of the queue, which is deleted, have
// arrived durably; with an error if one failed: then a restart finds it in the queue.
// If all have arrived already it returns false and does not call fn.
func (m *Mailbox) AfterDeadLetters(fn func(error)) bool {
	p := m.removals.Load()
	if p == nil {
		return false
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.open > 0:
		p.then = fn
	case p.failed != nil:
		go fn(p.failed)
	default:
		return false
	}
	return true
}

// pendingRemovals returns the queue's counter. It is called on the queue's turn.
func (m *Mailbox) pendingRemovals() *pendingRemovals {
	if m.removals.Load() == nil {
		m.removals.Store(&pendingRemovals{})
	}
	return m.removals.Load()
}

// deferredRemoval returns the removal of the messages that are dead-lettered, nil if
// none of them is in the journal.
func (q *Queue) deferredRemoval(ms []leaving) *DeferredRemoval {
	if q.cfg.Storage == nil {
		return nil
	}
	var refs []Ref
	var n opBuffer
	for i := range ms {
		h := q.at(ms[i].ref)
		if ms[i].verdict.Action == hook.Route && q.isJournalled(h.slot()) {
			refs = append(refs, h.ref)
			n.account(h.chunk.extentOf(h.index, -1))
		}
	}
	if len(refs) == 0 {
		return nil
	}
	r := &DeferredRemoval{
		journal: q.cfg.Storage.Journal, ops: appendSettled(nil, q.cfg.Storage.ID, refs), deltas: n.deltas, tracker: q.mailbox.pendingRemovals(),
	}
	r.tracker.begin()
	return r
}
