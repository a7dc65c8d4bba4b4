package queue

import (
	"github.com/curfewmq/curfew/core/amqp"
	"github.com/curfewmq/curfew/sdk/hook"
)

// Look runs fn with the queue at rest or, if it is not, on its turn. fn must only look, and not for long: nobody else comes
// to the queue meanwhile. It returns ErrGone, without having run fn, when the queue was deleted. Unlike Do it costs next to
// nothing: a hundred thousand queues can be looked at one after another.
func (s *Mailbox) Look(fn func(q *Queue)) error {
	if s.lookAtRest(fn) {
		return nil
	}
	return s.Do(func(q *Queue, _ hook.Instant) { fn(q) })
}

// lookAtRest reports whether the queue was at rest, and there.
func (s *Mailbox) lookAtRest(fn func(q *Queue)) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.running || s.queue.closed {
		return false
	}
	fn(&s.queue)
	return true
}

// ConsumerStatus is a consumer of a queue.
type ConsumerStatus struct {
	*Consumer
	Active bool // its turn can come: it is not one that waits behind a single active consumer
}

// Consumers lists the consumers in the order they came.
func (q *Queue) Consumers() []ConsumerStatus {
	if q.consumers == nil {
		return nil
	}
	all := make([]ConsumerStatus, len(q.consumers.all))
	for i, c := range q.consumers.all {
		all[i] = ConsumerStatus{c, i == 0 || !q.consumers.single}
	}
	return all
}

// Head is what is known of the message that would be handed out next.
type Head struct {
	Timestamp uint64 // the publisher's, seconds; 0 = none, or its bytes are not in memory
	// Oldest is when the oldest of the messages that are next in their priority entered the queue. Where bytes are not in
	// memory it may be a little early.
	Oldest hook.Instant
}

// Head returns what is known of the next message; ok is false if there is none.
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

// stamps returns when a message entered the queue, and its publisher's timestamp. It brings nothing back to memory.
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
