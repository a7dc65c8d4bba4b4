package queue

import (
	"cmp"

	"github.com/curfewmq/curfew/core/journal"
	"github.com/curfewmq/curfew/sdk/hook"
)

// Relocate commits copies of the queue's operations in extents up to upTo, so that these
// extents can be trimmed. It relocates a bounded part, and reports whether there is more.
//
// Example: extents 1 to 8 of a log have 16 MiB each, and the only live record in 1 is
// message 7.
//
//	Relocate(1)          a copy of "enqueue 7" is committed; message 7 now counts in extent 8
//	the copy is durable  extent 1 has no live bytes, and is trimmed
//
// A crash in between is harmless: the replay of a second "enqueue 7" only changes the
// extent.
func (q *Queue) Relocate(upTo uint32) (more bool) {
	if q.cfg.Storage == nil || q.contents == nil {
		return false
	}
	r := &relocation{journal: q.cfg.Storage.Journal}
	defer func() {
		q.commit(nil) // the turn's operations come before
		r.repeatDelivered(q.contents)
		r.commit()
	}()
	if q.relocating.upTo != upTo {
		q.relocating = relocationCursor{upTo: upTo}
	}
	for at := &q.relocating; at.level < len(q.levels); at.level, at.chunk = at.level+1, 0 {
		f := &q.levels[at.level]
		for c := f.index(at.chunk); c < len(f.chunks); c++ {
			at.chunk = f.chunks[c].number
			if r.add(q, at.level, f, c, upTo) {
				return true
			}
		}
	}
	q.relocating = relocationCursor{}
	return false
}

// relocationCursor is the progress of Relocate. Messages before it, and messages that
// entered since it began, are in extents behind upTo.
type relocationCursor struct {
	upTo  uint32
	level int
	chunk uint64 // number of the chunk to go on with
}

// relocation is copies of messages' operations. The originals stay live until the copies
// are durable.
type relocation struct {
	journal Journal
	ops     opBuffer
	old     []journal.Delta
}

// maxRelocated is about how many bytes of copies one commit has: more may not fit when
// the disk is nearly full.
const maxRelocated = 64 << 10

// add copies the messages of a chunk that lie in extents up to upTo, and reports whether
// the commit is full.
func (r *relocation) add(q *Queue, l int, f *fifo, c int, upTo uint32) (enough bool) {
	k := &f.chunks[c]
	for i := range k.slots {
		s := &k.slots[i]
		extent, bytes := k.extentOf(i, -1)
		if s.is(stateFree) || extent == 0 || extent > upTo {
			continue
		}
		if len(r.ops.buf) > maxRelocated {
			return true
		}
		seq := k.number<<chunkBits + k.position(i)
		if s.is(stateUnacked) && q.redrive.has(ref(l, seq)) {
			continue // its removal may be in the journal: a copy behind that would bring it back
		}
		if q.isArriving(ref(l, seq)) {
			continue // a replay must not find a release that has not arrived
		}
		old := journal.Delta{Extent: extent, Bytes: bytes}
		moved := *s
		if seq < f.deliveredUpTo && s.flags&unready == 0 {
			moved.flags |= redelivered // the operation that says so may be trimmed with the old extent
		}
		saved := r.ops.enqueue(q.contents, ref(l, seq), k.deadline(i), q.store.read(moved).enqueued, &moved)
		extent = r.ops.extentIn(r.journal)
		k.setExtent(i, extent, saved)
		r.ops.accountAs(extent, 0, weight(s)-int64(saved))
		r.old = append(r.old, old) // after enqueue, which panics if the body cannot be read
		if q.wasHeld(handle{ref(l, seq), f, k, i}) {
			r.ops.buf = q.appendHeldOf(r.ops.buf, handle{ref(l, seq), f, k, i})
		}
		if why := cmp.Or(q.discards.reason(ref(l, seq)), q.promised[ref(l, seq)]); why != hook.ReasonNone {
			r.ops.buf = appendDeadLettering(r.ops.buf, q.cfg.Storage.ID, ref(l, seq), why)
		}
	}
	return false
}

// repeatDelivered appends to copies how far messages were delivered, because the
// operation with that position may be trimmed with the originals. A message below the
// position that was held until later is delivered without another such operation.
func (r *relocation) repeatDelivered(c *contents) {
	if len(r.ops.buf) == 0 {
		return
	}
	for l := range c.levels {
		if f := &c.levels[l]; f.deliveredUpTo > 0 {
			r.ops.buf = appendDelivered(r.ops.buf, c.cfg.Storage.ID, l, f.deliveredUpTo)
		}
	}
}

func (r *relocation) commit() {
	if len(r.ops.buf) == 0 {
		return
	}
	r.journal.Relocate(r.ops.buf, append(r.ops.deltas, r.old...))
}
