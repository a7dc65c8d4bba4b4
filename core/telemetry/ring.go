package telemetry

import (
	"sort"
	"sync"

	"github.com/curfewmq/curfew/sdk/hook"
)

// Ring remembers the latest events, and forgets the oldest for them. It never makes anybody wait for a reader: one that does
// not keep up sees from the numbers of the events how many it missed. Any goroutine may use it; nil remembers nothing.
//
// Messages, queues and the rest lie in lanes of their own: a million messages that expire do not take with them that an
// alarm was raised. The numbers go through all of them.
type Ring struct {
	first uint64 // number of the event before the first one

	mu    sync.Mutex // guards what follows
	last  uint64     // number of the latest event
	lanes [lanes]lane
	wake  chan struct{} // closed at the next event; nil: nobody waits for it
}

// The lanes.
const (
	ofMessages = iota
	ofQueues
	ofBroker
	lanes
)

// NewRing returns an empty ring that remembers events of so many messages, and fewer of queues and of the broker besides; nil
// if that is none. The events are numbered from begin on: if that is what a clock said in microseconds, they have other
// numbers than those of an earlier life of the broker.
func NewRing(size int, begin uint64) *Ring {
	if size <= 0 {
		return nil
	}
	r := &Ring{first: begin, last: begin}
	const few = 64 // at least
	r.lanes[ofMessages].size = size
	r.lanes[ofQueues].size = max(size/4, few)
	r.lanes[ofBroker].size = max(size/8, few)
	return r
}

// lane is a ring of one sort of events.
type lane struct {
	chunks [][]Event // made as they are needed
	size   int       // most events
	head   int       // place of the oldest event; 0 until the lane is full
	length int
}

const chunkSize = 64 // events

func (l *lane) at(place int) *Event { return &l.chunks[place/chunkSize][place%chunkSize] }

// nth returns the nth of the events, the oldest being 0.
func (l *lane) nth(n int) *Event {
	place := l.head + n
	if place >= l.size {
		place -= l.size
	}
	return l.at(place)
}

// add returns the place for one more event, which is another's that is forgotten once the lane is full.
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

// after returns which of the events is the first after the one with this number.
func (l *lane) after(seq uint64) int {
	return sort.Search(l.length, func(i int) bool { return l.nth(i).Seq > seq })
}

// add returns the place for one more event, with its number in it. The caller holds mu.
func (r *Ring) add(lane int) *Event {
	r.last++
	e := r.lanes[lane].add()
	e.Seq = r.last
	return e
}

// wakeReaders wakes those who wait. The caller holds mu.
func (r *Ring) wakeReaders() {
	if r.wake != nil {
		close(r.wake)
		r.wake = nil
	}
}

func (r *Ring) removed(p *QueueRef, now hook.Instant, ls []Removal) {
	if r == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if more := len(ls) - r.lanes[ofMessages].size; more > 0 { // they would be forgotten at once
		r.last += uint64(more)
		ls = ls[more:]
	}
	for i := range ls {
		r.add(ofMessages).message(p, now, &ls[i])
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
	e.At, e.Kind, e.QueueRef.VHost, e.Notice = now, n.Kind, n.VHost, n
	r.wakeReaders()
}

// First returns the number before that of the first event there ever was: to read what comes after it is to read everything
// that is remembered.
func (r *Ring) First() uint64 { return r.first }

// Last returns the number of the latest event.
func (r *Ring) Last() uint64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.last
}

// Knows reports whether there was an event of this number, so that a reader that saw it can go on from there. If not, it is
// one of an earlier life of the broker, or made up.
func (r *Ring) Knows(seq uint64) bool { return seq >= r.first && seq <= r.Last() }

// Read copies the events that come after the one with this number, in order, as far as there is room, and returns how many
// there were. Numbers that are left out are those of events that are forgotten.
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

// earliest returns the first of the events that are next in their lanes, and moves that lane on; nil if there is none. The
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

// Wait returns what is closed as soon as there is an event after the one with this number. Whoever tells the ring of events
// pays for the waking: a reader does well not to wait again at once.
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
