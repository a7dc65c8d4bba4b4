package telemetry

import (
	"fmt"
	"time"

	"github.com/curfewmq/curfew/sdk/hook"
)

func (s *Spans) removed(p *QueueRef, now hook.Instant, ls []Removal) {
	for i := range ls {
		if ls[i].Traced || s.always && ls[i].Reason == hook.ReasonExpired {
			d := removedMessage{Removal: &ls[i], queue: *p, now: now}
			d.subject = newSubject(p.VHost, d.Exchange, d.Key, d.Props, d.Size)
			d.make(s)
		}
	}
}

// removedMessage is a message that left its queue for a reason.
type removedMessage struct {
	*Removal
	subject
	queue QueueRef
	now   hook.Instant
}

// make makes a span of what happened to the message, and one inside it where it both expired and was to go elsewhere.
func (d *removedMessage) make(s *Spans) {
	switch {
	case d.Reason == hook.ReasonExpired:
		d.expire(s)
	case d.Target != nil:
		d.deadLetter(s, nil)
	default:
		d.drop(s)
	}
}

func (d *removedMessage) expire(s *Spans) {
	began := since(d.Enqueued, d.now)
	p := s.open(&d.subject, "expire", d.queue.Queue)
	d.addOutcome(p, "expire")
	d.addExpiry(p)
	p.addEvent("enqueue", began)
	if d.Deadline != 0 {
		p.addEvent("deadline_set", began, text(strategyKey, d.queue.Strategy), deadlineKey.String(instant(d.Deadline)))
		p.addEvent("due", d.Deadline)
	}
	if d.Underway >= 0 {
		p.addEvent("decided", d.now-hook.Instant(d.Underway), outcomeKey.String(d.Outcome.String()))
	}
	if d.Target != nil {
		d.deadLetter(s, p)
	}
	s.end(p, began, d.now)
}

// addOutcome adds what every span about it tells.
func (d *removedMessage) addOutcome(p *Span, operation string) {
	p.addMessage(&d.subject, operation, d.queue.Queue)
	p.add(reasonKey.String(reasonName(d.Reason)))
	p.add(outcomeKey.String(d.Outcome.String()))
}

// reasonName is a reason's name, also if there is no such reason.
func reasonName(r hook.Reason) string {
	if r >= hook.Reasons {
		return ""
	}
	return r.String()
}

// addExpiry adds what there is to know of the deadline.
func (d *removedMessage) addExpiry(p *Span) {
	p.addText(strategyKey, d.queue.Strategy)
	if d.Deadline != 0 {
		p.add(deadlineKey.String(instant(d.Deadline)))
	}
	if late, known := d.Late(d.now); known {
		p.add(latenessKey.Float64(milliseconds(late)))
	}
	if d.Digest != 0 {
		p.add(digestKey.String(fmt.Sprintf("sha256:%016x", d.Digest)))
	}
}

// deadLetter makes the span of the message's going elsewhere, inside another one if there is one.
func (d *removedMessage) deadLetter(s *Spans, within *Span) {
	p := s.open(&d.subject, "dead_letter", d.queue.Queue)
	if within != nil {
		p.Trace, p.Parent, p.Remote = within.Trace, within.ID, false
	}
	d.addOutcome(p, "dead_letter")
	p.add(operationTypeKey.String("send"))
	p.addTarget(d.Target)
	if d.Outcome != DeadLettered {
		p.Failure = "the message is lost: " + d.Outcome.String()
	}
	s.end(p, d.now, d.now)
}

// addTarget adds where a message is to go, if anywhere.
func (p *Span) addTarget(to *hook.Target) {
	if to == nil {
		return
	}
	p.add(text(exchangeKey, exchangeName(to.Exchange)))
	if to.HasKey {
		p.add(text(newKeyKey, to.Key))
	}
}

func (d *removedMessage) drop(s *Spans) {
	p := s.open(&d.subject, "drop", d.queue.Queue)
	d.addOutcome(p, "drop")
	s.end(p, d.now, d.now)
}

// queueExpired tells of a queue: nothing brings a context, so that it is treated as messages without one are.
func (s *Spans) queueExpired(at *QueueRef, now hook.Instant, e *QueueEnd) {
	if !s.always && !s.SampleRoot() {
		return
	}
	began := since(e.LastUse, now)
	p := s.open(nil, "queue_expire", at.Queue)
	p.Attributes = append(p.Attributes,
		systemKey.String("rabbitmq"), operationKey.String("queue_expire"), text(destinationKey, at.Queue),
		text(vhostKey, at.VHost), text(queueKey, at.Queue), text(strategyKey, at.Strategy),
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
