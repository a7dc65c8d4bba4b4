package queue

import (
	"github.com/curfewmq/curfew/sdk/hook"
)

// compaction is how far compact has come.
type compaction struct {
	level int
	chunk uint64 // its number
}

// What a turn looks at and moves at most, but for one message.
const (
	compactedSlots = 16 * chunkSlots
	compactedBytes = segmentSize
)

// compactAgainMillis is how long after a part of it the next is due at the latest.
const compactAgainMillis = 1

// compact moves what is left in segments that are mostly gone to new ones, a part
// of it, and reports whether there is more.
func (q *Queue) compact() (more bool) {
	slots, bytes, at := 0, 0, &q.compacting
	last := q.store.last()
	for ; at.level < len(q.levels); at.level, at.chunk = at.level+1, 0 {
		f := &q.levels[at.level]
		for c := f.index(at.chunk); c < len(f.chunks); c++ {
			k := &f.chunks[c]
			at.chunk = k.number
			if slots += len(k.slots); slots > compactedSlots {
				return true
			}
			for i := range k.slots {
				s := &k.slots[i]
				if s.is(stateFree) || last-s.segment-1 >= 1<<31 || !q.store.mostlyGone(s.segment) {
					continue
				}
				if bytes > compactedBytes {
					return true
				}
				bytes += int(s.length)
				*s = q.store.move(*s)
			}
		}
	}
	*at = compaction{}
	return false
}

// endTurn ends a turn: it gives memory back, or arms that when the queue has become
// empty.
func (q *Queue) endTurn(now hook.Instant) {
	if q.contents == nil {
		return
	}
	q.store.releaseSpilled()
	if q.store.sparse() && q.compact() {
		q.trim = now.AddMillis(compactAgainMillis)
		return
	}
	if q.ready+q.unacked+q.waiting() > 0 || len(q.store.segments) == 0 {
		q.trim = 0
		return
	}
	q.release(now)
}

// trimAfterMillis is how long an empty queue keeps the memory of its last
// messages ready for the next.
const trimAfterMillis = 5000

// release gives back the memory of a queue that has been empty for a while.
func (q *Queue) release(now hook.Instant) {
	if q.trim == 0 {
		q.trim = now.AddMillis(trimAfterMillis)
		return
	}
	if now < q.trim {
		return
	}
	q.trim = 0
	q.store.release()
	for l := range q.levels {
		q.levels[l].releaseIdle()
	}
	q.clearHeap()
}
