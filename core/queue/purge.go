package queue

import (
	"encoding/binary"
	"maps"
	"math"
	"slices"

	"github.com/curfewmq/curfew/sdk/hook"
)

// A queue that is purged, deleted or stopped drops all that it holds at once, however
// much that is. The memory is freed in later turns, and only then the journal may forget
// the messages. The commits of these turns come after the one that says that they left.

// garbage is memory of dropped messages that is to be freed.
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
	q.count.Purged += uint64(n + q.discards.purge(q))
	switch kept := q.unacked + q.held() + q.waiting(); {
	case n > 0 && kept > n:
		q.dropReady()
	case n > 0:
		q.buf.gone.purged(q)
		q.journalPurged(false)
		q.detachContents(kept)
	}
	q.freeGarbage()
	q.endTurn(now)
	return n
}

// dropReady drops the ready messages one by one: where most of the others stay, that is
// less than to carry those.
func (q *Queue) dropReady() {
	for q.ready > 0 {
		h := q.at(q.nextRef())
		q.takeForHooks(h)
		q.drop(h)
	}
}

// detachContents makes garbage of all that the queue holds except its unacknowledged and
// held messages and discards, of which there are kept; 0 keeps none of them.
func (q *Queue) detachContents(kept int) {
	old := q.contents
	q.contents = newContents(q)
	q.count, q.restamping = old.count, old.restamping
	switch {
	case kept > 0:
		q.holding, q.undecided = old.holding, old.undecided
	case old.holding != nil:
		old.holding.list.Release()
	}
	w := &garbage{old.levels, old.store, q.garbage}
	q.garbage = w
	for l := range w.levels {
		from, to := &w.levels[l], &q.levels[l]
		for seq, s := from.messageFrom(0); s != nil && kept > 0; seq, s = from.messageFrom(seq + 1) {
			if s.is(stateUnacked) || s.is(stateHeld) {
				held := s.is(stateHeld)
				q.carry(&w.store, from, to, seq, s)
				if h := q.at(ref(l, seq)); held {
					q.indexDeadline(h, h.deadline(), false)
				}
				kept--
			}
		}
		to.skipTo(from.next)
		to.deliveredUpTo, to.journalledUpTo = from.deliveredUpTo, from.journalledUpTo
	}
	q.ready, q.readyBytes = 0, 0
	if q.holding != nil {
		q.forgetOthers()
	}
	gone := func(r Ref) bool { return !q.isThere(r.level(), r.seq()) }
	maps.DeleteFunc(old.partly, func(r Ref, _ partial) bool { return gone(r) })
	maps.DeleteFunc(old.overstays, func(r Ref, _ struct{}) bool { return gone(r) })
	q.partly, q.overstays, q.promised = old.partly, old.overstays, old.promised
}

// dropContents makes garbage of all that the queue holds. The removal is journalled in
// one operation, before the journal may forget any message: until the queue's definition
// is deleted, too, a restart finds all of them or none, but for messages on their way to
// another queue. Of a stopped queue it finds all.
func (q *Queue) dropContents() {
	if q.contents == nil || q.emptied {
		return
	}
	q.emptied = true
	if q.stopped == nil && q.messages() > 0 {
		q.partWithMoving()
		q.journalPurged(true)
	}
	q.buf.gone.allGone(q)
	q.detachContents(0)
	q.unacked, q.moving, q.discards, q.departing.list, q.ending = 0, 0, nil, nil, nil
	q.freeGarbage()
}

// carry copies a taken or held message to a list that it enters with the number it had.
func (c *contents) carry(old *store, from, to *fifo, seq uint64, s *slot) {
	k, i, _ := from.locate(seq)
	state := s.flags & stateMask
	kept := c.store.restore(old.read(*s).enqueued, old.peek(*s), s.flags&^(inHeap|inRun|inRequeued))
	to.skipTo(seq)
	to.push(kept, k.deadline(i))
	copied, n, _ := to.locate(seq)
	to.take(&copied.slots[n])
	if state == stateHeld {
		copied.slots[n].become(stateHeld)
	}
	if at := k.hold(i); at != 0 {
		copied.setHold(n, at)
	}
	if extent := k.extent(i); extent != 0 {
		copied.setExtent(n, extent, int(k.savedBy(i)))
	}
	s.become(stateFree)
}

// What a turn frees at most.
const (
	cleanedChunks   = 16
	cleanedSegments = 64
)

// freeGarbage frees some of the garbage.
func (q *Queue) freeGarbage() {
	chunks, segments := cleanedChunks, cleanedSegments
	for w := q.garbage; w != nil; w = w.next {
		for l := range w.levels {
			for f := &w.levels[l]; len(f.chunks) > 0; {
				if chunks--; chunks < 0 {
					return
				}
				c := &f.chunks[0]
				f.chunks = f.chunks[1:] // first: see pin
				q.accountRemoved(c)
				c.free()
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

// accountRemoved makes messages count as not live. Those of a stopped queue stay live in
// the journal: a restart finds them there.
func (q *Queue) accountRemoved(c *chunk) {
	if c.extents == nil || q.stopped != nil {
		return
	}
	for i := range c.slots {
		if s := &c.slots[i]; !s.is(stateFree) && q.isJournalled(s) {
			q.buf.ops.account(c.extentOf(i, -1))
		}
	}
}

// refRuns encodes messages as runs of consecutive references.
type refRuns struct {
	all   bool   // include unacknowledged messages
	gaps  bool   // what lies between two messages of a level has left: a run may have it, too
	b     []byte // the runs before the last one
	first Ref
	count uint32 // of the last run
}

// add adds count messages from first on, which come after those there are.
func (r *refRuns) add(first Ref, count uint32) {
	if to := first - r.first + Ref(count); r.count > 0 && to <= math.MaxUint32 && (r.gaps || r.first+Ref(r.count) == first) {
		r.count = uint32(to)
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
	r.count = 0
}

// journalPurged journals that the ready messages leave, or all. If all leave, it takes next to no space: runs may include messages that
// have left before, except the ones that a crash should find here because they have not arrived elsewhere.
func (q *Queue) journalPurged(all bool) {
	if q.cfg.Storage == nil {
		return
	}
	r := refRuns{all: all, gaps: all && !q.mailbox.Sends()}
	others := q.unacked + q.held() + q.waiting()
	for l := range q.levels {
		f := &q.levels[l]
		for c := range f.chunks {
			others -= r.addChunk(&f.chunks[c], ref(l, f.chunks[c].number<<chunkBits), all || others == 0)
		}
		r.end()
	}
	q.commitPurged(r.b, maxPurgedRuns)
}

// maxPurgedRuns is how many runs an operation has: a journal may take only so many bytes at once. So a crash may divide only a purge
// that has more of them, which are millions of messages between others.
const maxPurgedRuns = 1 << 20

// commitPurged commits that runs of messages leave, with the other operations of the turn. It takes one commit for each most runs.
func (q *Queue) commitPurged(runs []byte, most int) {
	n := &q.buf.ops
	if n.arriving != nil || n.extent != 0 {
		q.commit(nil) // it brings something
	}
	for part := range slices.Chunk(runs, most*runSize) {
		n.buf = appendRuns(n.buf, q.cfg.Storage.ID, part)
		n.compose(q)
		q.cfg.Storage.Journal.Commit(n.buf, n.deltas, nil)
		n.reset()
	}
}

func appendRuns(ops []byte, queue uint64, runs []byte) []byte {
	ops = binary.LittleEndian.AppendUint32(appendOp(ops, opPurged, queue), uint32(len(runs)/runSize))
	return append(ops, runs...)
}

// addChunk adds the messages of a chunk, which begins at first, and returns how many are
// left out. With alone there are none, so that a full chunk is added without a look.
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
