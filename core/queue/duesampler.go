package queue

import (
	"math"
	"sync"
	"time"

	"github.com/curfewmq/curfew/core/clock"
	"github.com/curfewmq/curfew/sdk/hook"
)

// DueSnapshot is how the deadlines of a queue's ready messages lay ahead of a moment. Where messages came and went while they
// were counted, it may be off by as many.
type DueSnapshot struct {
	DueHistogram
	At hook.Instant // the moment; 0 = they were not counted yet
}

// DueSampler takes censuses of queues. One of not so many messages is taken at once. A large queue is counted bit by bit, with
// other work in between, by one goroutine for all queues, which there is only while it has something to do; whoever asks
// meanwhile gets what was found before. Any goroutine may use it.
type DueSampler struct {
	clock clock.Clock
	quit  chan struct{} // closed by Close

	mu      sync.Mutex     // guards what follows
	line    []*Mailbox     // queues that are to be counted
	running bool           // somebody works the line off
	closed  bool           // nobody will any more
	worker  sync.WaitGroup // at most one
}

// NewDueSampler returns a DueSampler that goes by a clock. It is to be closed.
func NewDueSampler(clock clock.Clock) *DueSampler {
	return &DueSampler{clock: clock, quit: make(chan struct{})}
}

const (
	// censusPiece is how many messages are looked at in one go: some 0.1 ms.
	censusPiece = 16 * chunkSlots
	// censusPause is what lies between two of them at least: all queues together are counted with a tenth of a processor.
	censusPause = time.Millisecond
	// censusAge is how old a census is before there is another, but of a queue of a chunk or two.
	censusAge = 5 * time.Second
)

// Of returns the latest census of a queue, and begins another if that is some seconds old. It never waits for one: of a
// large queue that was not counted yet, At is 0. It is called on the queue's turn or from [Mailbox.Look].
func (v *DueSampler) Of(q *Queue) DueSnapshot {
	c := count{DueSnapshot: DueSnapshot{At: v.clock()}}
	if q.contents == nil {
		return c.DueSnapshot
	}
	if c.goOn(q, chunkSlots) {
		q.census = nil
		return c.DueSnapshot
	}
	if q.census == nil {
		q.census = &census{}
	}
	known := q.census
	switch {
	case known.next != nil || known.last.At != 0 && c.At.Sub(known.last.At) < censusAge:
	case q.ready <= censusPiece && c.goOn(q, censusPiece):
		known.last = c.DueSnapshot
	default:
		begun := c // c must not be on the heap
		known.next = &begun
		v.enter(q.mailbox)
	}
	return known.last
}

// enter has a queue counted.
func (v *DueSampler) enter(s *Mailbox) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.closed {
		return
	}
	v.line = append(v.line, s)
	if !v.running {
		v.running = true
		v.worker.Go(v.run)
	}
}

// leave takes the next queue out of the line; nil ends the worker.
func (v *DueSampler) leave() *Mailbox {
	v.mu.Lock()
	defer v.mu.Unlock()
	if len(v.line) == 0 || v.closed {
		v.line, v.running = nil, false
		return nil
	}
	s := v.line[0]
	v.line[0], v.line = nil, v.line[1:]
	return s
}

func (v *DueSampler) run() {
	for s := v.leave(); s != nil; s = v.leave() {
		v.count(s)
	}
}

// count counts a queue to its end, or until that is gone or empty.
func (v *DueSampler) count(s *Mailbox) {
	for more := true; more && v.pause(); {
		gone := s.Look(func(q *Queue) { more = q.goOnCounting(censusPiece) })
		if gone != nil {
			return
		}
	}
}

// pause lets others have the processor. It reports false when the DueSampler is closed.
func (v *DueSampler) pause() bool {
	timer := time.NewTimer(censusPause)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-v.quit:
		return false
	}
}

// Close ends the counting. What was found before stays.
func (v *DueSampler) Close() {
	v.mu.Lock()
	if !v.closed {
		v.closed = true
		close(v.quit)
	}
	v.mu.Unlock()
	v.worker.Wait()
}

// census is what a queue keeps that is not small: the last census, and the one that is being taken.
type census struct {
	last DueSnapshot
	next *count // nil: none is
}

// count is how far a census has come.
type count struct {
	DueSnapshot
	level int
	chunk uint64 // its number, in the level
	limit uint64 // of chunk: what is behind came later, and must not make this endless
}

// goOnCounting takes the census further and reports whether there is more to do.
func (q *Queue) goOnCounting(piece int) (more bool) {
	if q.contents == nil || q.census == nil || q.census.next == nil { // the queue was purged
		return false
	}
	c := q.census
	if !c.next.goOn(q, piece) {
		return true
	}
	c.last, c.next = c.next.DueSnapshot, nil
	return false
}

// goOn looks at the next piece slots, but for one chunk, and reports whether those were the last.
func (c *count) goOn(q *Queue, piece int) (done bool) {
	alone, seen := q.unacked+q.waiting() == 0, 0
	for ; c.level < len(q.levels); c.level, c.chunk = c.level+1, 0 {
		f := &q.levels[c.level]
		if c.chunk == 0 {
			c.limit = f.next >> chunkBits
		}
		for i := f.index(c.chunk); i < len(f.chunks) && f.chunks[i].number <= c.limit; i++ {
			if seen >= piece {
				c.chunk = f.chunks[i].number
				return false
			}
			seen += c.add(&f.chunks[i], alone)
		}
	}
	return true
}

// add counts the ready messages of a chunk, which are all that it holds if alone is set. It returns what that cost, in slots.
func (c *count) add(k *chunk, alone bool) (cost int) {
	const little = 16
	switch {
	case k.live == 0:
		return little
	case k.deadlines == nil && alone:
		c.Never += int(k.live)
		return little
	case k.deadlines == nil:
		c.addWithout(k)
	default:
		c.addWith(k, alone)
	}
	return little + len(k.slots)
}

// addWithout is add for a chunk without deadlines.
func (c *count) addWithout(k *chunk) {
	for i := range k.slots {
		if k.slots[i].is(stateReady) {
			c.Never++
		}
	}
}

// addWith is add for a chunk with deadlines. It does what [DueHistogram.Add] does, for many.
func (c *count) addWith(k *chunk, alone bool) {
	var limits [len(DueBounds)]hook.Instant
	for i := range limits {
		limits[i] = c.At.Add(DueBounds[i])
	}
	var due [len(DueBounds) + 1]int
	overdue, never, earliest := 0, 0, hook.Instant(math.MaxInt64)
	full := alone && int(k.live) == len(k.slots)
	for i, at := range k.deadlines[:len(k.slots)] {
		if !full && !k.slots[i].is(stateReady) {
			continue
		}
		if at == 0 {
			never++
			continue
		}
		due[beyond(at, &limits)]++
		if at <= c.At {
			overdue++
		}
		earliest = min(earliest, at)
	}
	if earliest == math.MaxInt64 {
		earliest = 0
	}
	c.Merge(&DueHistogram{Due: due, Overdue: overdue, Never: never, Earliest: earliest})
}

// beyond counts the limits an instant is beyond. Comparing with all, and without a loop, is three times as fast as stopping.
func beyond(at hook.Instant, limits *[len(DueBounds)]hook.Instant) (n int) {
	if at > limits[0] {
		n++
	}
	if at > limits[1] {
		n++
	}
	if at > limits[2] {
		n++
	}
	if at > limits[3] {
		n++
	}
	if at > limits[4] {
		n++
	}
	return n
}
