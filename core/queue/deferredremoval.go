package queue

import (
	"errors"
	"sync"
	"sync/atomic"

	"github.com/curfewmq/curfew/core/journal"
	"github.com/curfewmq/curfew/sdk/hook"
)

// DeferredRemoval removes dead-lettered messages from the journal of their old queue, the
// source, once all their new queues have them. In the source's memory they are gone
// already.
//
// Example: message 1 goes to queue A, message 2 to A and B, and all use one journal.
//
//	turn of A   entry 10: enqueue 1 and 2 in A, settle 1 in the source
//	            entry 10 is durable: pending = 1
//	turn of B   entry 11: enqueue 2 in B, settle 2 in the source
//
// So a message that goes to one queue of the same journal is in one queue at any time. A
// crash between the two entries shows 2 in the source and in A: messages may be in
// several queues, but never in none. If B's batch is committed before entry 10 is
// durable, or B has another journal, the settlement of 2 is an entry of its own, behind
// both arrivals. If the source has a journal of its own, it settles 1 and 2 there, after
// both batches have arrived.
type DeferredRemoval struct {
	journal Journal
	queue   uint64                // the old queue's, in the journal
	parting []departed            // by DeadLetter.Seq - 1
	pending atomic.Int32          // batches that have not arrived; one less once the removal is committed with the last of them
	failed  atomic.Pointer[error] // why a batch failed: then nothing more is removed
	tracker *pendingRemovals      // of the old queue
	again   *Mailbox              // the old queue, if an exchange holds some of the messages again; nil otherwise
	sent    bool                  // expect or withdraw was called; belongs to the queue's turn
}

// departed is a message of a DeferredRemoval.
type departed struct {
	ref    Ref
	again  []byte // operations that hold the message again; nil means that the message is settled
	extent uint32
	bytes  int64
	alone  bool // the message goes to one queue
	// gone says that the message needs no removal, or that the entry with its arrival has
	// it. It belongs to the turn of that queue until its batch has arrived.
	gone bool
}

// expect records where the messages go: see [Tracking.Expect]. r may be nil.
func (r *DeferredRemoval) expect(batches int, ds []DeadLetter) {
	if r == nil {
		return
	}
	r.sent = true
	for i := range ds {
		if n := ds[i].Seq; n > 0 {
			r.parting[n-1].alone = ds[i].Sent == 1
		}
	}
	if batches == 0 {
		r.commit()
		return
	}
	r.pending.Store(int32(batches))
}

// errUnsent is the error of dead letters that were never sent, because their queue
// panicked before.
var errUnsent = errors.New("dead letters were not sent")

// endUnsent ends the removal if the turn broke off before its messages were sent, so that
// no caller waits for them. A restart finds the messages in their queue. r may be nil.
func (r *DeferredRemoval) endUnsent() {
	if r != nil && !r.sent {
		r.tracker.end(errUnsent)
	}
}

// withdraw ends the removal because its messages were not sent and stay. r may be nil.
func (r *DeferredRemoval) withdraw() {
	if r != nil {
		r.sent = true
		r.tracker.end(nil)
	}
}

// joins reports whether the removal is committed together with the batch that is about to
// be committed to j. That requires that all other batches have arrived, and that j is the
// source's journal.
func (r *DeferredRemoval) joins(j Journal) bool {
	return r.journal == j && r.failed.Load() == nil && r.pending.CompareAndSwap(1, 0)
}

// appendTo appends the removal of all messages that are not gone yet.
func (r *DeferredRemoval) appendTo(n *opBuffer) {
	var refs []Ref
	for i := range r.parting {
		refs = r.parting[i].leave(n, refs)
	}
	n.settleOthers(r.queue, refs)
}

// appendRemovals appends to n, the operations of a target, the removals of those of ms
// that go to this target only. It does so if j, the target's journal, is also that of the
// source.
func (r *DeferredRemoval) appendRemovals(n *opBuffer, ms []Message, j Journal) {
	if r.journal != j {
		return
	}
	var refs []Ref
	for i := range ms {
		if k := ms[i].Seq; k > 0 && r.parting[k-1].alone {
			refs = r.parting[k-1].leave(n, refs)
		}
	}
	n.settleOthers(r.queue, refs)
}

// leave appends the operations that hold a message again to n, or its Ref to settled. It
// does nothing for a message that is gone.
func (l *departed) leave(n *opBuffer, settled []Ref) []Ref {
	switch {
	case l.gone:
		return settled
	case l.again != nil:
		n.buf = append(n.buf, l.again...)
	default:
		settled = append(settled, l.ref)
		n.account(l.extent, l.bytes)
		n.others = true
	}
	l.gone = true
	return settled
}

// settleOthers appends a settlement of messages of another queue.
func (n *opBuffer) settleOthers(queue uint64, refs []Ref) {
	if len(refs) > 0 {
		n.buf = appendSettled(n.buf, queue, refs)
	}
}

// arrived is called when a batch is durable, or has failed. After the last batch the
// removal is committed, or ends with the error.
func (r *DeferredRemoval) arrived(b *Batch, err error) {
	if err != nil && !r.removed(b.Messages) {
		r.failed.Store(&err)
	}
	pending, failed := r.pending.Add(-1), r.failed.Load()
	switch {
	case pending > 0:
	case failed != nil:
		r.end(*failed)
	case pending == 0:
		r.commit()
	default: // the removal was committed with the last batch
		r.end(nil)
	}
}

// removed reports whether the entries with the arrivals of messages, whose batch failed,
// remove all of them: the turn of their new queue broke off after those entries.
func (r *DeferredRemoval) removed(ms []Message) bool {
	for i := range ms {
		if k := ms[i].Seq; k == 0 || !r.parting[k-1].alone || !r.parting[k-1].gone {
			return false
		}
	}
	return len(ms) > 0 && r.journal.Err() == nil
}

// end is called when the removal is durable, or never will be: then err says why.
// Messages that are held again can be released again once it is durable; after an error,
// not before a restart.
func (r *DeferredRemoval) end(err error) {
	if r.again != nil && err == nil {
		r.again.postAsync(task{kind: taskArrived, arrived: r.parting})
	}
	r.tracker.end(err)
}

func (r *DeferredRemoval) commit() {
	var n opBuffer
	if r.appendTo(&n); len(n.buf) == 0 { // the entries with their arrivals have removed all
		r.end(nil)
		return
	}
	r.journal.Commit(n.buf, n.deltas, (*removalCommit)(r))
}

// removalCommit ends a removal when its operations are durable.
type removalCommit DeferredRemoval

var _ journal.Completer = (*removalCommit)(nil)

// Durable implements [journal.Completer].
func (c *removalCommit) Durable() { (*DeferredRemoval)(c).end(nil) }

// Failed implements [journal.Completer].
func (c *removalCommit) Failed(err error) { (*DeferredRemoval)(c).end(err) }

// pendingRemovals counts the removals of a queue that are not durable yet: a restart
// finds their messages in the queue. Any goroutine may use it.
type pendingRemovals struct {
	mu     sync.Mutex // guards the rest
	open   int
	failed error         // why one will never be durable
	then   []func(error) // called when open is 0
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
	if p.open--; p.open > 0 {
		return
	}
	for _, fn := range p.then {
		go fn(p.failed)
	}
	p.then = nil
}

// AfterDeadLetters calls fn when all dead letters of the queue have arrived durably, or
// with an error if one failed: a restart finds that one in the queue. The queue must be
// deleted, or must not send any more (see HaltReleases). If all dead letters have arrived
// already, AfterDeadLetters returns false and does not call fn.
func (m *Mailbox) AfterDeadLetters(fn func(error)) bool {
	p := m.removals.Load()
	if p == nil {
		return false
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.open > 0:
		p.then = append(p.then, fn)
	case p.failed != nil:
		go fn(p.failed)
	default:
		return false
	}
	return true
}

// Sends reports whether messages that the queue sent have not arrived durably, or never
// will. A restart finds them in the queue.
func (m *Mailbox) Sends() bool {
	open, failed := m.underway()
	return open > 0 || failed != nil
}

// underway returns how many removals are not durable yet, and why one will never be.
func (m *Mailbox) underway() (open int, failed error) {
	p := m.removals.Load()
	if p == nil {
		return 0, nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.open, p.failed
}

// pendingRemovals returns the queue's counter. It is called on the queue's turn.
func (m *Mailbox) pendingRemovals() *pendingRemovals {
	if m.removals.Load() == nil {
		m.removals.Store(&pendingRemovals{})
	}
	return m.removals.Load()
}

// deferredRemoval returns the removal of those of ms that are dead-lettered; nil means
// that none of them is in the journal.
func deferredRemoval(q *Queue, ms []leaving) *DeferredRemoval {
	if q.cfg.Storage == nil {
		return nil
	}
	ls, some := make([]departed, 0, len(ms)), false
	for i := range ms {
		if ms[i].verdict.Action != hook.Route {
			continue
		}
		l := q.departedOf(ms[i].ref)
		some = some || !l.gone
		ls = append(ls, l)
	}
	if !some {
		return nil
	}
	return newDeferredRemoval(q, ls)
}

// departedOf returns a message for a DeferredRemoval.
func (c *contents) departedOf(r Ref) departed {
	h := c.at(r)
	l := departed{ref: r, gone: !c.isJournalled(h.slot())}
	if !l.gone {
		l.extent, l.bytes = h.chunk.extentOf(h.index, -1)
	}
	return l
}

// newDeferredRemoval begins the removal of ls. It sets buf.parting until their slots are
// freed.
func newDeferredRemoval(q *Queue, ls []departed) *DeferredRemoval {
	r := &DeferredRemoval{journal: q.cfg.Storage.Journal, queue: q.cfg.Storage.ID, parting: ls, tracker: q.mailbox.pendingRemovals()}
	r.tracker.begin()
	q.buf.parting = r
	return r
}
