package telemetry

import (
	"fmt"
	"time"

	"github.com/curfewmq/curfew/sdk/hook"
)

func (s *Spans) left(p *QueueRef, now hook.Instant, ls []Removal) {
	for i := range ls {
		if ls[i].Traced || s.always && ls[i].Reason == hook.ReasonExpired {
			d := departure{Removal: &ls[i], place: *p, now: now}
			d.subject = newSubject(p.VHost, d.Exchange, d.Key, d.Props, d.Size)
			d.make(s)
		}
	}
}

// departure is a message that left its queue for a reason.
type departure struct {
	*Removal
	subject
	place QueueRef
	now   hook.Instant
}

// make makes a span of what happened to the message, and one inside it where it both expired and was to go elsewhere.
func (d *departure) make(s *Spans) {
	switch {
	case d.Reason == hook.ReasonExpired:
		d.expire(s)
	case d.Target != nil:
		d.deadLetter(s, nil)
	default:
		d.drop(s)
	}
}

func (d *departure) expire(s *Spans) {
	began := since(d.Enqueued, d.now)
	p := s.open(&d.subject, "expire", d.place.Queue)
	d.departing(p, "expire")
	d.expiry(p)
	p.happened("enqueue", began)
	if d.Deadline != 0 {
		p.happened("deadline_set", began, text(strategyKey, d.place.Strategy), deadlineKey.String(instant(d.Deadline)))
		p.happened("due", d.Deadline)
	}
	if d.Underway >= 0 {
		p.happened("decided", d.now-hook.Instant(d.Underway), outcomeKey.String(d.Outcome.String()))
	}
	if d.Target != nil {
		d.deadLetter(s, p)
	}
	s.end(p, began, d.now)
}

// departing adds what every span about it tells.
func (d *departure) departing(p *Span, operation string) {
	p.about(&d.subject, operation, d.place.Queue)
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

// expiry adds what there is to know of the deadline.
func (d *departure) expiry(p *Span) {
	p.tellText(strategyKey, d.place.Strategy)
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
func (d *departure) deadLetter(s *Spans, within *Span) {
	p := s.open(&d.subject, "dead_letter", d.place.Queue)
	if within != nil {
		p.Trace, p.Parent, p.Remote = within.Trace, within.ID, false
	}
	d.departing(p, "dead_letter")
	p.add(operationTypeKey.String("send"))
	p.tellTarget(d.Target)
	if d.Outcome != DeadLettered {
		p.Failure = "the message is lost: " + d.Outcome.String()
	}
	s.end(p, d.now, d.now)
}

// tellTarget adds where a message is to go, if anywhere.
func (p *Span) tellTarget(to *hook.Target) {
	if to == nil {
		return
	}
	p.add(text(exchangeKey, exchangeName(to.Exchange)))
	if to.HasKey {
		p.add(text(newKeyKey, to.Key))
	}
}

func (d *departure) drop(s *Spans) {
	p := s.open(&d.subject, "drop", d.place.Queue)
	d.departing(p, "drop")
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
	p.happened("last_use", began)
	if e.Lease != 0 {
		p.add(deadlineKey.String(instant(e.Lease)))
		p.add(latenessKey.Float64(milliseconds(max(0, now.Sub(e.Lease)))))
		p.happened("due", e.Lease)
	}
	p.happened("decided", now)
	s.end(p, began, now)
}
