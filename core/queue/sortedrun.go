package queue

import "github.com/curfewmq/curfew/sdk/hook"

// sortedRun is those messages of a fifo whose deadlines are in the order of their
// sequence numbers, so they need no heap. Their slots have the flag inRun. For an example
// see deadlineindex.go.
type sortedRun struct {
	next uint64       // no slot below belongs to the run
	last hook.Instant // the latest deadline in it
}

// earliest returns the earliest deadline of the run, and its message; ok is false when
// the run is empty.
func (r *sortedRun) earliest(f *fifo) (seq uint64, at hook.Instant, ok bool) {
	for r.next < f.next {
		c := f.chunk(r.next)
		if c == nil || c.deadlines == nil {
			r.next = f.nextChunk(r.next, f.next)
			continue
		}
		for i := c.index(int(r.next & positionMask)); i < len(c.slots); i++ {
			if s := &c.slots[i]; s.is(stateReady) && s.flags&inRun != 0 {
				r.next = c.seq(i)
				return r.next, c.deadlines[i], true
			}
		}
		r.next = min((c.number+1)<<chunkBits, f.next)
	}
	r.last = 0
	return 0, 0, false
}
