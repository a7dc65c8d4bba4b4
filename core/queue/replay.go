package queue

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/curfewmq/curfew/core/journal"
	"github.com/curfewmq/curfew/sdk/hook"
)

// Replayer makes queues what they were from the operations in a journal. Make
// it from the queues that exist, apply every operation in order, fill the queues,
// then start them; nobody else may use the queues meanwhile. It belongs to one goroutine.
type Replayer struct {
	queues map[uint64]*replayedQueue
	last   *replayedQueue // the queue of the last operation
	lastID uint64
}

// replayedQueue is a queue in the making.
type replayedQueue struct {
	mailbox       *Mailbox
	list          []replayedMessage
	index         refIndex // in list, of the messages that are there
	deliveredUpTo []uint64 // by level
	next          []uint64 // by level: no message has been given this number or a higher one
}

// replayedMessage is a message that was enqueued, and may have been settled since.
type replayedMessage struct {
	ref           Ref
	deadline      hook.Instant
	slot          slot
	extent        uint32
	body          uint32      // bytes
	saved         int         // bytes that its operation has less than it weighs
	deadLettering hook.Reason // not none: it is a discard
}

// NewReplayer returns a restorer of held queues, each with its number in the
// journal.
func NewReplayer(shells []*Mailbox) *Replayer {
	r := &Replayer{queues: make(map[uint64]*replayedQueue, len(shells))}
	for _, s := range shells {
		if rec := s.Config().Storage; rec != nil {
			r.queues[rec.ID] = &replayedQueue{mailbox: s, deliveredUpTo: make([]uint64, s.Config().Levels+1), next: make([]uint64, s.Config().Levels+1)}
		}
	}
	return r
}

// Apply carries out the operations of one commit or several, which lie in an
// extent. Those of queues that are not there any more are passed over.
func (r *Replayer) Apply(extent uint32, ops []byte) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = readError(p)
		}
	}()
	in := reader{b: ops}
	for len(in.b) > 0 && !in.bad {
		kind, id := in.u8(), in.u64()
		if err := r.apply(kind, r.find(id), extent, &in); err != nil {
			return err
		}
	}
	if in.bad {
		return errOps
	}
	return nil
}

func (r *Replayer) find(id uint64) *replayedQueue {
	if r.last == nil || r.lastID != id {
		r.last, r.lastID = r.queues[id], id
	}
	return r.last
}

// apply carries out one operation; q is nil for a queue that is gone.
func (r *Replayer) apply(kind byte, q *replayedQueue, extent uint32, in *reader) error {
	switch kind {
	case opEnqueued, opEnqueuedAlike:
		q.enqueued(kind, extent, in)
	case opSettled:
		q.settled(in.refs(in.u32()))
	case opReturned:
		ref, returns := Ref(in.u64()), in.u16()
		q.change(ref, func(it *replayedMessage) {
			it.slot.setReturns(returns)
			it.slot.flags |= redelivered
		})
	case opDeadlineSet, opDeadlineSetBy:
		ref, at, m := Ref(in.u64()), in.at(), in.strategyData(kind)
		q.change(ref, func(it *replayedMessage) {
			it.deadline = at
			q.mailbox.queue.store.setStrategyData(&it.slot, m)
		})
	case opPurged:
		q.purged(in.take(int(in.u32()) * runSize))
	case opDeadLettering:
		ref, why := Ref(in.u64()), reasonOf(in.u8())
		q.change(ref, func(it *replayedMessage) { it.deadLettering = why })
	case opAsks:
		q.change(Ref(in.u64()), func(it *replayedMessage) { it.slot.flags |= askHead })
	case opDelivered:
		level, seq := in.u8(), in.u64()
		if q != nil && int(level) < len(q.deliveredUpTo) {
			q.deliveredUpTo[level] = max(q.deliveredUpTo[level], seq)
			q.next[level] = max(q.next[level], seq)
		}
	default:
		return fmt.Errorf("%w: kind %d", errOps, kind)
	}
	return nil
}

func (q *replayedQueue) enqueued(kind byte, extent uint32, in *reader) {
	it := replayedMessage{ref: Ref(in.u64()), deadline: in.at(), extent: extent}
	entered, flags, returns := in.at(), slotFlags(in.u8()), in.u16()
	record, saved, body := in.record(kind, int(in.u32()), flags)
	if q == nil || in.bad || it.ref.level() >= len(q.next) {
		return
	}
	if i, ok := q.index.get(it.ref); ok {
		q.list[i].extent, q.list[i].saved = extent, saved // it was moved
		return
	}
	q.mailbox.queue.open()
	q.next[it.ref.level()] = max(q.next[it.ref.level()], it.ref.seq()+1)
	it.slot = q.mailbox.queue.store.restore(entered, record, flags&journalled)
	it.slot.setReturns(returns)
	it.body, it.saved = uint32(body), saved
	q.index.add(it.ref, int32(len(q.list)))
	q.list = append(q.list, it)
}

func (q *replayedQueue) settled(refs []byte) {
	if q == nil {
		return
	}
	in := reader{b: refs}
	for len(in.b) > 0 {
		q.settle(Ref(in.u64()))
	}
}

func (q *replayedQueue) settle(ref Ref) {
	if i, ok := q.index.remove(ref); ok { // else its enqueue was trimmed away
		q.free(i)
	}
}

// free forgets the item at a place.
func (q *replayedQueue) free(i int32) {
	q.mailbox.queue.store.free(q.list[i].slot)
	q.list[i].extent = 0
}

func (q *replayedQueue) purged(runs []byte) {
	if q == nil {
		return
	}
	in := reader{b: runs}
	for len(in.b) > 0 {
		q.index.removeRun(Ref(in.u64()), Ref(in.u32()), q.free)
	}
}

func (q *replayedQueue) change(ref Ref, fn func(*replayedMessage)) {
	if q == nil {
		return
	}
	if i, ok := q.index.get(ref); ok {
		fn(&q.list[i])
	}
}

// Fill puts the messages that are there in their queues, in order, and returns
// how many there are.
func (r *Replayer) Fill() (messages int) {
	for _, q := range r.queues {
		messages += q.index.size
		q.fill()
	}
	return messages
}

// Start has the queues hand out and expire what they hold. What dies goes to
// other queues, so all of the broker's, of whichever restorer, must have been
// filled: a message that comes earlier would take the number of an older one.
func (r *Replayer) Start() {
	for _, q := range r.queues {
		q.mailbox.start()
	}
	r.queues, r.last = nil, nil
}

// fill puts the messages in the queue.
func (q *replayedQueue) fill() {
	q.list = slices.DeleteFunc(q.list, func(it replayedMessage) bool { return it.extent == 0 })
	slices.SortFunc(q.list, func(a, b replayedMessage) int { return cmp.Compare(a.ref, b.ref) })
	var n opBuffer
	for i := range q.list {
		it := &q.list[i]
		q.mailbox.queue.put(it, q.deliveredUpTo)
		n.account(it.extent, weight(&it.slot)-int64(it.saved))
	}
	for l := range q.next {
		if q.next[l] > 0 {
			q.mailbox.queue.open()
			q.mailbox.queue.levels[l].skipTo(q.next[l])
		}
	}
	q.mailbox.Config().Storage.Journal.Commit(nil, n.deltas, nil)
}

// put takes a message in at the place it had.
func (q *Queue) put(it *replayedMessage, handed []uint64) {
	l, seq := it.ref.level(), it.ref.seq()
	f := &q.levels[l]
	f.skipTo(seq)
	if seq < handed[l] {
		it.slot.flags |= redelivered
	}
	body := int(it.body)
	f.push(it.slot, it.deadline)
	h := q.at(it.ref)
	h.chunk.setExtent(h.index, it.extent, it.saved)
	f.deliveredUpTo, f.journalledUpTo = handed[l], handed[l]
	q.ready++
	q.readyBytes += int64(body)
	q.count.Published++
	q.count.Restored++
	if it.deadLettering != hook.ReasonNone {
		q.take(h, body)
		q.restoreDiscard(it.ref, it.deadLettering)
		return
	}
	q.indexDeadline(h, it.deadline, false)
}

// Relocate writes what the queue has in extents up to the given one to the journal
// again, so that they can be dropped. It does a bounded part of it and reports
// whether there is more.
func (q *Queue) Relocate(upTo uint32) (more bool) {
	if q.cfg.Storage == nil || q.contents == nil {
		return false
	}
	moved := &relocation{journal: q.cfg.Storage.Journal}
	defer func() {
		q.commit(nil) // what was noted before comes before
		moved.commit()
	}()
	if q.relocating.upTo != upTo {
		q.relocating = relocationCursor{upTo: upTo}
	}
	for at := &q.relocating; at.level < len(q.levels); at.level, at.chunk = at.level+1, 0 {
		f := &q.levels[at.level]
		for c := f.index(at.chunk); c < len(f.chunks); c++ {
			at.chunk = f.chunks[c].number
			if q.relocateChunk(moved, at.level, f, c, upTo) {
				return true
			}
		}
	}
	q.relocating = relocationCursor{}
	return false
}

// relocationCursor is how far Move has come: what lies before it is not in extents up
// to upTo any more, and what comes to be is in later ones.
type relocationCursor struct {
	upTo  uint32
	level int
	chunk uint64 // its number
}

// relocation is messages on their way to another place in the journal. They are of
// use where they were until the copies are durable.
type relocation struct {
	journal Journal
	notes   opBuffer
	old     []journal.Delta
}

const maxMoved = 64 << 10 // bytes moved in one go: more may not fit when the disk is nearly full

func (q *Queue) relocateChunk(m *relocation, l int, f *fifo, c int, upTo uint32) (enough bool) {
	k := &f.chunks[c]
	for i := range k.slots {
		s := &k.slots[i]
		if s.is(stateFree) || k.extents == nil || k.extents[i] == 0 || k.extents[i] > upTo {
			continue
		}
		if len(m.notes.buf) > maxMoved {
			return true
		}
		seq := k.number<<chunkBits + k.position(i)
		m.old = append(m.old, journal.Delta{Extent: k.extents[i], Bytes: k.savedBy(i) - weight(s)})
		moved := *s
		if seq < f.deliveredUpTo {
			moved.flags |= redelivered // what says so else may be dropped with the old place
		}
		saved := m.notes.enqueue(q, ref(l, seq), k.deadline(i), q.store.read(moved).enqueued, &moved)
		k.setExtent(i, m.journal.Extent(), saved)
		m.notes.account(k.extents[i], weight(s)-int64(saved))
		if why := q.discards.reason(ref(l, seq)); why != hook.ReasonNone {
			m.notes.buf = appendDeadLettering(m.notes.buf, q.cfg.Storage.ID, ref(l, seq), why)
		}
	}
	return false
}

func (m *relocation) commit() {
	if len(m.notes.buf) == 0 {
		return
	}
	m.journal.Relocate(m.notes.buf, append(m.notes.deltas, m.old...))
}
