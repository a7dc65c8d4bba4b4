package queue

import (
	"math"

	"github.com/curfewmq/curfew/core/deadline"
	"github.com/curfewmq/curfew/sdk/hook"
)

// DueSurvey counts when the ready messages of a queue are due, and when its holds end, in
// the steps of the grid as seen from one instant. It counts in parts, so that the queue's
// turns go on. Messages that come or go meanwhile may be counted or not. One survey
// serves one queue after another, and allocates nothing.
type DueSurvey struct {
	Due, Held DueCounts // of deadlines, and of ends of holds
	Never     int       // ready messages without a deadline

	now    hook.Instant
	walk   chunkWalk
	merged bool // the holds in blocks of the list are counted
	recent int  // how many recent items of the list are counted

	few   [fewDue]hook.Instant // deadlines, while there are at most fewDue
	known int                  // how many; more than fewDue means that only Due.Steps has them
}

// fewDue is how many deadlines are stored as they are: most queues have no more.
const fewDue = 16

// Reset begins a survey of a queue, as seen from now.
func (s *DueSurvey) Reset(now hook.Instant) {
	if s.known > 0 {
		s.Due.Steps = [DueSteps + 1]uint32{}
	}
	if s.merged {
		s.Held.Steps = [DueSteps + 1]uint32{}
	}
	s.Due.Overdue, s.Due.Earliest, s.Held.Overdue, s.Held.Earliest, s.Never = 0, 0, 0, 0, 0
	s.now, s.walk, s.merged, s.recent, s.known = now, chunkWalk{}, false, 0, 0
}

// Now returns the instant from which s looks.
func (s *DueSurvey) Now() hook.Instant { return s.now }

// surveyPart is how many slots are looked at in one part: at most 0.1 ms, whatever the
// deadlines are.
const surveyPart = 8 * chunkSlots

// Next counts the next part and reports whether it was the last one.
func (s *DueSurvey) Next(q *Queue) (done bool) { return s.next(q, surveyPart) }

func (s *DueSurvey) next(q *Queue, part int) (done bool) {
	if q.contents == nil {
		return true
	}
	if q.held() > 0 && !s.countHeld(&q.holding.list, part) {
		return false
	}
	allReady := q.unacked+q.held()+q.waiting() == 0
	return s.walk.next(q, part, func(c *chunk) (cost int) { return s.countChunk(c, allReady) })
}

// countHeld counts when holds end, and reports whether all are counted.
func (s *DueSurvey) countHeld(l *deadline.List, part int) bool {
	if !s.merged {
		s.merged = true
		l.Runs(s.bound, s.countRun)
	}
	more := l.Recent(s.recent)
	more = more[:min(len(more), part)]
	for i := range more {
		s.Held.Add(s.now, hook.Instant(more[i].At), 1)
	}
	s.recent += len(more)
	return len(more) < part
}

// bound returns the last instant in the same step as another one.
func (s *DueSurvey) bound(at int64) int64 {
	distance := hook.Instant(at) - s.now
	if distance <= 0 {
		return int64(s.now)
	}
	if step := dueStep(distance); step < DueSteps {
		return int64(s.now + dueGrid[step])
	}
	return math.MaxInt64
}

func (s *DueSurvey) countRun(at int64, n int) { s.Held.Add(s.now, hook.Instant(at), uint32(n)) }

// stepRange is the distances of one step of the grid. Most instants are in the step of
// the one before, which spares a search.
type stepRange struct {
	above, most hook.Instant
	index       int
}

func (r *stepRange) has(distance hook.Instant) bool { return distance > r.above && distance <= r.most }

// reach makes r the step of a positive distance.
func (r *stepRange) reach(distance hook.Instant) {
	if distance <= 0 {
		return
	}
	r.index, r.above, r.most = dueStep(distance), 0, math.MaxInt64
	if r.index > 0 {
		r.above = dueGrid[r.index-1]
	}
	if r.index < DueSteps {
		r.most = dueGrid[r.index]
	}
}

// countChunk counts the ready messages of a chunk. allReady says that all of its messages
// are ready. It returns the cost, in slots.
func (s *DueSurvey) countChunk(c *chunk, allReady bool) (cost int) {
	const small = 16
	if c.live == 0 {
		return small
	}
	if c.deadlines == nil {
		return small + s.countNever(c, allReady)
	}
	full := allReady && int(c.live) == len(c.slots)
	if s.known <= fewDue && s.known+int(c.live) <= fewDue {
		s.countFew(c)
		return small + len(c.slots)
	}
	s.spread()
	now, never, overdue, earliest := s.now, 0, 0, hook.Instant(math.MaxInt64)
	var step stepRange
	steps := &s.Due.Steps
	for i, at := range c.deadlines[:len(c.slots)] {
		switch distance := at - now; {
		case !full && !c.slots[i].is(stateReady):
		case step.has(distance):
			earliest = min(earliest, at)
			steps[step.index]++
		case at == 0:
			never++
		case distance <= 0:
			earliest = min(earliest, at)
			overdue++
		default:
			earliest = min(earliest, at)
			step.reach(distance)
			steps[step.index]++
		}
	}
	s.Never += never
	s.Due.Overdue += overdue
	if earliest != math.MaxInt64 && (s.Due.Earliest == 0 || earliest < s.Due.Earliest) {
		s.Due.Earliest = earliest
	}
	return small + len(c.slots)
}

// countNever counts the ready messages of a chunk without deadlines.
func (s *DueSurvey) countNever(c *chunk, allReady bool) (cost int) {
	if allReady {
		s.Never += int(c.live)
		return 0
	}
	for i := range c.slots {
		if c.slots[i].is(stateReady) {
			s.Never++
		}
	}
	return len(c.slots)
}

// countFew counts the ready messages of a chunk, and stores their deadlines.
func (s *DueSurvey) countFew(c *chunk) {
	for i := range c.slots {
		if !c.slots[i].is(stateReady) {
			continue
		}
		at := c.deadlines[i]
		if at == 0 {
			s.Never++
			continue
		}
		s.Due.Add(s.now, at, 1)
		s.few[s.known] = at
		s.known++
	}
}

// spread records that there are too many deadlines to store them.
func (s *DueSurvey) spread() { s.known = fewDue + 1 }

// Marks appends the counts to due and held, as marks in the order of time. Seen from an
// instant that is not much later, they serve as a survey of a queue that has not changed:
// few deadlines are marked as they are, others at the bounds of their steps.
func (s *DueSurvey) Marks(due, held []DueMark) (ofDue, ofHeld []DueMark) {
	if s.known > fewDue {
		due = s.Due.appendMarks(due, s.now)
	} else {
		for _, at := range s.few[:s.known] {
			due = append(due, DueMark{at, 1})
		}
	}
	if s.merged {
		held = s.Held.appendMarks(held, s.now)
	}
	return due, held
}

// Exact reports whether the marks are the instants themselves.
func (s *DueSurvey) Exact() bool { return s.known <= fewDue && !s.merged }

// chunkWalk is a position among the chunks of a queue: they are counted in parts.
type chunkWalk struct {
	level int
	chunk uint64 // the number of the next chunk, in the level
	last  uint64 // number of the last chunk to count: later chunks are new, and must not make the walk endless
}

// next calls count with the next chunks until the costs that count returns, in slots, add
// up to a part. It reports whether there are no more chunks.
func (w *chunkWalk) next(q *Queue, part int, count func(*chunk) (cost int)) (done bool) {
	seen := 0
	for ; w.level < len(q.levels); w.level, w.chunk = w.level+1, 0 {
		f := &q.levels[w.level]
		if w.chunk == 0 {
			w.last = f.next >> chunkBits
		}
		for i := f.index(w.chunk); i < len(f.chunks) && f.chunks[i].number <= w.last; i++ {
			if seen >= part {
				w.chunk = f.chunks[i].number
				return false
			}
			seen += count(&f.chunks[i])
		}
	}
	return true
}
