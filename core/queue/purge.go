package queue

import (
	"encoding/binary"

	"github.com/curfewmq/curfew/sdk/hook"
)

// A queue that is purged or deleted, or has to stop, parts with all it holds at
// once, however much that is. The memory is given back bit by bit.

// garbage is what a queue held and has not given back yet.
type garbage struct {
	levels []fifo
	store  store
	next   *garbage
}

// Purge drops every ready message and returns how many there were.
func (q *Queue) Purge(now hook.Instant) int {
	n := q.ready
	if n+q.waiting() == 0 {
		return 0
	}
	q.count.Purged += uint64(n + q.purgeDiscards())
	if n > 0 {
		q.journalPurged(false)
		q.detachContents(q.unacked + q.waiting())
	}
	q.freeGarbage()
	q.endTurn(now)
	return n
}

// detachContents makes waste of all that the queue holds but for some messages that are
// handed out, or discards: kept of them, which is all or none.
func (q *Queue) detachContents(kept int) {
	old := q.contents
	q.contents = &contents{levels: make([]fifo, len(old.levels)), count: old.count, restamping: old.restamping}
	w := &garbage{old.levels, old.store, q.garbage}
	q.garbage = w
	for l := range w.levels {
		from, to := &w.levels[l], &q.levels[l]
		for seq, s := from.messageFrom(0); s != nil && kept > 0; seq, s = from.messageFrom(seq + 1) {
			if s.is(stateUnacked) {
				q.carry(&w.store, from, to, seq, s)
				kept--
			}
		}
		to.skipTo(from.next)
		to.deliveredUpTo, to.journalledUpTo = from.deliveredUpTo, from.journalledUpTo
	}
	q.ready, q.readyBytes = 0, 0
}

// dropContents makes waste of all that the queue holds. That it is gone for good is
// noted, in one piece, before the journal may forget any of it: until the queue's
// definition is gone, too, a restart finds all of it or nothing. Of a queue that is
// stopped it finds everything.
func (q *Queue) dropContents() {
	if q.contents == nil {
		return
	}
	if q.stopped == nil && q.ready+q.unacked+q.waiting() > 0 {
		q.journalPurged(true)
	}
	q.detachContents(0)
	q.unacked, q.discards, q.departing, q.ending = 0, nil, nil, nil
	q.freeGarbage()
}

// carry copies a taken message to a list that it enters with the number it had.
func (q *Queue) carry(old *store, from, to *fifo, seq uint64, s *slot) {
	c, i, _ := from.locate(seq)
	kept := q.store.restore(old.read(*s).enqueued, old.peek(*s), s.flags&^(inHeap|inRun|inRequeued))
	to.skipTo(seq)
	to.push(kept, c.deadline(i))
	copied, k, _ := to.locate(seq)
	to.take(&copied.slots[k])
	if c.extents != nil && c.extents[i] != 0 {
		copied.setExtent(k, c.extents[i], int(c.savedBy(i)))
	}
	s.become(stateFree)
}

// What a turn gives back at most.
const (
	cleanedChunks   = 16
	cleanedSegments = 64
)

// freeGarbage gives back some of the waste.
func (q *Queue) freeGarbage() {
	chunks, segments := cleanedChunks, cleanedSegments
	for w := q.garbage; w != nil; w = q.garbage {
		for l := range w.levels {
			for f := &w.levels[l]; len(f.chunks) > 0; f.chunks = f.chunks[1:] {
				if chunks--; chunks < 0 {
					return
				}
				q.accountRemoved(&f.chunks[0])
				f.chunks[0].free()
			}
		}
		for s := &w.store; len(s.segments) > 0; s.segments = s.segments[1:] {
			if segments--; segments < 0 {
				return
			}
			s.discard(&s.segments[0])
		}
		q.garbage = w.next
	}
}

// accountRemoved takes messages out of the account. Those of a queue that is stopped are
// only forgotten: a restart finds them in the journal, which has to keep them.
func (q *Queue) accountRemoved(c *chunk) {
	if c.extents == nil || q.stopped != nil {
		return
	}
	for i := range c.slots {
		if s := &c.slots[i]; !s.is(stateFree) && q.isJournalled(s) {
			q.buf.ops.account(c.extents[i], c.savedBy(i)-weight(s))
		}
	}
}

// refRuns are messages in a row: as many of them as there are, in a few bytes.
type refRuns struct {
	all   bool   // those that are handed out are meant, too
	b     []byte // those that have ended
	n     uint32
	first Ref
	count uint32 // of the last one
}

// add adds count messages from first on, which are behind those there are.
func (r *refRuns) add(first Ref, count uint32) {
	if r.count > 0 && r.first+Ref(r.count) == first {
		r.count += count
		return
	}
	r.end()
	r.first, r.count = first, count
}

// end ends the last run.
func (r *refRuns) end() {
	if r.count == 0 {
		return
	}
	r.b = binary.LittleEndian.AppendUint64(r.b, uint64(r.first))
	r.b = binary.LittleEndian.AppendUint32(r.b, r.count)
	r.n++
	r.count = 0
}

// journalPurged notes that the ready messages leave, or all.
func (q *Queue) journalPurged(all bool) {
	if q.cfg.Storage == nil {
		return
	}
	r := refRuns{all: all}
	others := q.unacked + q.waiting()
	for l := range q.levels {
		f := &q.levels[l]
		for c := range f.chunks {
			others -= r.addChunk(&f.chunks[c], ref(l, f.chunks[c].number<<chunkBits), all || others == 0)
		}
	}
	r.end()
	n := &q.buf.ops
	n.buf = binary.LittleEndian.AppendUint32(appendOp(n.buf, opPurged, q.cfg.Storage.ID), r.n)
	n.buf = append(n.buf, r.b...)
}

// addChunk adds the messages of a chunk, which begins at first, and returns how
// many are left out. There are none if alone is set: then a full chunk need not be
// looked at.
func (r *refRuns) addChunk(c *chunk, first Ref, alone bool) (others int) {
	if alone && c.positions == nil && c.live == chunkSlots {
		r.add(first, chunkSlots)
		return 0
	}
	for i := range c.slots {
		switch {
		case c.slots[i].is(stateFree):
		case c.slots[i].is(stateReady) || r.all:
			r.add(first+Ref(c.position(i)), 1)
		default:
			others++
		}
	}
	return others
}
