package queue

import (
	"bytes"
	"cmp"
	"encoding/binary"

	"github.com/curfewmq/curfew/core/journal"
	"github.com/curfewmq/curfew/sdk/hook"
)

// Journal keeps operations. One journal serves many queues; its methods may be called
// from any goroutine and do not wait for the disk. They do not keep their slices.
type Journal interface {
	// Commit appends operations, all of them or none, and changes how many bytes are
	// live: more count at once, fewer when the operations are durable. c, unless it is
	// nil, is called when they are, or at once if there are none and all before are.
	// A [Granter] has granted the space for operations that bring messages.
	Commit(ops []byte, live []journal.Delta, c journal.Completer)
	// TryCommit is Commit of operations that may be missing after a restart. It reports
	// whether they were taken.
	TryCommit(ops []byte) bool
	// Relocate is Commit of copies of operations, which replace the originals.
	Relocate(ops []byte, live []journal.Delta)
	// Extent is the extent that operations committed from now on lie in, or an earlier
	// one. It is never 0.
	Extent() uint32
	// Err returns why nothing can be committed any more, nil as long as it can.
	Err() error
}

// Granter is a journal whose space ends: see [journal.Writer].
type Granter interface {
	// Grant reports whether there is space for operations of so many bytes. Return gives
	// it back once they are committed.
	Grant(bytes int64) bool
	Return(bytes int64)
	// Await calls fn once there is, with the grant.
	Await(bytes int64, fn func())
	// MostGrant returns how many bytes can be granted at most. There never is space for more.
	MostGrant() int64
	// Low reports whether it may be long until then.
	Low() bool
}

// Storage is where a durable queue keeps its persistent messages.
type Storage struct {
	Journal Journal
	ID      uint64 // never given to another queue
	Shard   uint32 // the journal's, for messages to people
}

// granter returns the journal if its space ends, else nil.
func (s *Storage) granter() Granter {
	if s == nil {
		return nil
	}
	g, _ := s.Journal.(Granter)
	return g
}

// opBuffer collects what a turn has to commit.
type opBuffer struct {
	buf       []byte
	alike     span // in buf: the properties of the last enqueue, if sharing them pays
	settled   []Ref
	deltas    []journal.Delta
	extent    uint32 // of the enqueues in buf; 0 = there are none
	enqueued  int    // messages of the batch at hand that are in buf, or were committed
	arriving  *Batch // the batch at hand, if somebody awaits it and it is not confirmed
	entered   int    // messages of it that have entered, or were kept out
	keeps     bool   // the sender of the messages that enter keeps those that are refused
	once      bool   // the messages that enter are dead letters that were sent at most once
	confirmed bool   // the batch at hand is, before its turn ends
	relies    bool   // the batch at hand has a persistent message that was dropped, because the queue has an equal one
	others    bool   // deltas has messages of other queues that leave
}

// span is a run of bytes.
type span struct{ at, size int }

// extentIn returns the extent of the commit's enqueues.
func (n *opBuffer) extentIn(j Journal) uint32 {
	if n.extent == 0 {
		n.extent = j.Extent()
	}
	return n.extent
}

// account accounts for a message that enters an extent, or with negative bytes leaves it; without bytes for none.
func (n *opBuffer) account(extent uint32, bytes int64) {
	n.accountAs(extent, cmp.Compare(bytes, 0), bytes)
}

// accountAs is account for so many messages more.
func (n *opBuffer) accountAs(extent uint32, messages int, bytes int64) {
	// Additions and removals are kept apart, because additions take effect before removals do.
	if k := len(n.deltas); k > 0 && n.deltas[k-1].Extent == extent && n.deltas[k-1].Bytes < 0 == (bytes < 0) {
		n.deltas[k-1].Bytes += bytes
		n.deltas[k-1].Records += int32(messages)
		return
	}
	n.deltas = append(n.deltas, journal.Delta{Extent: extent, Records: int32(messages), Bytes: bytes})
}

// isJournalled reports whether a message is in the journal. Of a durable exchange, all
// messages are that it holds.
func (c *contents) isJournalled(s *slot) bool {
	return c.cfg.Storage != nil && (s.flags&persistent != 0 || c.cfg.Schedule != nil)
}

// weight is the size of a message's operation in the journal, with the whole record.
func weight(s *slot) int64 { return enqueueHeader + int64(s.length) }

// enqueue appends the operation of a stored message, without its properties if they are
// those of the enqueue before. It returns how many bytes that saves.
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

// promiseDeath journals that a message leaves which a transaction has rejected. Until the
// message has left, a copy of its enqueue repeats that: see relocation.add.
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

// journalDeadlineSet journals a deadline that differs from the one a message has, or
// its strategy data if that changed.
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

// journalHeld journals until when a message is held, 0 if it is not any more.
func (c *contents) journalHeld(h handle) {
	if c.isJournalled(h.slot()) {
		c.buf.ops.buf = c.appendHeldOf(c.buf.ops.buf, h)
	}
}

// appendHeldOf appends the operation that says until when a message is held.
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

// journalAsks journals that hooks want to be asked about a message when it is next,
// which its enqueue did not say.
func (c *contents) journalAsks(h handle) {
	if c.isJournalled(h.slot()) {
		c.buf.ops.buf = appendAsks(c.buf.ops.buf, c.cfg.Storage.ID, h.ref)
	}
}

// setStrategyData changes what a strategy keeps with a message, which may make its
// record longer. It reports whether the data differs.
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

// commit commits the operations of the turn so far. c, unless it is nil, is called when
// they are durable, and those committed before. Messages that enter from another queue
// leave that one in the same commit.
func (q *Queue) commit(c journal.Completer) {
	n := &q.buf.ops
	if q.cfg.Storage == nil || c == nil && len(n.buf)+len(n.settled)+len(n.deltas) == 0 {
		return
	}
	n.removeArrived(q.cfg.Storage.Journal, c != nil)
	if c == nil && len(n.settled)+len(n.deltas) == 0 {
		n.commitChanges(q)
		return
	}
	n.compose(q)
	q.cfg.Storage.Journal.Commit(n.buf, n.deltas, c)
	n.reset()
}

// commitChanges is commit of a turn that neither brought nor removed messages: it requeued
// or held some, or changed deadlines. On a full disk, consumers that requeue forever would
// use the space that removals need, so the journal may refuse them. Then a restart finds
// the messages as they were, unless they are changed once more; deliveries are journalled
// with the next commit.
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

// journalDelivered journals how far messages were delivered, so that they are redelivered
// as such after a restart. It is not worth a commit of its own.
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

// confirm confirms the batch at hand: at once, or when its operations are durable, and those
// committed before, which may have the messages that duplicates were dropped for.
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

// removeArrived appends the removals from their old queues of messages of the batch at hand
// that have entered. last says that all have, and that no other commit has messages of it.
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
