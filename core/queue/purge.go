package queue

import (
	"encoding/binary"
	"maps"
	"math"
	"slices"

	"github.com/curfewmq/curfew/sdk/hook"
)

// A queue that is purged, deleted or stopped drops its messages at once, however many
// there are: they become garbage. Later turns free the garbage, and only then the
// messages stop being live in the journal. So the commits of these turns lie behind the
// commit that removes the messages.

// garbage is memory of dropped messages that is to be freed.
type garbage struct {
	levels []fifo
	store  store
	next   *garbage
}

// Purge drops every ready message, and the discards that wait to be sent again. It
// returns how many messages were ready.
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

// dropReady drops the ready messages one by one. If most messages stay, this costs less
// than to carry those.
func (q *Queue) dropReady() {
	for q.ready > 0 {
		h := q.at(q.nextRef())
		q.takeForHooks(h)
		q.drop(h)
	}
}

// detachContents makes garbage of all messages but the unacknowledged, held and leaving
// ones. kept is their number; with 0 all messages become garbage.
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

// dropContents makes garbage of all messages. One operation removes them from the journal
// before any of them stops being live. So until the queue's definition is deleted, too, a
// restart finds all messages or none, except for those on their way to another queue. Of
// a stopped queue it finds all.
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

// carry copies a taken or held message to another list, with the same sequence number.
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

// The most chunks and segments that a turn frees.
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
				f.chunks = f.chunks[1:] // before the chunk is accounted for: pins counts the chunks that are left
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

// accountRemoved accounts for messages that are not live any more. Those of a stopped
// queue stay live, because a restart restores them.
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

// refRuns encodes messages as runs of consecutive references. Example: 5, 6 and 9 are the
// runs 5–6 and 9; with gaps they may be one run, 5–9.
type refRuns struct {
	all   bool   // include unacknowledged messages
	gaps  bool   // messages that are not in the queue any more may be in a run
	b     []byte // the runs before the last one
	first Ref
	count uint32 // of the last run
}

// add adds count messages from first on. They must lie behind those that were added
// before.
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

// journalPurged journals the removal of the ready messages, or of all. The removal of all
// takes next to no space, because runs may have gaps, except if messages have left that
// have not arrived elsewhere: a crash must find those here.
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

// maxPurgedRuns is the largest number of runs in one operation, because a journal takes
// only so many bytes at once. A larger purge, of millions of messages between others, is
// divided, and a crash may show a part of it.
const maxPurgedRuns = 1 << 20

// commitPurged commits the removal of runs of messages, with the other operations of the
// turn. A commit has at most the given number of runs.
func (q *Queue) commitPurged(runs []byte, most int) {
	n := &q.buf.ops
	if n.arriving != nil || n.extent != 0 {
		q.commit(nil) // the turn has brought messages: they are committed first
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

// addChunk adds the messages of a chunk, which begins at first, and returns how many it
// leaves out. alone says that it leaves out none, so a full chunk is one run and its
// slots are not looked at.
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
