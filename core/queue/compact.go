package queue

import (
	"github.com/curfewmq/curfew/sdk/hook"
)

// compaction is how far compact has come.
type compaction struct {
	level int
	chunk uint64 // its number
}

// The most slots that compact looks at, and bytes that it moves, in one turn. It may move
// one message more.
const (
	compactedSlots = 16 * chunkSlots
	compactedBytes = segmentSize
)

// compactAgainMillis is the longest pause between two parts of a compaction.
const compactAgainMillis = 1

// compact moves records out of sparse segments to the last one, so that the sparse ones
// are dropped. It does a part of that, and reports whether there is more.
//
// Example: 40 segments of 256 KiB have one record of 1 KiB each. They take 10 MiB, which
// is more than 4 × 40 KiB + 4 MiB, so the store is sparse. compact copies the 40 records
// to the last segment, and each old segment is dropped when its record has been copied.
// 256 KiB remain.
func (c *contents) compact() (more bool) {
	slots, bytes, at := 0, 0, &c.compacting
	last := c.store.last()
	for ; at.level < len(c.levels); at.level, at.chunk = at.level+1, 0 {
		f := &c.levels[at.level]
		for n := f.index(at.chunk); n < len(f.chunks); n++ {
			k := &f.chunks[n]
			at.chunk = k.number
			if slots += len(k.slots); slots > compactedSlots {
				return true
			}
			for i := range k.slots {
				s := &k.slots[i]
				if s.is(stateFree) || last-s.segment-1 >= 1<<31 || !c.store.mostlyGone(s.segment) {
					continue
				}
				if bytes > compactedBytes {
					return true
				}
				bytes += int(s.length)
				*s = c.store.move(*s)
			}
		}
	}
	*at = compaction{}
	return false
}

// endTurn releases memory: that of spilled segments, of sparse ones by compaction, and
// later all of it if the queue is empty. q.trim is when that goes on.
func (q *Queue) endTurn(now hook.Instant) {
	if q.contents == nil {
		return
	}
	q.store.releaseSpilled()
	if q.store.sparse() && q.compact() {
		q.trim = now.AddMillis(compactAgainMillis)
		return
	}
	if q.messages() > 0 || len(q.store.segments) == 0 {
		q.trim = 0
		return
	}
	q.release(now)
}

// trimAfterMillis is how long an empty queue retains the memory of its last messages
// for the next ones.
const trimAfterMillis = 5000

// release releases the memory of an empty queue, trimAfterMillis after the first call.
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
	q.undecided = nil
}
