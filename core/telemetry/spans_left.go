package telemetry

import (
	"context"
	"fmt"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"github.com/curfewmq/curfew/sdk/hook"
)

func (s *Spans) left(p *Place, now hook.Instant, ls []Left) {
	for i := range ls {
		if (ls[i].Traced || s.always && ls[i].Reason == hook.ReasonExpired) && !s.crowded() {
			s.offer(newDeparture(p, now, &ls[i]))
		}
	}
}

// departure is a message that left its queue for a reason.
type departure struct {
	subject
	place                   Place
	enqueued, deadline, now hook.Instant
	reason                  hook.Reason
	outcome                 Outcome
	target                  *hook.Target
	digest                  uint64
	late                    time.Duration
	lateKnown               bool
	decided                 hook.Instant // 0: before the broker was started
}

func newDeparture(p *Place, now hook.Instant, l *Left) *departure {
	r := &departure{
		subject: newSubject(p.VHost, l.Exchange, l.Key, l.Props, l.Size), place: *p,
		enqueued: l.Enqueued, deadline: l.Deadline, now: now,
		reason: l.Reason, outcome: l.Outcome, target: copied(l.Target), digest: l.Digest,
	}
	r.late, r.lateKnown = l.Late(now)
	if l.Underway >= 0 {
		r.decided = now - hook.Instant(l.Underway)
	}
	return r
}

// make makes a span of what happened to the message, and one inside it where it both expired and was to go elsewhere.
func (r *departure) make(s *Spans) {
	ctx, links := r.parent()
	switch {
	case r.reason == hook.ReasonExpired:
		r.expire(ctx, s, links)
	case r.target != nil:
		r.deadLetter(ctx, s, links)
	default:
		r.drop(ctx, s, links)
	}
}

func (r *departure) expire(ctx context.Context, s *Spans, links []trace.Link) {
	began := since(r.enqueued, r.now)
	ctx, span := s.begin(ctx, "expire "+r.place.Queue, trace.SpanKindInternal, began, links, r.expiry(r.departing(s, "expire")))
	span.AddEvent("enqueue", at(began))
	if r.deadline != 0 {
		span.AddEvent("deadline_set", at(began), trace.WithAttributes(text(strategyKey, r.place.Strategy), deadlineKey.String(instant(r.deadline))))
		span.AddEvent("due", at(r.deadline))
	}
	if r.decided != 0 {
		span.AddEvent("decided", at(r.decided), trace.WithAttributes(outcomeKey.String(r.outcome.String())))
	}
	if r.target != nil {
		r.deadLetter(ctx, s, links)
	}
	span.End(at(r.now))
}

// departing are the attributes of every span about it.
func (r *departure) departing(s *Spans, operation string) []attribute.KeyValue {
	return append(s.attributes(&r.subject, operation, r.place.Queue), reasonKey.String(reasonName(r.reason)), outcomeKey.String(r.outcome.String()))
}

// reasonName is a reason's name, also if there is no such reason.
func reasonName(r hook.Reason) string {
	if r >= hook.Reasons {
		return ""
	}
	return r.String()
}

// expiry appends what there is to know of the deadline.
func (r *departure) expiry(as []attribute.KeyValue) []attribute.KeyValue {
	as = appendText(as, strategyKey, r.place.Strategy)
	if r.deadline != 0 {
		as = append(as, deadlineKey.String(instant(r.deadline)))
	}
	if r.lateKnown {
		as = append(as, latenessKey.Float64(milliseconds(r.late)))
	}
	if r.digest != 0 {
		as = append(as, digestKey.String(fmt.Sprintf("sha256:%016x", r.digest)))
	}
	return as
}

func (r *departure) deadLetter(ctx context.Context, s *Spans, links []trace.Link) {
	as := appendTarget(append(r.departing(s, "dead_letter"), operationTypeKey.String("send")), r.target)
	_, span := s.begin(ctx, "dead_letter "+r.place.Queue, trace.SpanKindInternal, r.now, links, as)
	if r.outcome != DeadLettered {
		span.SetStatus(codes.Error, "the message is lost: "+r.outcome.String())
	}
	span.End(at(r.now))
}

// copied returns a target of our own: a policy may use the same one again for something else.
func copied(t *hook.Target) *hook.Target {
	if t == nil {
		return nil
	}
	c := *t
	return &c
}

// appendTarget appends where a message is to go, if anywhere.
func appendTarget(as []attribute.KeyValue, to *hook.Target) []attribute.KeyValue {
	if to == nil {
		return as
	}
	as = append(as, text(exchangeKey, exchangeName(to.Exchange)))
	if to.HasKey {
		as = append(as, text(newKeyKey, to.Key))
	}
	return as
}

func (r *departure) drop(ctx context.Context, s *Spans, links []trace.Link) {
	_, span := s.begin(ctx, "drop "+r.place.Queue, trace.SpanKindInternal, r.now, links, r.departing(s, "drop"))
	span.End(at(r.now))
}

// queueExpired tells of a queue: nothing brings a context, so that it is treated as messages without one are.
func (s *Spans) queueExpired(p *Place, now hook.Instant, e *QueueEnd) {
	if s.always || s.Draw() {
		s.offer(&queueEnd{*p, *e, now})
	}
}

type queueEnd struct {
	place Place
	QueueEnd
	now hook.Instant
}

func (r *queueEnd) make(s *Spans) {
	began := since(r.LastUse, r.now)
	as := []attribute.KeyValue{
		systemKey.String("rabbitmq"), operationKey.String("queue_expire"), text(destinationKey, r.place.Queue),
		text(vhostKey, r.place.VHost), text(queueKey, r.place.Queue),
		idleKey.Int64(int64(r.now.Sub(began) / time.Millisecond)), messagesKey.Int(r.Messages), deadLetteredKey.Int(r.DeadLettered),
	}
	as = appendText(as, strategyKey, r.place.Strategy)
	if r.Lease != 0 {
		as = append(as, deadlineKey.String(instant(r.Lease)), latenessKey.Float64(milliseconds(max(0, r.now.Sub(r.Lease)))))
	}
	_, span := s.begin(context.Background(), "queue_expire "+r.place.Queue, trace.SpanKindInternal, began, nil, as)
	span.AddEvent("last_use", at(began))
	if r.Lease != 0 {
		span.AddEvent("due", at(r.Lease))
	}
	span.AddEvent("decided", at(r.now))
	span.End(at(r.now))
}
