package queue

import (
	"github.com/curfewmq/curfew/core/amqp"
	"github.com/curfewmq/curfew/sdk/hook"
)

// Look runs fn while the queue is idle or, if it is not, on its turn. fn must only read,
// and quickly, because the queue is locked meanwhile. Look returns ErrGone, without
// having run fn, when the queue was deleted. Unlike Do it costs next to nothing: a caller
// can look at a hundred thousand queues one after another.
func (m *Mailbox) Look(fn func(q *Queue)) error {
	looked := false
	if err := contain(func() { looked = m.lookIdle(fn) }); err == nil && looked {
		return nil
	}
	return m.Do(func(q *Queue, _ hook.Instant) { fn(q) })
}

// lookIdle runs fn if the queue is idle and not deleted, and reports whether it did.
func (m *Mailbox) lookIdle(fn func(q *Queue)) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.running || m.queue.closed {
		return false
	}
	fn(&m.queue)
	return true
}

// ConsumerStatus is a consumer and whether it is active.
type ConsumerStatus struct {
	*Consumer
	Active bool // false for a consumer that waits behind a single active consumer
}

// Consumers lists the consumers in the order in which they were added.
func (q *Queue) Consumers() []ConsumerStatus {
	if q.consumers == nil {
		return nil
	}
	all := make([]ConsumerStatus, len(q.consumers.all))
	for i, c := range q.consumers.all {
		all[i] = ConsumerStatus{c, !q.consumers.single || c == q.consumers.served}
	}
	return all
}

// Head describes the next message.
type Head struct {
	Timestamp uint64 // the publisher's, in seconds; 0 means none, or that the record is not in memory
	// Oldest is when the oldest message that is next in its level entered the queue. It
	// may be a little early for a record that is not in memory.
	Oldest hook.Instant
}

// Head describes the next message; ok is false if there is none.
func (q *Queue) Head() (h Head, ok bool) {
	if q.ready == 0 {
		return Head{}, false
	}
	top := q.topLevel()
	for l := range q.levels {
		f := &q.levels[l]
		if f.ready == 0 {
			continue
		}
		entered, stamp := q.store.stamps(*f.slot(f.peek()))
		if h.Oldest == 0 || entered < h.Oldest {
			h.Oldest = entered
		}
		if l == top {
			h.Timestamp = stamp
		}
	}
	return h, true
}

// stamps returns when a message entered the queue, and its publisher's timestamp. It
// loads no spilled segment.
func (s *store) stamps(at slot) (entered hook.Instant, timestamp uint64) {
	g := s.at(at.segment)
	if g.buf == nil {
		return g.began, 0
	}
	r := s.read(at)
	if x, err := amqp.ScanProps(r.props); err == nil {
		timestamp, _ = x.Timestamp(r.props)
	}
	return r.enqueued, timestamp
}
