package telemetry

import (
	"context"
	"slices"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"github.com/curfewmq/curfew/sdk/hook"
)

// Published tells that a client published a message that is traced, which was routed to so many queues.
func (s *Spans) Published(m *Message, connection string, queues int) {
	if s.crowded() {
		return
	}
	s.offer(&publish{subject: m.subject(), now: s.now(), connection: connection, queues: queues, adopted: m.Adopted})
}

func (s *Spans) now() hook.Instant {
	if s.clock == nil {
		return 0
	}
	return s.clock()
}

type publish struct {
	subject
	now        hook.Instant
	connection string
	queues     int
	adopted    bool // the message's context is of this very span
}

func (r *publish) make(s *Spans) {
	ctx, links, kind := context.Background(), []trace.Link(nil), trace.SpanKindProducer
	if r.adopted {
		ctx = withIDs(ctx, &r.context)
	} else {
		ctx, links = r.parent()
		kind = trace.SpanKindServer
	}
	as := append(s.attributes(&r.subject, "publish", ""), operationTypeKey.String("send"), routedKey.Int(r.queues))
	_, span := s.begin(ctx, "publish "+exchangeName(r.exchange), kind, r.now, links, appendText(as, clientKey, r.connection))
	span.End(at(r.now))
}

// Delivered tells that a message that is traced was handed to a client. enqueued is when it entered the queue, tag the
// consumer's ("" for basic.get).
func (s *Spans) Delivered(m *Message, queue string, enqueued hook.Instant, connection, tag string, redelivered bool) {
	if s.crowded() {
		return
	}
	s.offer(&delivery{
		subject: m.subject(), queue: queue, enqueued: enqueued, now: s.now(),
		connection: connection, tag: tag, redelivered: redelivered,
	})
}

type delivery struct {
	subject
	queue           string
	enqueued, now   hook.Instant
	connection, tag string
	redelivered     bool
}

func (r *delivery) make(s *Spans) {
	ctx, links := r.parent()
	as := append(s.attributes(&r.subject, "deliver", r.queue), redeliveredKey.Bool(r.redelivered))
	if r.tag == "" {
		as = append(as, operationTypeKey.String("receive"))
	}
	as = appendText(appendText(as, consumerKey, r.tag), clientKey, r.connection)
	_, span := s.begin(ctx, "deliver "+r.queue, trace.SpanKindProducer, since(r.enqueued, r.now), links, as)
	span.End(at(r.now))
}

// since is when something began that is over now, as far as that is known and makes sense.
func since(began, now hook.Instant) hook.Instant {
	if began == 0 || began > now {
		return now
	}
	return began
}

// Decided tells what a policy decided about a message that is traced.
func (s *Spans) Decided(p *Place, now hook.Instant, m *Message, d *hook.Decision) {
	if s.crowded() {
		return
	}
	r := &decision{subject: m.subject(), place: *p, now: now, Decision: *d}
	r.Verdict.Target = copied(d.Verdict.Target)
	r.Attributes = slices.Clone(d.Attributes[:min(len(d.Attributes), maxPolicyAttributes)])
	s.offer(r)
}

// maxPolicyAttributes bounds what a policy may say about a message: names and values.
const maxPolicyAttributes = 2 * 32

type decision struct {
	subject
	place Place
	now   hook.Instant
	hook.Decision
}

func (r *decision) make(s *Spans) {
	ctx, links := r.parent()
	as := append(s.attributes(&r.subject, "policy", r.place.Queue),
		text(policyKey, r.Policy), text(digestKey, r.Digest), text(hookKey, r.Hook),
		fuelKey.Int64(r.Fuel), batchKey.Int(r.Batch), verdictKey.String(verdict(r.Verdict.Action)))
	_, span := s.begin(ctx, "policy "+r.Policy, trace.SpanKindInternal, r.now, links, r.consequences(as))
	if r.Failure != "" {
		span.SetStatus(codes.Error, valid(r.Failure))
	}
	span.End(at(r.now.Add(max(0, r.Took))))
}

// consequences appends what follows from the verdict, and what the policy says itself.
func (r *decision) consequences(as []attribute.KeyValue) []attribute.KeyValue {
	as = appendText(as, reasonKey, reasonName(r.Verdict.Reason))
	if r.Verdict.Deadline != 0 && r.Verdict.Action == hook.Keep {
		as = append(as, deadlineKey.String(instant(r.Verdict.Deadline)))
	}
	as = appendTarget(as, r.Verdict.Target)
	for i := 0; i+1 < len(r.Attributes); i += 2 {
		as = append(as, text(attribute.Key(ofPolicy+valid(r.Attributes[i])), r.Attributes[i+1]))
	}
	return as
}

// verdict is an action as attributes have it.
func verdict(a hook.Action) string {
	switch a {
	case hook.Keep:
		return "keep"
	case hook.Drop:
		return "drop"
	case hook.Route:
		return "route"
	case hook.Refuse:
		return "refuse"
	}
	return ""
}

// Recovered tells of a recovery that is over.
func (s *Spans) Recovered(r *Recovery) { s.offer(*r) }

// Recovery is what was brought back when the broker was started.
type Recovery struct {
	Began, Ended     hook.Instant
	Bytes            int64 // of the logs
	Entries          int
	Messages, Queues int
}

func (r Recovery) make(s *Spans) {
	_, span := s.begin(context.Background(), "recovery", trace.SpanKindInternal, r.Began, nil, []attribute.KeyValue{
		bytesKey.Int64(r.Bytes), entriesKey.Int(r.Entries), recoveredMessagesKey.Int(r.Messages), recoveredQueuesKey.Int(r.Queues),
	})
	span.End(at(r.Ended))
}
