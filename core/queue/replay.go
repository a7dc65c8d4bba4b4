package queue

import (
	"fmt"

	"github.com/curfewmq/curfew/sdk/hook"
)

// replayedQueue is a queue that is being restored. It has no mailbox yet.
type replayedQueue struct {
	kind          Kind // 0 means that it was not declared yet
	store         store
	list          []replayedMessage
	freed         int             // messages in list that left
	index         refIndex        // in list, of the messages that are in the queue
	deliveredUpTo []uint64        // by level
	next          []uint64        // by level: no message had this sequence number or a higher one
	broken        error           // the panic of one of its operations: the others are skipped; nil means none
	pinned        map[uint32]bool // extents of operations that were skipped
	// holds has, as long as the kind is not known, the holds of messages that would be others if an exchange held them.
	holds map[Ref]replayedHold
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
	replayedHold
}

// replayedHold is what the journal says about how a message is held. The slot's flag unready belongs to it.
type replayedHold struct {
	hold       hook.Instant // until when it is held; 0 means that it is not
	readySince hook.Instant // the end of its first hold; 0 means that it had none
	nacks      uint16
	unready    bool
}

// endHold releases the message.
func (it *replayedMessage) endHold() {
	if it.slot.flags&unready != 0 {
		it.readySince = it.hold
	}
	it.hold = 0
	it.slot.flags &^= unready
}

// apply applies one operation; q is nil for a queue that does not exist any more.
func (r *Restorer) apply(kind byte, q *replayedQueue, extent uint32, in *reader) error {
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
			q.store.setStrategyData(&it.slot, m)
		})
	case opPurged:
		q.purged(in.take(int(in.u32()) * runSize))
	case opDeadLettering:
		ref, why := Ref(in.u64()), reasonOf(in.u8())
		q.change(ref, func(it *replayedMessage) { it.deadLettering = why })
	case opHeld:
		ref, h := in.heldAs()
		q.held(ref, h)
	case opAsks:
		q.change(Ref(in.u64()), func(it *replayedMessage) { it.slot.flags |= askHead })
	case opDelivered:
		level, seq := in.u8(), in.u64()
		if q != nil {
			q.reach(int(level))
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
	if q == nil || in.bad {
		return
	}
	if i, ok := q.index.get(it.ref); ok {
		q.list[i].extent, q.list[i].saved = extent, saved // it was relocated
		return
	}
	l := it.ref.level()
	q.reach(l)
	q.next[l] = max(q.next[l], it.ref.seq()+1)
	it.slot = q.store.restore(entered, record, flags&journalled)
	it.slot.setReturns(returns)
	it.body, it.saved = uint32(body), saved
	q.compact()
	q.index.add(it.ref, int32(len(q.list)))
	q.list = append(q.list, it)
}

// compact removes what left from a list that is full, if that is most of it.
func (q *replayedQueue) compact() {
	if len(q.list) < cap(q.list) || q.freed <= len(q.list)/2 {
		return
	}
	n := 0
	for i := range q.list {
		if q.list[i].extent == 0 {
			continue
		}
		q.list[n] = q.list[i]
		q.index.move(q.list[n].ref, int32(n))
		n++
	}
	q.list, q.freed = q.list[:n], 0
}

// pack moves records out of sparse segments to new ones.
func (q *replayedQueue) pack() {
	last := q.store.last()
	for i := range q.list {
		it := &q.list[i]
		if it.extent == 0 || last-it.slot.segment-1 >= 1<<31 || !q.store.mostlyGone(it.slot.segment) {
			continue
		}
		it.slot = q.store.move(it.slot)
		q.store.releaseSpilled() // a replay has no turns that would end with it
	}
}

// reach makes a level known. Which levels the queue has is checked when it is filled.
func (q *replayedQueue) reach(level int) {
	for len(q.next) <= level {
		q.next, q.deliveredUpTo = append(q.next, 0), append(q.deliveredUpTo, 0)
	}
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
	it := &q.list[i]
	q.store.free(it.slot)
	it.extent = 0
	q.freed++
	delete(q.holds, it.ref)
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

// heldAs reads an operation that says until when a message is held.
func (r *reader) heldAs() (Ref, replayedHold) {
	ref, until, flags, nacks := Ref(r.u64()), r.at(), r.u8(), r.u16()
	h := replayedHold{hold: until, nacks: nacks, unready: flags&heldUnready != 0}
	if flags&heldReleased != 0 {
		h.hold, h.readySince = 0, until
	}
	return ref, h
}

// held says how a message is held from now on. What an exchange holds may have been moved since: then the later hold stays.
func (q *replayedQueue) held(r Ref, h replayedHold) {
	q.change(r, func(it *replayedMessage) {
		was, differs := q.holds[r]
		if !differs {
			was = it.currentHold()
		}
		overtaken := was.hold != 0 && isOlderHold(h.nacks, was.nacks)
		switch {
		case q.kind == Holding && overtaken:
			return
		case q.kind == 0 && overtaken:
			q.noteHold(r, was)
		case differs:
			delete(q.holds, r)
		}
		it.setHold(h)
	})
}

func (q *replayedQueue) noteHold(r Ref, h replayedHold) {
	if q.holds == nil {
		q.holds = map[Ref]replayedHold{}
	}
	q.holds[r] = h
}

// declare makes the kind of the queue known.
func (q *replayedQueue) declare(k Kind) {
	q.kind = k
	q.store.cold = k == Holding
	for r, h := range q.holds {
		if k == Holding {
			q.change(r, func(it *replayedMessage) { it.setHold(h) })
		}
	}
	q.holds = nil
}

// currentHold returns how the message is held.
func (it *replayedMessage) currentHold() replayedHold {
	h := it.replayedHold
	h.unready = it.slot.flags&unready != 0
	return h
}

func (it *replayedMessage) setHold(h replayedHold) {
	it.replayedHold = h
	it.slot.flags &^= unready
	if h.unready {
		it.slot.flags |= unready
	}
}

// put restores a message in its old position.
func (q *Queue) put(it *replayedMessage, deliveredUpTo []uint64) {
	l, seq := it.ref.level(), it.ref.seq()
	f := &q.levels[l]
	f.skipTo(seq)
	if it.deadLettering != hook.ReasonNone && it.hold != 0 && q.cfg.Schedule == nil {
		it.endHold()
	}
	// Journals of earlier versions do not say that a hold has ended: the message may have been delivered since.
	if seq < deliveredUpTo[l] && (it.slot.flags&unready == 0 || it.hold <= q.mailbox.clock()) {
		it.slot.flags |= redelivered
	}
	body := int(it.body)
	f.push(it.slot, it.deadline)
	h := q.at(it.ref)
	h.chunk.setExtent(h.index, it.extent, it.saved)
	if it.readySince != 0 {
		h.chunk.setHold(h.index, it.readySince)
	}
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
	q.restoreHold(h, it)
	q.indexDeadline(h, it.deadline, false)
}
