package policy

import (
	"github.com/curfewmq/curfew/core/deadline"
	"github.com/curfewmq/curfew/sdk/abi"
	"github.com/curfewmq/curfew/sdk/hook"
	"github.com/curfewmq/curfew/sdk/hook/guest"
)

// hold holds a ready message, if the verdict says so.
func (s *simulation) hold(m *stored, v *hook.Verdict) {
	if v.Action != hook.Keep || v.Hold <= s.now {
		return
	}
	if m.where == ready {
		s.countReady(m, -1)
	}
	m.where, m.hold = held, v.Hold
	s.releases.Push(deadline.Item{At: int64(m.hold), Slot: s.byID[m.id]})
}

// moveDeadlines makes the TTLs of messages that are held as they enter count from the end of their holds, as the broker does.
func (s *simulation) moveDeadlines(vs []hook.Verdict) {
	for i := range vs {
		if v := &vs[i]; v.Action == hook.Keep && v.Hold > s.now && v.Deadline != 0 && guest.Digest(v) == 0 {
			v.Deadline = v.Deadline.Add(v.Hold.Sub(s.now))
		}
	}
}

// release makes messages ready whose hold has ended.
func (s *simulation) release() {
	for s.releases.Len() > 0 && hook.Instant(s.releases.Top().At) <= s.now {
		it := s.releases.Pop()
		m := s.messages[it.Slot]
		if m.where != held || m.hold != hook.Instant(it.At) {
			continue
		}
		m.hold = 0
		s.record(noHook, m.id, "released")
		s.enqueue(m)
		s.countReady(m, 1)
		s.remind(m)
	}
}

// remind makes the clock stop at a message's deadline.
func (s *simulation) remind(m *stored) {
	if m.Deadline != 0 {
		s.deadlines.Push(deadline.Item{At: int64(m.Deadline), Slot: s.byID[m.id]})
	}
}

// countReady counts n messages like m in the queue.
func (s *simulation) countReady(m *stored, n int) {
	s.queue.ready += n
	s.queue.bytes += int64(n * m.Size)
}

// nextInstant returns the instant of the next event that is not in the trace; false = there is none.
func (s *simulation) nextInstant() (at hook.Instant, ok bool) {
	for _, h := range []*deadline.Heap{&s.deadlines, &s.releases} {
		if h.Len() == 0 {
			continue
		}
		if t := hook.Instant(h.Top().At); !ok || t < at {
			at, ok = t, true
		}
	}
	return at, ok
}

// miss records that the trace delivers a message that is held. The broker would deliver it later, so the rest of the trace about that
// delivery is ignored.
func (s *simulation) miss(m *stored) {
	s.record(noHook, m.id, "not delivered: it is held")
	m.missed = true
}

// heldNow returns how many messages are held.
func (s *simulation) heldNow() (n int) {
	for _, m := range s.messages {
		if m.where == held {
			n++
		}
	}
	return n
}

// expireDue calls the policy about the due messages.
func (s *simulation) expireDue() {
	if due := s.due(); len(due) > 0 {
		s.settle(abi.OnDeadline, hook.WhyDue, due)
	}
}
