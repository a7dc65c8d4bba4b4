package queue

import (
	"github.com/curfewmq/curfew/core/deadline"
	"github.com/curfewmq/curfew/sdk/hook"
)

// For a strategy that acts on deadlines anywhere in the queue (hook.ScanAnywhere), an
// index finds the earliest one. A deadline that is not before the last one of the fifo's
// sorted run extends the run, which costs nothing. The others go to a heap, and so do all
// deadlines of a queue with priorities. An item of the heap is stale if its message is
// not ready or held any more, or has another deadline. Stale items are dropped when they
// are at the top, and all at once when they are half of the heap.
//
// Example: messages 1 to 4 enter with the deadlines 10:05, 10:02, 10:07 and 10:09.
//
//	all are ready           run 1, 3, 4; heap 2@10:02   earliest: 2
//	1 and 2 are delivered   the item of 2 is stale      earliest: drops the item, returns 3
//	2 is requeued           a new item, 2@10:02         earliest: 2

// indexDeadline adds the deadline of a ready or held message to the index, if it is not
// there. inOrder says that no later message of the fifo has been indexed, so the deadline
// may extend the run.
func (c *contents) indexDeadline(h handle, at hook.Instant, inOrder bool) {
	s := h.slot()
	if s.is(stateHeld) && at >= h.hold() && c.deadlineMovesWithHold(s) { // it is indexed when the message is released
		return
	}
	if at == 0 || s.flags&inHeap != 0 || c.rules.scan != hook.ScanAnywhere {
		return
	}
	run := &h.list.run
	if inOrder && len(c.levels) == 1 && s.is(stateReady) && at >= run.last {
		run.last = at
		s.flags |= inRun
		return
	}
	if s.flags&inRun != 0 && h.ref.seq() >= run.next && s.is(stateReady) { // the run skips held messages
		return
	}
	s.flags = s.flags&^inRun | inHeap
	c.heap.Push(deadline.Item{At: int64(at), Slot: uint64(h.ref)})
}

// setDeadline gives a ready or held message another deadline.
func (c *contents) setDeadline(h handle, at hook.Instant) {
	if at != h.deadline() {
		s := h.slot()
		if s.flags&inHeap != 0 {
			c.stale++ // its old item
		}
		s.flags &^= inHeap | inRun
		h.chunk.setDeadline(h.index, at)
	}
	c.indexDeadline(h, at, false)
}

// nextDeadline returns when the next message is due, 0 for never.
func (c *contents) nextDeadline() hook.Instant {
	if c == nil || c.ready+c.held() == 0 {
		return 0
	}
	_, at, _ := c.earliest()
	return at
}

// earliest returns the message that is due first, of those on whose deadlines the
// strategy acts now. Without a plugin that has a head hook there is none.
func (c *contents) earliest() (r Ref, at hook.Instant, ok bool) {
	if !c.rules.wantsHead {
		return 0, 0, false
	}
	switch c.rules.scan {
	case hook.ScanAnywhere:
		return c.earliestAnywhere()
	case hook.ScanHeads:
		return c.earliestHead(false)
	case hook.ScanTop:
		return c.earliestHead(true)
	}
	return 0, 0, false
}

// earliestHead looks at the next message of each level that has ready ones or, with
// topOnly, of the highest such level.
func (c *contents) earliestHead(topOnly bool) (r Ref, at hook.Instant, ok bool) {
	for l := len(c.levels) - 1; l >= 0; l-- {
		f := &c.levels[l]
		if f.ready == 0 {
			continue
		}
		h := c.at(ref(l, f.peek()))
		if t := h.deadline(); t != 0 && (!ok || t < at) {
			r, at, ok = h.ref, t, true
		}
		if topOnly {
			break
		}
	}
	return r, at, ok
}

func (c *contents) earliestAnywhere() (r Ref, at hook.Instant, ok bool) {
	if len(c.levels) == 1 && (c.restamping == nil || !c.restamping.rescan) {
		var seq uint64
		seq, at, ok = c.levels[0].run.earliest(&c.levels[0])
		r = ref(0, seq)
	}
	c.sweepHeap()
	for c.heap.Len() > 0 {
		top := c.heap.Top()
		if !c.isCurrent(top) {
			c.heap.Pop()
			c.stale--
			c.forgetItem(top)
			continue
		}
		if !ok || hook.Instant(top.At) < at {
			return Ref(top.Slot), hook.Instant(top.At), true
		}
		break
	}
	return r, at, ok
}

// isCurrent reports whether a heap item is the present deadline of a ready or held
// message.
func (c *contents) isCurrent(it deadline.Item) bool {
	h, ok := c.locate(Ref(it.Slot))
	return ok && (h.slot().is(stateReady) || h.slot().is(stateHeld)) && h.slot().flags&inHeap != 0 && h.deadline() == hook.Instant(it.At)
}

// forgetItem clears the flag of a taken message whose item has left the heap.
func (c *contents) forgetItem(it deadline.Item) {
	h, ok := c.locate(Ref(it.Slot))
	if ok && h.slot().is(stateUnacked) && h.deadline() == hook.Instant(it.At) {
		h.slot().flags &^= inHeap
	}
}

// sweepHeap removes all stale items when they are at least half of the heap.
func (c *contents) sweepHeap() {
	const few = 64
	if c.stale < few || c.stale < c.heap.Len()/2 {
		return
	}
	c.heap.Keep(func(it deadline.Item) bool {
		if c.isCurrent(it) {
			return true
		}
		c.forgetItem(it)
		return false
	})
	c.stale = 0
}

func (c *contents) clearHeap() {
	c.heap.Keep(func(deadline.Item) bool { return false })
	c.stale = 0
}
