package queue

import (
	"errors"
	"sync"
	"sync/atomic"

	"github.com/curfewmq/curfew/core/journal"
	"github.com/curfewmq/curfew/sdk/hook"
)

// DeferredRemoval removes dead-lettered messages from their old queue once every new
// queue has them. A message that goes to one queue, which shares the journal, is removed
// in the entry with its arrival: then it is in one place at any time. What goes to more
// is removed with the last batch, or later, so that a crash may show the message in both
// queues, but never in none.
type DeferredRemoval struct {
	journal Journal
	queue   uint64                // the old queue's, in the journal
	parting []departed            // by DeadLetter.Seq - 1
	pending atomic.Int32          // batches that have not arrived, less one once the removal has joined the last of them
	failed  atomic.Pointer[error] // why a batch failed: then nothing is removed
	tracker *pendingRemovals      // of the old queue
	again   *Mailbox              // the old queue, if it has messages that are released again; nil otherwise
	sent    bool                  // pending is set; belongs to the queue's turn
}

// departed is a message of a removal.
type departed struct {
	ref    Ref
	again  []byte // operations that hold the message again; nil means that the message is settled
	extent uint32
	bytes  int64
	alone  bool // the message goes to one queue
	gone   bool // the message needs no removal, or the entry with its arrival has it; belongs to the turn of that queue until its batch has arrived
}

// expect is [Tracking.Expect] for a removal, which may be nil.
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

// errUnsent is why dead letters never will arrive: the queue panicked before it had sent them.
var errUnsent = errors.New("dead letters were not sent")

// endUnsent ends a removal, which may be nil, if the turn broke off before its messages were
// sent, so that no caller waits for them. A restart finds them in their queue.
func (r *DeferredRemoval) endUnsent() {
	if r != nil && !r.sent {
		r.tracker.end(errUnsent)
	}
}

// withdraw ends a removal, which may be nil, whose messages stay because they were not sent.
func (r *DeferredRemoval) withdraw() {
	if r != nil {
		r.sent = true
		r.tracker.end(nil)
	}
}

// joins reports whether the batch at hand is the last one and goes to the journal j:
// then the removal is committed with it.
func (r *DeferredRemoval) joins(j Journal) bool {
	return r.journal == j && r.failed.Load() == nil && r.pending.CompareAndSwap(1, 0)
}

// appendTo appends the removal to the operations that are committed with the last batch.
func (r *DeferredRemoval) appendTo(n *opBuffer) {
	var refs []Ref
	for i := range r.parting {
		refs = r.parting[i].leave(n, refs)
	}
	n.settleOthers(r.queue, refs)
}

// appendRemovals appends the removals of messages that go to no queue but the one that has
// taken them, if the journal j is that of their old queue, too.
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

// leave appends the operation for a message that has not left meanwhile, or its Ref to
// settled.
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

// settleOthers appends that messages of another queue are settled.
func (n *opBuffer) settleOthers(queue uint64, refs []Ref) {
	if len(refs) > 0 {
		n.buf = appendSettled(n.buf, queue, refs)
	}
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
		r.end(*failed)
	case pending == 0:
		r.commit()
	default: // it was committed with that batch
		r.end(nil)
	}
}

// end is called when the removal is durable, or never will be. Messages that are released
// again wait for the former: after the latter they wait until a restart.
func (r *DeferredRemoval) end(err error) {
	if r.again != nil && err == nil {
		r.again.postAsync(task{kind: taskArrived, arrived: r.parting})
	}
	r.tracker.end(err)
}

func (r *DeferredRemoval) commit() {
	var n opBuffer
	if r.appendTo(&n); len(n.buf) == 0 { // all were removed as they arrived
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

// pendingRemovals counts a queue's removals that are not durable yet: a restart finds
// their messages in the queue. Any goroutine may use it.
type pendingRemovals struct {
	mu     sync.Mutex // guards the rest
	open   int
	failed error // why one never will be durable
	then   []func(error)
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

// AfterDeadLetters calls fn when all dead letters of the queue, which is deleted or sends
// no more (see HaltReleases), have arrived durably; with an error if one failed: then a restart finds it in the queue.
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
		p.then = append(p.then, fn)
	case p.failed != nil:
		go fn(p.failed)
	default:
		return false
	}
	return true
}

// Sends reports whether the queue has sent messages that have not arrived durably, or never will: a restart finds them in the queue.
func (m *Mailbox) Sends() bool {
	open, failed := m.underway()
	return open > 0 || failed != nil
}

// underway returns how many removals are not durable yet, and why one never will be.
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

// deferredRemoval returns the removal of the messages that are dead-lettered, nil if
// none of them is in the journal.
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

// departedOf returns the removal of a message.
func (c *contents) departedOf(r Ref) departed {
	h := c.at(r)
	l := departed{ref: r, gone: !c.isJournalled(h.slot())}
	if !l.gone {
		l.extent, l.bytes = h.chunk.extentOf(h.index, -1)
	}
	return l
}

// newDeferredRemoval returns the removal of the dead letters of the turn's buffer.
func newDeferredRemoval(q *Queue, ls []departed) *DeferredRemoval {
	r := &DeferredRemoval{journal: q.cfg.Storage.Journal, queue: q.cfg.Storage.ID, parting: ls, tracker: q.mailbox.pendingRemovals()}
	r.tracker.begin()
	q.buf.parting = r
	return r
}
