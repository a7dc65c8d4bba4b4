package queue

import (
	"bytes"
	"cmp"
	"encoding/binary"

	"github.com/curfewmq/curfew/core/journal"
	"github.com/curfewmq/curfew/sdk/hook"
)

// Journal stores operations. One journal serves many queues. Its methods may be called
// from any goroutine and do not wait for the disk. They do not retain their slices.
type Journal interface {
	// Commit appends operations, all of them or none. live changes the live bytes:
	// additions count at once, removals when the operations are durable. c, which may be
	// nil, is called when the operations and all those committed before are durable.
	// Space for operations that bring messages has been granted before: see [Granter].
	Commit(ops []byte, live []journal.Delta, c journal.Completer)
	// TryCommit is Commit of operations that a restart may lack. It reports whether the
	// journal has taken them.
	TryCommit(ops []byte) bool
	// Relocate is Commit of copies of operations, which replace the originals.
	Relocate(ops []byte, live []journal.Delta)
	// Extent returns the extent that operations committed from now on lie in, or an
	// earlier one. It is never 0.
	Extent() uint32
	// Err returns why nothing can be committed any more, nil as long as it can.
	Err() error
}

// Granter is a journal with limited space: see [journal.Writer].
type Granter interface {
	// Grant takes space for operations of so many bytes, and reports whether there was
	// enough. Return gives the space back once they are committed.
	Grant(bytes int64) bool
	Return(bytes int64)
	// Await calls fn when there is space for so many bytes. fn has the grant.
	Await(bytes int64, fn func())
	// MostGrant returns the largest possible grant. There will never be space for more.
	MostGrant() int64
	// Low reports whether Await may take long.
	Low() bool
}

// Storage is where a durable queue stores its persistent messages.
type Storage struct {
	Journal Journal
	ID      uint64 // never given to another queue
	Shard   uint32 // the journal's, for error messages
}

// granter returns the journal if its space is limited, else nil.
func (s *Storage) granter() Granter {
	if s == nil {
		return nil
	}
	g, _ := s.Journal.(Granter)
	return g
}

// opBuffer collects the operations that a turn has to commit. The present batch is the
// one that enters in the turn.
type opBuffer struct {
	buf       []byte
	alike     span // in buf: the properties of the last enqueue, for the next one to share
	settled   []Ref
	deltas    []journal.Delta
	extent    uint32 // of the enqueues in buf; 0 = not known yet
	enqueued  int    // messages of the present batch that are in buf, or were committed
	arriving  *Batch // the present batch, if its outcome is awaited; nil once it is confirmed
	entered   int    // messages of the present batch that have entered, or were kept out
	keeps     bool   // the old queue of the entering messages keeps those that are refused
	once      bool   // the entering messages are dead letters that are sent at most once
	confirmed bool   // the present batch was confirmed, though its turn may go on
	relies    bool   // a persistent message of the present batch was dropped, because the queue has an equal one
	others    bool   // deltas also has messages of other queues
}

// span is a run of bytes.
type span struct{ at, size int }

// extentIn returns the extent for the enqueues of the next commit.
func (n *opBuffer) extentIn(j Journal) uint32 {
	if n.extent == 0 {
		n.extent = j.Extent()
	}
	return n.extent
}

// account changes the live bytes of an extent by one message: positive bytes enter,
// negative bytes leave, and 0 bytes count for no message.
func (n *opBuffer) account(extent uint32, bytes int64) {
	n.accountAs(extent, cmp.Compare(bytes, 0), bytes)
}

// accountAs is account for a change by any number of messages.
func (n *opBuffer) accountAs(extent uint32, messages int, bytes int64) {
	// Additions and removals are kept apart, because additions take effect before removals do.
	if k := len(n.deltas); k > 0 && n.deltas[k-1].Extent == extent && n.deltas[k-1].Bytes < 0 == (bytes < 0) {
		n.deltas[k-1].Bytes += bytes
		n.deltas[k-1].Records += int32(messages)
		return
	}
	n.deltas = append(n.deltas, journal.Delta{Extent: extent, Records: int32(messages), Bytes: bytes})
}

// isJournalled reports whether a message is in the journal. A durable exchange journals
// all messages that it holds.
func (c *contents) isJournalled(s *slot) bool {
	return c.cfg.Storage != nil && (s.flags&persistent != 0 || c.cfg.Schedule != nil)
}

// weight is the size of a message's operation in the journal, with the whole record.
func weight(s *slot) int64 { return enqueueHeader + int64(s.length) }

// enqueue appends the enqueue of a stored message. If its properties are those of the
// enqueue before, it leaves them out. It returns how many bytes that saves.
func (n *opBuffer) enqueue(c *contents, r Ref, deadline, entered hook.Instant, s *slot) (saved int) {
	head, props, body := c.store.parts(*s)
	id := c.cfg.Storage.ID
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

func (c *contents) journalEnqueued(now hook.Instant, h handle, deadline hook.Instant) {
	s := h.slot()
	if !c.isJournalled(s) {
		return
	}
	n := &c.buf.ops
	extent := n.extentIn(c.cfg.Storage.Journal)
	saved := n.enqueue(c, h.ref, deadline, now, s)
	h.chunk.setExtent(h.index, extent, saved)
	n.account(extent, weight(s)-int64(saved))
	n.enqueued++
}

func (c *contents) journalSettled(h handle) {
	if !c.isJournalled(h.slot()) {
		return
	}
	n := &c.buf.ops
	n.account(h.chunk.extentOf(h.index, -1))
	n.settled = append(n.settled, h.ref)
}

func (c *contents) journalReturned(h handle) {
	if s := h.slot(); c.isJournalled(s) {
		n := &c.buf.ops
		n.buf = appendReturned(n.buf, c.cfg.Storage.ID, h.ref, s.returns())
	}
}

func (c *contents) journalDeadLettering(h handle, reason hook.Reason) {
	if c.isJournalled(h.slot()) {
		c.buf.ops.buf = appendDeadLettering(c.buf.ops.buf, c.cfg.Storage.ID, h.ref, reason)
	}
}

// promiseDeath journals that a message which a transaction has rejected is being
// dead-lettered. Until the message has left, a relocation of its enqueue repeats that:
// see relocation.add.
func (c *contents) promiseDeath(h handle, reason hook.Reason) {
	if !c.isJournalled(h.slot()) {
		return
	}
	c.journalDeadLettering(h, reason)
	if c.promised == nil {
		c.promised = map[Ref]hook.Reason{}
	}
	c.promised[h.ref] = reason
}

// journalDeadlineSet journals the deadline at if it is not the present one of the
// message, and the message's strategy data if changed says that they are new.
func (c *contents) journalDeadlineSet(h handle, at hook.Instant, changed bool) {
	s := h.slot()
	if !c.isJournalled(s) || at == h.deadline() && !changed {
		return
	}
	var data strategyData
	if s.flags&hasStrategyData != 0 {
		data = c.store.read(*s).strategyData
	}
	c.buf.ops.buf = appendDeadlineSet(c.buf.ops.buf, c.cfg.Storage.ID, h.ref, at, data, s.flags)
}

// journalHeld journals the hold of a message, or that the hold has ended.
func (c *contents) journalHeld(h handle) {
	if c.isJournalled(h.slot()) {
		c.buf.ops.buf = c.appendHeldOf(c.buf.ops.buf, h)
	}
}

// appendHeldOf appends the operation with the hold of a message.
func (c *contents) appendHeldOf(b []byte, h handle) []byte {
	flags := byte(0)
	switch s := h.slot(); {
	case s.flags&unready != 0:
		flags = heldUnready
	case !s.is(stateHeld) && h.hold() != 0:
		flags = heldReleased
	}
	return appendHeld(b, c.cfg.Storage.ID, h.ref, h.hold(), flags, c.nacksOf(h.ref))
}

// journalAsks journals that hooks want to see a message at the head. Its enqueue did not
// say so.
func (c *contents) journalAsks(h handle) {
	if c.isJournalled(h.slot()) {
		c.buf.ops.buf = appendAsks(c.buf.ops.buf, c.cfg.Storage.ID, h.ref)
	}
}

// setStrategyData changes the strategy data of a message, which may make its record
// longer. It reports whether the data differ.
func (c *contents) setStrategyData(h handle, data strategyData) (changed bool) {
	s := h.slot()
	before := weight(s)
	changed = c.store.setStrategyData(s, data)
	if grown := weight(s) - before; grown != 0 && c.isJournalled(s) {
		extent, _ := h.chunk.extentOf(h.index, 0)
		c.buf.ops.accountAs(extent, 0, grown)
	}
	return changed
}

// commit commits the operations of the turn so far. c, which may be nil, is called when
// these and all those committed before are durable. If messages have entered from a queue
// with the same journal, their removal from that queue is in the same commit.
func (q *Queue) commit(c journal.Completer) {
	n := &q.buf.ops
	if q.cfg.Storage == nil || c == nil && len(n.buf)+len(n.settled)+len(n.deltas) == 0 {
		return
	}
	own := len(n.buf)
	n.removeArrived(q.cfg.Storage.Journal, c != nil)
	if c == nil && len(n.settled)+len(n.deltas) == 0 && len(n.buf) == own {
		n.commitChanges(q)
		return
	}
	n.compose(q)
	q.cfg.Storage.Journal.Commit(n.buf, n.deltas, c)
	n.reset()
}

// commitChanges is commit for a turn that has neither brought nor removed messages: it
// has requeued or held some, or changed deadlines. The journal may refuse these
// operations, because on a full disk consumers that requeue for ever would use up the
// space that removals need. Then a restart finds the messages as they were, unless they
// are changed once more; deliveries are journalled with the next commit.
func (n *opBuffer) commitChanges(q *Queue) {
	n.compose(q)
	if !q.cfg.Storage.Journal.TryCommit(n.buf) {
		for l := range q.levels {
			q.levels[l].journalledUpTo = 0
		}
	}
	n.reset()
}

// compose completes the operations of the turn so far.
func (n *opBuffer) compose(q *Queue) {
	if len(n.settled) > 0 {
		n.buf = appendSettled(n.buf, q.cfg.Storage.ID, n.settled)
		n.settled = n.settled[:0]
	}
	if len(n.buf) > 0 {
		q.journalDelivered()
	}
}

// journalDelivered journals how far messages were delivered, so that a restart marks them
// as redelivered. It needs no commit of its own.
func (c *contents) journalDelivered() {
	if c == nil || c.cfg.Storage == nil {
		return
	}
	for l := range c.levels {
		f := &c.levels[l]
		if f.deliveredUpTo > f.journalledUpTo {
			c.buf.ops.buf = appendDelivered(c.buf.ops.buf, c.cfg.Storage.ID, l, f.deliveredUpTo)
			f.journalledUpTo = f.deliveredUpTo
		}
	}
}

func (n *opBuffer) reset() {
	const large = 4 << 20 // not kept for reuse
	if cap(n.buf) > large {
		n.buf = nil
	}
	n.buf, n.settled, n.deltas = n.buf[:0], n.settled[:0], n.deltas[:0]
	n.alike, n.extent, n.others = span{}, 0, false
}

// confirm confirms the present batch: at once, or when its operations and all those
// committed before are durable. The latter may have the messages whose duplicates were
// dropped.
func (q *Queue) confirm(b *Batch) {
	n := &q.buf.ops
	n.confirmed = true
	waits := n.enqueued > 0 || n.relies && q.cfg.Storage != nil
	if waits && (b.awaited() || b.underway > 0) {
		q.commit((*batchCommit)(b))
	} else {
		q.commit(nil)
		b.complete(nil)
	}
	n.enqueued, n.relies, n.arriving, n.entered = 0, false, nil, 0
}

// removeArrived appends the removals of those messages of the present batch that have
// entered from other queues. last says that all have entered and that this is the last
// commit with messages of the batch.
func (n *opBuffer) removeArrived(j Journal, last bool) {
	b := n.arriving
	if b == nil || n.enqueued == 0 || n.relies {
		return
	}
	entered := b.Messages[:n.entered]
	switch r := b.Removal; {
	case r != nil:
		r.appendRemovals(n, entered, j)
		if last && r.joins(j) {
			r.appendTo(n)
		}
	case b.kept != nil:
		b.kept.appendRemovals(n, entered, j)
	}
}

func appendSettled(b []byte, queue uint64, refs []Ref) []byte {
	b = binary.LittleEndian.AppendUint32(appendOp(b, opSettled, queue), uint32(len(refs)))
	for _, r := range refs {
		b = binary.LittleEndian.AppendUint64(b, uint64(r))
	}
	return b
}
