package queue

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/curfewmq/curfew/sdk/hook"
)

// Replayer restores queues from the operations in a journal: apply every operation in
// order, fill the queues, then start them. Nothing else may use the queues meanwhile. It
// belongs to one goroutine.
type Replayer struct {
	queues map[uint64]*replayedQueue
	last   *replayedQueue // the queue of the last operation
	lastID uint64
}

// replayedQueue is a queue that is being restored.
type replayedQueue struct {
	mailbox       *Mailbox
	list          []replayedMessage
	index         refIndex // in list, of the messages that are in the queue
	deliveredUpTo []uint64 // by level
	next          []uint64 // by level: no message had this sequence number or a higher one
}

// replayedMessage is a message that was enqueued, and may have been settled since.
type replayedMessage struct {
	ref           Ref
	deadline      hook.Instant
	slot          slot
	extent        uint32
	body          uint32      // bytes
	saved         int         // bytes that its operation is shorter than its weight
	deadLettering hook.Reason // unless none, it is a discard
}

// NewReplayer returns a replayer of paused queues.
func NewReplayer(mailboxes []*Mailbox) *Replayer {
	r := &Replayer{queues: make(map[uint64]*replayedQueue, len(mailboxes))}
	for _, m := range mailboxes {
		if storage := m.Config().Storage; storage != nil {
			levels := m.Config().Levels + 1
			r.queues[storage.ID] = &replayedQueue{mailbox: m, deliveredUpTo: make([]uint64, levels), next: make([]uint64, levels)}
		}
	}
	return r
}

// Apply applies the operations of whole commits, which lie in an extent. Operations of
// queues that do not exist any more are skipped.
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

// apply applies one operation; q is nil for a queue that does not exist any more.
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
		q.list[i].extent, q.list[i].saved = extent, saved // it was relocated
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

// free frees the message at an index.
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

// Fill puts the remaining messages in their queues, in order, and returns how many there
// are.
func (r *Replayer) Fill() (messages int) {
	for _, q := range r.queues {
		messages += q.index.size
		q.fill()
	}
	return messages
}

// Start lets the queues deliver and expire messages. Dead letters go to other queues, so
// all queues of the broker must have been filled before, by whichever Replayer: a message
// that enters earlier would take the sequence number of an older one.
func (r *Replayer) Start() {
	for _, q := range r.queues {
		q.mailbox.start()
	}
	r.queues, r.last = nil, nil
}

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

// put restores a message in its old position.
func (q *Queue) put(it *replayedMessage, deliveredUpTo []uint64) {
	l, seq := it.ref.level(), it.ref.seq()
	f := &q.levels[l]
	f.skipTo(seq)
	if seq < deliveredUpTo[l] {
		it.slot.flags |= redelivered
	}
	body := int(it.body)
	f.push(it.slot, it.deadline)
	h := q.at(it.ref)
	h.chunk.setExtent(h.index, it.extent, it.saved)
	f.deliveredUpTo, f.journalledUpTo = deliveredUpTo[l], deliveredUpTo[l]
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
