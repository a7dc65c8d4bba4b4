package queue

import (
	"bytes"
	"encoding/binary"
	"sync"
	"sync/atomic"

	"github.com/curfewmq/curfew/core/journal"
	"github.com/curfewmq/curfew/sdk/hook"
)

// Journal keeps operations. One journal serves many queues; its methods may be
// called from any goroutine and do not wait for the disk.
type Journal interface {
	// Commit appends operations, all of them or none, and changes how much is of
	// use: what is more counts at once, what is less when the operations are
	// durable. c, if there is one, is told when they are, or at once what became
	// of none. ops and live are the caller's again afterwards.
	Commit(ops []byte, live []Delta, c Completer)
	// TryCommit is Commit of operations that can be missing after a restart, and says
	// whether they were taken.
	TryCommit(ops []byte) bool
	// Relocate is Commit of copies of what is there, in place of the originals.
	Relocate(ops []byte, live []Delta)
	// Extent is a part of the journal that operations committed from now on lie
	// in, or behind. It is never 0.
	Extent() uint32
	// Err returns why nothing can be committed any more, nil as long as it can.
	Err() error
}

// Completer is told what became of operations.
type Completer = journal.Completer

// Delta is bytes that came to be of use in an extent, or ceased to.
type Delta = journal.Delta

// Storage is a durable queue's place in a journal.
type Storage struct {
	Journal Journal
	ID      uint64 // never given to another queue
	Shard   uint32 // what people call the journal
}

// opBuffer is what a turn has to tell the journal.
type opBuffer struct {
	buf      []byte
	alike    span // where the properties of the last enqueue are in ops, if they are worth it
	settled  []Ref
	deltas   []Delta
	enqueued int // messages of the batch at hand that were noted
	returned int // bytes of ops that say how often messages came back
}

// span is a run of bytes.
type span struct{ at, size int }

func (n *opBuffer) account(extent uint32, bytes int64) {
	if k := len(n.deltas); k > 0 && n.deltas[k-1].Extent == extent {
		n.deltas[k-1].Bytes += bytes
		return
	}
	n.deltas = append(n.deltas, Delta{Extent: extent, Bytes: bytes})
}

// isJournalled reports whether a message is in the journal.
func (q *Queue) isJournalled(s *slot) bool { return q.cfg.Storage != nil && s.flags&persistent != 0 }

// weight is what a message's operation takes in the journal, if it has all of the
// record.
func weight(s *slot) int64 { return enqueueHeader + int64(s.length) }

// enqueue appends the operation for a stored message. Where its properties are those
// of the one before, they are left out. It returns by how many bytes that is less than
// the message weighs.
func (n *opBuffer) enqueue(q *Queue, r Ref, deadline, entered hook.Instant, s *slot) (saved int) {
	head, props, body := q.store.parts(*s)
	id := q.cfg.Storage.ID
	if a := n.alike; a.size > 0 && bytes.Equal(n.buf[a.at:a.at+a.size], props) {
		n.buf = appendEnqueued(n.buf, opEnqueuedAlike, id, r, deadline, entered, s, len(head)+len(body))
		n.buf = append(append(n.buf, head...), body...)
		return uvarintLen(len(props)) + len(props)
	}
	n.buf = append(appendEnqueued(n.buf, opEnqueued, id, r, deadline, entered, s, int(s.length)), head...)
	n.buf = binary.AppendUvarint(n.buf, uint64(len(props)))
	n.alike = span{}
	if len(props) >= worthSharing {
		n.alike = span{len(n.buf), len(props)}
	}
	n.buf = append(append(n.buf, props...), body...)
	return 0
}

func (q *Queue) journalEnqueued(now hook.Instant, h handle, deadline hook.Instant) {
	s := h.slot()
	if !q.isJournalled(s) {
		return
	}
	n := &q.buf.ops
	extent := q.cfg.Storage.Journal.Extent()
	saved := n.enqueue(q, h.ref, deadline, now, s)
	h.chunk.setExtent(h.index, extent, saved)
	n.account(extent, weight(s)-int64(saved))
	n.enqueued++
}

func (q *Queue) journalSettled(h handle) {
	if !q.isJournalled(h.slot()) {
		return
	}
	n := &q.buf.ops
	n.account(h.chunk.extentOf(h.index, -1))
	n.settled = append(n.settled, h.ref)
}

func (q *Queue) journalReturned(h handle) {
	if s := h.slot(); q.isJournalled(s) {
		n := &q.buf.ops
		before := len(n.buf)
		n.buf = appendReturned(n.buf, q.cfg.Storage.ID, h.ref, s.returns())
		n.returned += len(n.buf) - before
	}
}

func (q *Queue) journalDeadLettering(h handle, reason hook.Reason) {
	if q.isJournalled(h.slot()) {
		q.buf.ops.buf = appendDeadLettering(q.buf.ops.buf, q.cfg.Storage.ID, h.ref, reason)
	}
}

// journalDeadlineSet journals a deadline that differs from the one a message has, or
// its strategy data if that changed.
func (q *Queue) journalDeadlineSet(h handle, at hook.Instant, changed bool) {
	s := h.slot()
	if !q.isJournalled(s) || at == h.deadline() && !changed {
		return
	}
	var data strategyData
	if s.flags&hasStrategyData != 0 {
		data = q.store.read(*s).strategyData
	}
	q.buf.ops.buf = appendDeadlineSet(q.buf.ops.buf, q.cfg.Storage.ID, h.ref, at, data, s.flags)
}

// journalAsks journals that hooks want to be asked about a message when it is next,
// which its enqueue did not say.
func (q *Queue) journalAsks(h handle) {
	if q.isJournalled(h.slot()) {
		q.buf.ops.buf = appendAsks(q.buf.ops.buf, q.cfg.Storage.ID, h.ref)
	}
}

// setStrategyData changes what a strategy keeps with a message, which may make its
// record longer. It reports whether the data differs.
func (q *Queue) setStrategyData(h handle, data strategyData) (changed bool) {
	s := h.slot()
	before := weight(s)
	changed = q.store.setStrategyData(s, data)
	if grown := weight(s) - before; grown != 0 && q.isJournalled(s) {
		extent, _ := h.chunk.extentOf(h.index, 0)
		q.buf.ops.account(extent, grown)
	}
	return changed
}

// commit hands the journal what the turn noted so far. c, if not nil, is told when
// that is durable, and what was committed before.
func (q *Queue) commit(c Completer) {
	n := &q.buf.ops
	if q.cfg.Storage == nil || c == nil && len(n.buf)+len(n.settled)+len(n.deltas) == 0 {
		return
	}
	if c == nil && len(n.settled)+len(n.deltas) == 0 && len(n.buf) == n.returned {
		q.commitReturned()
		return
	}
	q.compose()
	q.cfg.Storage.Journal.Commit(n.buf, n.deltas, c)
	n.reset()
}

// commitReturned is commit of a turn in which messages came back, and nothing else
// was to be noted. On a full disk those who requeue for ever would fill the memory
// with it. What is not taken makes a delivery count too low after a restart, unless
// the message comes back once more; that it was handed out is noted with the next
// commit.
func (q *Queue) commitReturned() {
	n := &q.buf.ops
	q.compose()
	if !q.cfg.Storage.Journal.TryCommit(n.buf) {
		for l := range q.levels {
			q.levels[l].journalledUpTo = 0
		}
	}
	n.reset()
}

// compose completes the operations of what was noted so far.
func (q *Queue) compose() {
	n := &q.buf.ops
	if len(n.settled) > 0 {
		n.buf = appendSettled(n.buf, q.cfg.Storage.ID, n.settled)
		n.settled = n.settled[:0]
	}
	if len(n.buf) > 0 {
		q.journalDelivered()
	}
}

// journalDelivered notes how far the messages were handed out, so that those who get
// them again after a restart are told. It is not worth a commit of its own.
func (q *Queue) journalDelivered() {
	if q.contents == nil || q.cfg.Storage == nil {
		return
	}
	for l := range q.levels {
		f := &q.levels[l]
		if f.deliveredUpTo > f.journalledUpTo {
			q.buf.ops.buf = appendDelivered(q.buf.ops.buf, q.cfg.Storage.ID, l, f.deliveredUpTo)
			f.journalledUpTo = f.deliveredUpTo
		}
	}
}

func (n *opBuffer) reset() {
	const large = 4 << 20 // not worth keeping
	if cap(n.buf) > large {
		n.buf = nil
	}
	n.buf, n.settled, n.deltas = n.buf[:0], n.settled[:0], n.deltas[:0]
	n.alike, n.returned = span{}, 0
}

// finish tells the publisher of a batch what became of it: at once, or when
// what was noted of it is durable.
func (q *Queue) finish(b *Batch) {
	n := &q.buf.ops
	waits := n.enqueued > 0
	n.enqueued = 0
	if r := b.Removal; waits && r != nil && r.joins(q.cfg.Storage.Journal) {
		n.buf = append(n.buf, r.ops...)
		n.deltas = append(n.deltas, r.deltas...)
	}
	if waits && (b.Publisher != nil || b.Removal != nil || b.underway > 0) {
		q.commit(b)
		return
	}
	q.commit(nil)
	b.complete(nil)
}

var _ Completer = (*Batch)(nil)

// Durable is part of [Completer]: the batch is where it was to go.
func (b *Batch) Durable() { b.complete(nil) }

// Failed is part of [Completer].
func (b *Batch) Failed(err error) { b.complete(err) }

// complete tells who waits for the batch, and releases it.
func (b *Batch) complete(err error) {
	if b.Publisher != nil && err == nil {
		b.Publisher.Confirmed(b)
	}
	if b.Publisher != nil && err != nil {
		b.Publisher.Failed(b, err)
	}
	if b.Removal != nil {
		b.Removal.arrived(err)
	}
	bytes := b.underway
	b.Release()
	if bytes > 0 {
		underway.remove(bytes)
	}
}

// DeferredRemoval is what the journal is still to be told of messages that went from one
// queue to others: that they left. It goes with the batches they went in. Where
// the last of these lies in the same journal, it is recorded in one piece with
// their arrival, so that a message that moves is in one place always; otherwise
// after it, so that a crash may show it in both, but never in none.
type DeferredRemoval struct {
	journal Journal
	ops     []byte
	deltas  []Delta
	pending atomic.Int32          // batches under way, less one once it has joined the last of them
	failed  atomic.Pointer[error] // why one of them has not arrived: then none of it is recorded
	tracker *pendingRemovals      // of the queue
}

var _ Completer = (*DeferredRemoval)(nil)

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

// joins reports whether the batch at hand is the last one and goes to journal.
func (r *DeferredRemoval) joins(j Journal) bool {
	return r.journal == j && r.failed.Load() == nil && r.pending.CompareAndSwap(1, 0)
}

// arrived is called when a batch has arrived, for good, or has failed to. The last
// one decides.
func (r *DeferredRemoval) arrived(err error) {
	if err != nil {
		r.failed.Store(&err)
	}
	left, failed := r.pending.Add(-1), r.failed.Load()
	switch {
	case left > 0:
	case failed != nil:
		r.tracker.end(*failed)
	case left == 0:
		r.commit()
	default:
		r.tracker.end(nil)
	}
}

func (r *DeferredRemoval) commit() { r.journal.Commit(r.ops, r.deltas, r) }

// Durable is part of [Completer].
func (r *DeferredRemoval) Durable() { r.tracker.end(nil) }

// Failed is part of [Completer].
func (r *DeferredRemoval) Failed(err error) { r.tracker.end(err) }

// pendingRemovals is the receipts of a queue that are not recorded yet. What they are
// about is in the queue still, for a restart. Any goroutine may use it.
type pendingRemovals struct {
	mu     sync.Mutex // guards what follows
	open   int
	failed error // why one never will be
	then   func(error)
}

func (d *pendingRemovals) begin() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.open++
}

func (d *pendingRemovals) end(err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.failed == nil {
		d.failed = err
	}
	if d.open--; d.open <= 0 && d.then != nil {
		go d.then(d.failed)
		d.then = nil
	}
}

// AfterDeadLetters has fn called when all dead letters that have left the queue,
// which is gone, have arrived for good; with an error, if one of them did not: then
// a restart finds it in the queue. It returns false, and fn is not called, if that
// is so already.
func (s *Mailbox) AfterDeadLetters(fn func(error)) bool {
	d := s.removals.Load()
	if d == nil {
		return false
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	switch {
	case d.open > 0:
		d.then = fn
	case d.failed != nil:
		go fn(d.failed)
	default:
		return false
	}
	return true
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

func appendSettled(b []byte, queue uint64, refs []Ref) []byte {
	b = binary.LittleEndian.AppendUint32(appendOp(b, opSettled, queue), uint32(len(refs)))
	for _, r := range refs {
		b = binary.LittleEndian.AppendUint64(b, uint64(r))
	}
	return b
}
