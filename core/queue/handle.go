package queue

import "github.com/curfewmq/curfew/sdk/hook"

// Ref names a message in its queue for as long as it is there: a level (8 bits) and a
// sequence number in it (56 bits).
type Ref uint64

const levelShift = 56

func ref(level int, seq uint64) Ref { return Ref(uint64(level)<<levelShift | seq) }

func (r Ref) level() int  { return int(uint64(r) >> levelShift) }
func (r Ref) seq() uint64 { return uint64(r) & (1<<levelShift - 1) }

// handle is a message located in its queue. It is valid until a message enters or
// leaves, so only a Ref can be kept for longer.
type handle struct {
	ref   Ref
	list  *fifo
	chunk *chunk
	index int // in chunk
}

func (h handle) slot() *slot { return &h.chunk.slots[h.index] }

func (h handle) deadline() hook.Instant { return h.chunk.deadline(h.index) }

// hold returns until when a held message is held.
func (h handle) hold() hook.Instant { return h.chunk.hold(h.index) }

// wasHeldAtFirst reports whether hold is until when the message was held as it entered, or
// is still.
func (h handle) wasHeldAtFirst() bool {
	s := h.slot()
	return h.hold() != 0 && (s.flags&unready != 0 || !s.is(stateHeld))
}

// locate finds a message; ok is false if it has no slot.
func (q *Queue) locate(r Ref) (h handle, ok bool) {
	if q.contents == nil || r.level() >= len(q.levels) {
		return handle{}, false
	}
	f := &q.levels[r.level()]
	c, i, ok := f.locate(r.seq())
	return handle{r, f, c, i}, ok
}

// at is locate for a message that is there.
func (q *Queue) at(r Ref) handle {
	f := &q.levels[r.level()]
	c, i, _ := f.locate(r.seq())
	return handle{r, f, c, i}
}

// take makes a ready message an unacknowledged one; body is the size of its body.
func (q *Queue) take(h handle, body int) {
	s := h.slot()
	h.list.take(s)
	q.ready--
	q.unacked++
	q.readyBytes -= int64(body)
	if s.flags&inHeap != 0 {
		q.stale++
	}
}

// untake makes a taken message ready again, in its old position.
func (q *Queue) untake(h handle, body int) {
	s := h.slot()
	h.list.requeue(h.ref.seq(), s)
	q.ready++
	q.unacked--
	q.readyBytes += int64(body)
	if s.flags&inHeap != 0 {
		q.stale--
	}
}

// drop removes a taken message. The caller counts the reason.
func (q *Queue) drop(h handle) {
	q.journalSettled(h)
	q.free(h)
}

// free is drop for a message whose removal is journalled elsewhere.
func (q *Queue) free(h handle) {
	q.unacked--
	s := h.slot()
	if s.flags&watched != 0 {
		q.tellGone(h.ref, s)
	}
	if q.partly != nil {
		delete(q.partly, h.ref)
	}
	if q.promised != nil {
		delete(q.promised, h.ref)
	}
	q.forgetOverstay(h.ref)
	if q.holding != nil {
		q.holding.forget(h.ref)
		q.forgetID(h)
	}
	q.store.free(*s)
	h.list.remove(h.chunk, h.index)
}
