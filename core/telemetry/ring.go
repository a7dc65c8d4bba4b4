package telemetry

import (
	"sort"
	"sync"

	"github.com/curfewmq/curfew/sdk/hook"
)

// Ring stores the latest events and overwrites the oldest. Writers never wait for a reader: a slow reader can tell from gaps in
// the events' numbers how many it missed. Any goroutine may use it; nil stores nothing.
//
// Events of messages, of queues and of the broker have separate lanes, so that a million expired messages do not overwrite a
// raised alarm. All lanes share one numbering.
type Ring struct {
	first uint64 // number of the event before the first one

	mu    sync.Mutex // guards the fields below
	last  uint64     // number of the latest event
	lanes [lanes]lane
	wake  chan struct{} // closed at the next event; nil: no reader waits
}

const (
	ofMessages = iota
	ofQueues
	ofBroker
	lanes
)

// newRing returns an empty ring for size events of messages, and fewer of queues and of the broker; nil if size is 0. Events are
// numbered from begin on. If begin is the time in microseconds, numbers differ from those before a restart.
func newRing(size int, begin uint64) *Ring {
	if size <= 0 {
		return nil
	}
	r := &Ring{first: begin, last: begin}
	const minSize = 64
	r.lanes[ofMessages].size = size
	r.lanes[ofQueues].size = max(size/4, minSize)
	r.lanes[ofBroker].size = max(size/8, minSize)
	return r
}

// lane is a ring of events.
type lane struct {
	chunks [][]Event // allocated on demand
	size   int       // most events
	head   int       // index of the oldest event; 0 until the lane is full
	length int
}

const chunkSize = 64 // events

func (l *lane) at(i int) *Event { return &l.chunks[i/chunkSize][i%chunkSize] }

// nth returns the nth event, counted from the oldest.
func (l *lane) nth(n int) *Event { return l.at((l.head + n) % l.size) }

// add returns an event to overwrite: the oldest one if the lane is full.
func (l *lane) add() *Event {
	if l.length == l.size {
		e := l.at(l.head)
		if l.head++; l.head == l.size {
			l.head = 0
		}
		return e
	}
	if l.length%chunkSize == 0 {
		l.chunks = append(l.chunks, make([]Event, chunkSize))
	}
	l.length++
	return l.at(l.length - 1)
}

// after returns the position of the first event with a number above seq.
func (l *lane) after(seq uint64) int {
	return sort.Search(l.length, func(i int) bool { return l.nth(i).Seq > seq })
}

// add returns the next event of a lane to fill in, with its number set. The caller holds mu.
func (r *Ring) add(lane int) *Event {
	r.last++
	e := r.lanes[lane].add()
	e.Seq = r.last
	return e
}

// wakeReaders wakes the waiting readers. The caller holds mu.
func (r *Ring) wakeReaders() {
	if r.wake != nil {
		close(r.wake)
		r.wake = nil
	}
}

func (r *Ring) removed(q *QueueRef, now hook.Instant, rs []Removal) {
	if r == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if more := len(rs) - r.lanes[ofMessages].size; more > 0 { // the excess would be overwritten at once
		r.last += uint64(more)
		rs = rs[more:]
	}
	for i := range rs {
		r.add(ofMessages).message(q, now, &rs[i])
	}
	r.wakeReaders()
}

func (r *Ring) queueExpired(p *QueueRef, now hook.Instant, end *QueueEnd) {
	if r == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	e := r.add(ofQueues)
	e.At, e.Kind, e.QueueRef, e.Reason = now, QueueExpired, *p, hook.ReasonQueueExpired
	e.Since, e.Deadline, e.Messages, e.DeadLettered = end.LastUse, end.Lease, end.Messages, end.DeadLettered
	r.wakeReaders()
}

func (r *Ring) notice(now hook.Instant, n *Notice) {
	if r == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	e := r.add(ofBroker)
	e.At, e.Kind, e.QueueRef, e.Notice = now, n.Kind, QueueRef{VHost: n.VHost}, n
	if n.Redrive != nil {
		e.Queue = n.Redrive.Queue
	}
	r.wakeReaders()
}

// First returns the number before the first event. Reading after it returns all stored events.
func (r *Ring) First() uint64 { return r.first }

// Last returns the number of the latest event.
func (r *Ring) Last() uint64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.last
}

// Remembered returns how many events of messages are stored, the capacity for them, and when the oldest of them happened; 0 if there
// is none.
func (r *Ring) Remembered() (messages, most int, since hook.Instant) {
	r.mu.Lock()
	defer r.mu.Unlock()
	l := &r.lanes[ofMessages]
	if l.length > 0 {
		since = l.nth(0).At
	}
	return l.length, l.size, since
}

// Knows reports whether an event had this number, so that a reader can continue after it. Other numbers are invented, or from
// before a restart.
func (r *Ring) Knows(seq uint64) bool { return seq >= r.first && seq <= r.Last() }

// Read copies the events after number after into the slice, in order, until it is full, and returns how many it copied. Missing
// numbers belong to overwritten events.
func (r *Ring) Read(after uint64, into []Event) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	var next [lanes]int
	for i := range r.lanes {
		next[i] = r.lanes[i].after(after)
	}
	n := 0
	for n < len(into) {
		e := r.earliest(&next)
		if e == nil {
			break
		}
		into[n] = *e
		n++
	}
	return n
}

// earliest returns the event with the lowest number among the next events of all lanes, and advances its lane; nil = there is none. The
// caller holds mu.
func (r *Ring) earliest(next *[lanes]int) *Event {
	var first *Event
	from := 0
	for i := range r.lanes {
		l := &r.lanes[i]
		if next[i] == l.length {
			continue
		}
		if e := l.nth(next[i]); first == nil || e.Seq < first.Seq {
			first, from = e, i
		}
	}
	if first != nil {
		next[from]++
	}
	return first
}

// Wait returns a channel that is closed as soon as there is an event after this number. The wakeup costs the writer time, so a
// reader should not wait again at once.
func (r *Ring) Wait(after uint64) <-chan struct{} {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.last > after {
		there := make(chan struct{})
		close(there)
		return there
	}
	if r.wake == nil {
		r.wake = make(chan struct{})
	}
	return r.wake
}
