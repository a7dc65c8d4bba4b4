package telemetry

import (
	"fmt"
	"time"

	"github.com/curfewmq/curfew/sdk/hook"
)

func (s *Spans) removed(q *QueueRef, now hook.Instant, rs []Removal) {
	for i := range rs {
		if rs[i].Traced || s.always && rs[i].Reason == hook.ReasonExpired {
			m := removedMessage{Removal: &rs[i], queue: *q, now: now}
			m.subject = newSubject(q.VHost, m.Exchange, m.Key, m.Props, m.Size)
			m.makeSpans(s)
		}
	}
}

// removedMessage is a removal whose spans are being made.
type removedMessage struct {
	*Removal
	subject
	queue QueueRef
	now   hook.Instant
}

// makeSpans makes one span of the removal, and a second one inside it if the message both expired and has a target.
func (m *removedMessage) makeSpans(s *Spans) {
	switch {
	case m.Reason == hook.ReasonExpired:
		m.expire(s)
	case m.Reason == hook.ReasonReleased, m.Reason == hook.ReasonCancelled:
		m.hold(s)
	case m.Reason == hook.ReasonRedriven:
		m.send(s, "redrive", nil)
	case m.Target != nil:
		m.deadLetter(s, nil)
	default:
		s.end(m.open(s, "drop"), m.now, m.now)
	}
}

// open begins a span with the attributes common to all spans of the removal.
func (m *removedMessage) open(s *Spans, operation string) *Span {
	p := s.open(&m.subject, operation, m.queue.Queue)
	if m.queue.Schedule {
		p.addMessage(&m.subject, operation, "")
		p.addText(scheduleKey, m.queue.Queue)
	} else {
		p.addMessage(&m.subject, operation, m.queue.Queue)
	}
	p.add(reasonKey.String(reasonName(m.Reason)))
	p.add(outcomeKey.String(m.Became().String()))
	return p
}

// hold makes the span of the time for which a message was held, until it was released or cancelled. The span begins when the message
// entered the queue: for messages held since a failed delivery, the start of the hold is not recorded.
func (m *removedMessage) hold(s *Spans) {
	began := since(m.Enqueued, m.now)
	p := m.open(s, "hold")
	if m.Held != 0 {
		p.add(heldKey.String(instant(m.Held)))
	}
	if late, known := m.afterHold(m.now); known {
		p.add(holdLatenessKey.Float64(milliseconds(late)))
		p.addEvent("due", m.Held)
	}
	m.addLoss(p)
	s.end(p, began, m.now)
}

// addLoss makes the span an error if the message should have entered a queue and did not.
func (m *removedMessage) addLoss(p *Span) {
	if m.Target == nil {
		return
	}
	if became := m.Became(); became != DeadLettered && became != Routed {
		p.fail(became.String(), "the message is lost: "+became.String())
	}
}

func (m *removedMessage) expire(s *Spans) {
	began := since(m.Enqueued, m.now)
	p := m.open(s, "expire")
	m.addExpiry(p)
	p.addEvent("enqueue", began)
	if m.Deadline != 0 {
		p.addEvent("deadline_set", began, text(strategyKey, m.queue.Strategy), deadlineKey.String(instant(m.Deadline)))
		p.addEvent("due", m.Deadline)
	}
	if m.Underway >= 0 {
		p.addEvent("decided", m.now-hook.Instant(m.Underway), outcomeKey.String(m.Became().String()))
	}
	if m.Target != nil {
		m.deadLetter(s, p)
	}
	s.end(p, began, m.now)
}

// reasonName returns a reason's name; "" for an invalid one.
func reasonName(r hook.Reason) string {
	if r >= hook.Reasons {
		return ""
	}
	return r.String()
}

func (m *removedMessage) addExpiry(p *Span) {
	p.addText(strategyKey, m.queue.Strategy)
	if m.Deadline != 0 {
		p.add(deadlineKey.String(instant(m.Deadline)))
	}
	if late, known := m.late(m.now); known {
		p.add(latenessKey.Float64(milliseconds(late)))
	}
	if m.Digest != 0 {
		p.add(digestKey.String(fmt.Sprintf("sha256:%016x", m.Digest)))
	}
}

// deadLetter makes the span of the dead-lettering, as a child of parent; nil means that it has no parent in the broker.
func (m *removedMessage) deadLetter(s *Spans, parent *Span) { m.send(s, "dead_letter", parent) }

// send makes the span of an operation that publishes the message again.
func (m *removedMessage) send(s *Spans, operation string, parent *Span) {
	p := m.open(s, operation)
	if parent != nil {
		p.Link, p.LinkFlags = p.Parent, m.context.flags // zero without a context
		p.Trace, p.Parent, p.Remote = parent.Trace, parent.ID, false
	}
	p.add(operationTypeKey.String("send"))
	p.addTarget(m.Target)
	m.addLoss(p)
	s.end(p, m.now, m.now)
}

// addTarget adds a dead letter's target; nil adds nothing.
func (p *Span) addTarget(to *hook.Target) {
	if to == nil {
		return
	}
	p.add(text(exchangeKey, exchangeName(to.Exchange)))
	if to.HasKey {
		p.add(text(newKeyKey, to.Key))
	}
}

// queueExpired makes the span of an expired queue. It is sampled by chance, like a message without a context.
func (s *Spans) queueExpired(q *QueueRef, now hook.Instant, e *QueueEnd) {
	if !s.always && !s.SampleRoot() {
		return
	}
	began := since(e.LastUse, now)
	p := s.open(nil, "queue_expire", q.Queue)
	p.Attributes = append(p.Attributes,
		systemKey.String("rabbitmq"), operationKey.String("queue_expire"), text(destinationKey, q.Queue),
		text(vhostKey, q.VHost), text(queueKey, q.Queue), text(strategyKey, q.Strategy),
		idleKey.Int64(int64(now.Sub(began)/time.Millisecond)), messagesKey.Int(e.Messages), deadLetteredKey.Int(e.DeadLettered))
	p.addEvent("last_use", began)
	if e.Lease != 0 {
		p.add(deadlineKey.String(instant(e.Lease)))
		p.add(latenessKey.Float64(milliseconds(max(0, now.Sub(e.Lease)))))
		p.addEvent("due", e.Lease)
	}
	p.addEvent("decided", now)
	s.end(p, began, now)
}
