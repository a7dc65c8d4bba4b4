package queue

import (
	"sync"
	"sync/atomic"

	"github.com/curfewmq/curfew/core/journal"
)

// Dead letters flow as fast as their target queues and logs take them. At most
// trafficLimit bytes of them are under way in a broker: from when they leave their queue
// until they are in another and, if that one journals them, durable. Beyond that, or
// without space for them in the logs, dead letters wait in their queues, where memory is
// counted and may be spilled, and the queues wait in line.
const trafficLimit = 8 << 20

// traffic is the dead letters under way, and the queues that wait to send more.
type traffic struct {
	space   journal.Space // of the disk: dead letters leave only when there is space for them
	bytes   atomic.Int64
	waiting atomic.Bool // line is not empty, or is about to be

	mu   sync.Mutex // guards line, and changes of waiting
	line []*Mailbox // each at most once
}

// admit reports whether a queue may send about departBytes of dead letters. These bytes
// count as under way until during ends. If admit reports false, the queue is in line, and
// gets taskAdmitted when it is its turn to send some. admit is called on the queue's
// turn.
func (t *traffic) admit(m *Mailbox) bool {
	if t.reserve() {
		return true
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.waiting.Store(true) // before the second try: a remove after that looks at the line
	if t.reserve() {
		t.waiting.Store(len(t.line) > 0)
		return true
	}
	if !m.inLine {
		m.inLine = true
		t.line = append(t.line, m)
	}
	return false
}

// hasCapacity is admit without a reservation, for a queue that calls admit again if it
// sends something.
func (t *traffic) hasCapacity(m *Mailbox) bool {
	if !t.admit(m) {
		return false
	}
	t.remove(departBytes)
	return true
}

// during calls fn, which sends the admitted messages. From then on each batch is counted
// by itself.
func (t *traffic) during(fn func()) {
	defer t.remove(departBytes)
	fn()
}

// fits reports whether there is space for dead letters. Dead letters for several queues
// need more space than was admitted, and more than they free.
func (t *traffic) fits(ds []DeadLetter) bool {
	var once, all int64
	for i := range ds {
		n := int64(len(ds[i].Props) + len(ds[i].Body))
		once += n
		all += n * int64(ds[i].Sent)
	}
	return all <= once || t.space.Moves(all)
}

// reserve counts departBytes if there is capacity.
func (t *traffic) reserve() bool {
	if !t.space.Moves(departBytes) {
		return false
	}
	for {
		n := t.bytes.Load()
		if n >= trafficLimit {
			return false
		}
		if t.bytes.CompareAndSwap(n, n+departBytes) {
			t.space.Take(departBytes)
			return true
		}
	}
}

// add counts a batch until it is completed.
func (t *traffic) add(b *Batch) {
	const record = 64 // the rest of a message
	for i := range b.Messages {
		b.underway += int64(len(b.Messages[i].Props) + len(b.Messages[i].Body) + record)
	}
	b.traffic = t
	t.bytes.Add(b.underway)
	t.space.Take(b.underway)
}

func (t *traffic) remove(bytes int64) {
	t.space.Give(bytes)
	if left := t.bytes.Add(-bytes); left < trafficLimit/2 && t.waiting.Load() {
		t.next()
	}
}

// next gives the first queue in line a turn if there is capacity. The end of that turn
// calls next again, so the line moves until there is no capacity.
func (t *traffic) next() {
	if m := t.first(); m != nil {
		m.postAsync(task{kind: taskAdmitted})
	}
}

// first takes the first queue out of the line, nil if there is none or no capacity.
func (t *traffic) first() *Mailbox {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.line) == 0 || t.bytes.Load() >= trafficLimit || !t.space.Moves(departBytes) {
		return nil
	}
	m := t.line[0]
	t.line[0] = nil
	if t.line = t.line[1:]; len(t.line) == 0 {
		t.line = nil
		t.waiting.Store(false)
	}
	return m
}
