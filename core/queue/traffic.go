package queue

import (
	"sync"
	"sync/atomic"

	"github.com/curfewmq/curfew/core/journal"
)

// Dead letters go as fast as the queues and logs take them that they go to: there
// are never more than so many bytes of them under way in the whole process, from
// when they leave their queue until they are in another and, if that keeps them in
// a journal, durable. Beyond that, queues with dead letters wait in line, and the
// dead letters in their queues, where memory is counted and may be spilled.

// trafficLimit is how many bytes may be under way before others wait.
const trafficLimit = 8 << 20

// traffic is the dead letters under way, and the queues that wait to send more.
type traffic struct {
	bytes   atomic.Int64
	waiting atomic.Bool // line is not empty, or is about to be

	mu   sync.Mutex // guards line, and changes of waiting
	line []*Mailbox // none is twice in it
}

var underway traffic

// UnderwayBytes returns the memory of messages in the whole process that are in no
// queue: dead letters on their way, and what waits to be written to a journal.
func UnderwayBytes() int64 { return underway.bytes.Load() + journal.WaitingBytes() }

// admit reports whether a queue may send dead letters, about departBytes of them.
// They are under way from now on: what is not sent, or is counted as a batch now,
// has landed. If the queue, whose turn it is, may not, it is sent opRoom once it may.
func (t *traffic) admit(s *Mailbox) bool {
	if t.reserve() {
		return true
	}
	if s == nil { // it has no turns to wait for
		t.bytes.Add(departBytes)
		return true
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.waiting.Store(true) // before it looks again: whoever lands something later than that looks at the line
	if t.reserve() {
		t.waiting.Store(len(t.line) > 0)
		return true
	}
	t.enter(s)
	return false
}

// hasCapacity is admits for who sends nothing yet.
func (t *traffic) hasCapacity(s *Mailbox) bool {
	if !t.admit(s) {
		return false
	}
	t.remove(departBytes)
	return true
}

// during calls fn, which sends what was admitted, and counts departBytes out whatever
// comes of it.
func (t *traffic) during(fn func()) {
	defer t.remove(departBytes)
	fn()
}

// reserve counts departBytes in if there is room.
func (t *traffic) reserve() bool {
	for {
		n := t.bytes.Load()
		if n >= trafficLimit {
			return false
		}
		if t.bytes.CompareAndSwap(n, n+departBytes) {
			return true
		}
	}
}

// enter has a queue wait. The caller holds mu.
func (t *traffic) enter(s *Mailbox) {
	if !s.inLine {
		s.inLine = true
		t.line = append(t.line, s)
	}
}

// add counts a batch in; landed counts it out.
func (t *traffic) add(b *Batch) {
	const record = 64 // what else there is of a message
	for i := range b.Messages {
		b.underway += int64(len(b.Messages[i].Props) + len(b.Messages[i].Body) + record)
	}
	t.bytes.Add(b.underway)
}

func (t *traffic) remove(bytes int64) {
	if left := t.bytes.Add(-bytes); left < trafficLimit/2 && t.waiting.Load() {
		t.next()
	}
}

// next gives the next queue its turn if there is room. That one calls it again, so
// that the line goes on until there is none.
func (t *traffic) next() {
	if s := t.first(); s != nil {
		s.postAsync(task{kind: taskAdmitted})
	}
}

func (t *traffic) first() *Mailbox {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.line) == 0 || t.bytes.Load() >= trafficLimit {
		return nil
	}
	s := t.line[0]
	t.line[0] = nil
	if t.line = t.line[1:]; len(t.line) == 0 {
		t.line = nil
		t.waiting.Store(false)
	}
	return s
}
