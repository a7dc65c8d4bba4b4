package queue

import (
	"fmt"

	"github.com/curfewmq/curfew/sdk/hook"
)

// replayedQueue is a queue that is being restored. It has no mailbox yet. Its messages
// lie in the chunks that the queue will have, so a replay takes little more memory than
// the queue.
type replayedQueue struct {
	kind          Kind // 0 means that the queue was not declared yet
	store         store
	levels        []replayedLevel
	nacks         map[Ref]uint16      // see holding
	undecided     map[Ref]struct{}    // messages that the strategy could not decide about
	deadLettering map[Ref]hook.Reason // of discards
	broken        error               // the panic of an operation: the operations behind it are skipped; nil means none
	pinned        map[uint32]bool     // extents of operations that were skipped
	// holds is for a queue of unknown kind: it has the holds that differ if the queue is
	// that of an exchange.
	holds map[Ref]replayedHold
}

// replayedHold is the hold of a message in the journal.
type replayedHold struct {
	until   hook.Instant // the end of the hold; for a message that is not held, of its first hold, or 0
	held    bool
	nacks   uint16
	unready bool
}

// apply applies one operation. With a nil q it only reads the operation.
func (r *Restorer) apply(kind byte, q *replayedQueue, extent uint32, in *reader) error {
	switch kind {
	case opEnqueued, opEnqueuedAlike:
		q.enqueued(kind, extent, in)
	case opSettled:
		q.settled(in.refs(in.u32()))
	case opReturned:
		ref, returns := Ref(in.u64()), in.u16()
		if h, ok := q.locate(ref); ok {
			h.slot().setReturns(returns)
			h.slot().flags |= redelivered
		}
	case opDeadlineSet, opDeadlineSetBy:
		ref, at, m := Ref(in.u64()), in.at(), in.strategyData(kind)
		if h, ok := q.locate(ref); ok {
			h.chunk.setDeadline(h.index, at)
			q.store.setStrategyData(h.slot(), m)
			q.noteUndecided(ref, m)
		}
	case opPurged:
		q.purged(in.take(int(in.u32()) * runSize))
	case opDeadLettering:
		ref, why := Ref(in.u64()), reasonOf(in.u8())
		if _, ok := q.locate(ref); ok {
			q.discard(ref, why)
		}
	case opHeld:
		ref, h := in.heldAs()
		q.held(ref, h)
	case opAsks:
		if h, ok := q.locate(Ref(in.u64())); ok {
			h.slot().flags |= askHead
		}
	case opDelivered:
		level, seq := in.u8(), in.u64()
		if q != nil {
			q.level(int(level)).delivered(seq)
		}
	default:
		return fmt.Errorf("%w: kind %d", errOps, kind)
	}
	return nil
}

func (q *replayedQueue) enqueued(kind byte, extent uint32, in *reader) {
	r, deadline := Ref(in.u64()), in.at()
	entered, flags, returns := in.at(), slotFlags(in.u8()), in.u16()
	record, saved, body := in.record(kind, int(in.u32()), flags)
	if q == nil || in.bad {
		return
	}
	if h, ok := q.locate(r); ok {
		h.chunk.setExtent(h.index, extent, saved) // a relocation
		return
	}
	s := q.store.restore(entered, record, flags&journalled)
	s.setReturns(returns)
	if flags&hasDigest != 0 {
		data, _ := cutStrategyData(record, flags)
		q.noteUndecided(r, data)
	}
	c, i := q.level(r.level()).insert(r.seq(), s, uint32(body))
	c.setDeadline(i, deadline)
	c.setExtent(i, extent, saved)
}

// locate finds a message that is there; q may be nil.
func (q *replayedQueue) locate(r Ref) (h handle, ok bool) {
	if q == nil || r.level() >= len(q.levels) {
		return handle{}, false
	}
	f := &q.levels[r.level()].fifo
	c, i, ok := f.locate(r.seq())
	if !ok || c.slots[i].is(stateFree) {
		return handle{}, false
	}
	return handle{r, f, c, i}, true
}

// level returns a level, and creates it if need be. Levels that the queue does not have
// are dropped when it is filled.
func (q *replayedQueue) level(l int) *replayedLevel {
	for len(q.levels) <= l {
		q.levels = append(q.levels, replayedLevel{})
	}
	return &q.levels[l]
}

// all yields the messages, in order. The caller must not change the chunks.
func (q *replayedQueue) all(yield func(h handle) bool) {
	for l := range q.levels {
		f := &q.levels[l].fifo
		for k := range f.chunks {
			c := &f.chunks[k]
			for i := range c.slots {
				if !c.slots[i].is(stateFree) && !yield(handle{ref(l, c.seq(i)), f, c, i}) {
					return
				}
			}
		}
	}
}

// messages returns how many messages there are.
func (q *replayedQueue) messages() (n int) {
	for l := range q.levels {
		for k := range q.levels[l].chunks {
			n += int(q.levels[l].chunks[k].live)
		}
	}
	return n
}

// pack moves records out of sparse segments to new ones.
func (q *replayedQueue) pack() {
	last := q.store.last()
	for h := range q.all {
		s := h.slot()
		if last-s.segment-1 >= 1<<31 || !q.store.mostlyGone(s.segment) {
			continue
		}
		*s = q.store.move(*s)
		q.store.releaseSpilled() // a replay has no turns, whose ends would do this
	}
}

func (q *replayedQueue) settled(refs []byte) {
	in := reader{b: refs}
	for q != nil && len(in.b) > 0 {
		if h, ok := q.locate(Ref(in.u64())); ok { // else its enqueue was trimmed away
			q.free(h)
		}
	}
}

// free removes a message.
func (q *replayedQueue) free(h handle) {
	q.store.free(*h.slot())
	h.list.remove(h.chunk, h.index)
	delete(q.holds, h.ref)
	delete(q.nacks, h.ref)
	delete(q.deadLettering, h.ref)
	delete(q.undecided, h.ref)
}

// noteUndecided records whether the strategy must be asked about a message again.
func (q *replayedQueue) noteUndecided(r Ref, m strategyData) {
	switch {
	case !m.isUndecided():
		delete(q.undecided, r)
		return
	case q.undecided == nil:
		q.undecided = map[Ref]struct{}{}
	}
	q.undecided[r] = struct{}{}
}

// release frees all memory, but not that of a broken queue, whose data cannot be trusted.
func (q *replayedQueue) release() {
	if q.broken != nil {
		return
	}
	q.store.release()
	for l := range q.levels {
		for k := range q.levels[l].chunks {
			q.levels[l].chunks[k].free()
		}
	}
	q.levels = nil
}

func (q *replayedQueue) purged(runs []byte) {
	in := reader{b: runs}
	for q != nil && len(in.b) > 0 {
		first, count := Ref(in.u64()), uint64(in.u32())
		q.purgeRun(first, count)
	}
}

// purgeRun removes the messages of a run that are still there.
func (q *replayedQueue) purgeRun(first Ref, count uint64) {
	if first.level() >= len(q.levels) {
		return
	}
	f := &q.levels[first.level()].fifo
	end := min(first.seq()+count, f.next)
	for seq := first.seq(); seq < end; {
		c := f.chunk(seq)
		if c == nil {
			seq = f.nextChunk(seq, end)
			continue
		}
		i := c.index(int(seq & positionMask))
		for i < len(c.slots) && c.slots[i].is(stateFree) {
			i++
		}
		if i >= len(c.slots) {
			seq = (c.number + 1) << chunkBits
			continue
		}
		if seq = c.seq(i); seq < end {
			q.free(handle{ref(first.level(), seq), f, c, i})
			seq++
		}
	}
}

func (q *replayedQueue) discard(r Ref, why hook.Reason) {
	if q.deadLettering == nil {
		q.deadLettering = map[Ref]hook.Reason{}
	}
	q.deadLettering[r] = why
}

// heldAs reads the hold of a message.
func (r *reader) heldAs() (Ref, replayedHold) {
	ref, until, flags, nacks := Ref(r.u64()), r.at(), r.u8(), r.u16()
	return ref, replayedHold{until: until, held: until != 0 && flags&heldReleased == 0, nacks: nacks, unready: flags&heldUnready != 0}
}

// held applies the hold of a message. In the queue of an exchange it ignores a hold that
// is older than the present one: see heldOnce.
func (q *replayedQueue) held(r Ref, as replayedHold) {
	h, ok := q.locate(r)
	if !ok {
		return
	}
	was, differs := q.holds[r]
	if !differs {
		was = q.currentHold(h)
	}
	overtaken := was.held && isOlderHold(as.nacks, was.nacks)
	switch {
	case q.kind == Holding && overtaken:
		return
	case q.kind == 0 && overtaken:
		q.noteHold(r, was)
	case differs:
		delete(q.holds, r)
	}
	q.setHold(h, as)
}

func (q *replayedQueue) noteHold(r Ref, h replayedHold) {
	if q.holds == nil {
		q.holds = map[Ref]replayedHold{}
	}
	q.holds[r] = h
}

// declare sets the kind of the queue.
func (q *replayedQueue) declare(k Kind) {
	q.kind = k
	q.store.cold = k == Holding
	for r, as := range q.holds {
		if h, ok := q.locate(r); ok && k == Holding {
			q.setHold(h, as)
		}
	}
	q.holds = nil
}

// currentHold returns the present hold of a message.
func (q *replayedQueue) currentHold(h handle) replayedHold {
	s := h.slot()
	return replayedHold{until: h.hold(), held: s.is(stateHeld), nacks: q.nacks[h.ref], unready: s.flags&unready != 0}
}

func (q *replayedQueue) setHold(h handle, as replayedHold) {
	s := h.slot()
	s.become(stateReady)
	if as.held {
		s.become(stateHeld)
	}
	s.flags &^= unready
	if as.unready {
		s.flags |= unready
	}
	if as.until != h.hold() {
		h.chunk.setHold(h.index, as.until)
	}
	q.setNacks(h.ref, as.nacks)
}

func (q *replayedQueue) setNacks(r Ref, nacks uint16) {
	switch {
	case nacks == 0:
		delete(q.nacks, r)
		return
	case q.nacks == nil:
		q.nacks = map[Ref]uint16{}
	}
	q.nacks[r] = nacks
}

// restore counts and indexes a message of the chunks that a replay has filled.
func restore(q *Queue, h handle, body int, deadLettering hook.Reason) {
	s := h.slot()
	if deadLettering != hook.ReasonNone && q.cfg.Schedule == nil {
		q.endReplayedHold(h)
	}
	// Journals of earlier versions do not say that a hold has ended: the message may have
	// been delivered since.
	if h.ref.seq() < h.list.deliveredUpTo && (s.flags&unready == 0 || h.hold() <= q.mailbox.clock()) {
		s.flags |= redelivered
	}
	q.count.Published++
	q.count.Restored++
	switch {
	case deadLettering != hook.ReasonNone:
		s.become(stateUnacked)
		q.unacked++
		q.discarding().restore(q, h.ref, deadLettering)
		return
	case q.cfg.Schedule != nil:
		q.scheduling().restore(q, h)
	case s.is(stateHeld):
		q.indexHeld(h)
	default:
		h.list.ready++
		q.ready++
		q.readyBytes += int64(body)
	}
	q.indexDeadline(h, h.deadline(), false)
}

// endReplayedHold ends the hold of a message that is being dead-lettered.
func (c *contents) endReplayedHold(h handle) {
	s := h.slot()
	if s.is(stateHeld) && s.flags&unready == 0 {
		h.chunk.setHold(h.index, 0)
	}
	s.flags &^= unready
}
