package telemetry

import (
	"go.opentelemetry.io/otel/attribute"

	"github.com/curfewmq/curfew/core/amqp"
	"github.com/curfewmq/curfew/sdk/hook"
)

// Published tells that a client published a message that is traced, which was routed to so many queues.
func (s *Spans) Published(m *Message, connection string, queues int) {
	now := s.now()
	s.record(now, now, m, &templateKey{kind: ofPublish, injected: m.Injected, connection: amqp.BytesOf(connection), queues: uint32(queues)})
}

// Delivered tells that a message that is traced was handed to a client. enqueued is when it entered the queue, tag the
// consumer's ("" for basic.get).
func (s *Spans) Delivered(m *Message, queue string, enqueued hook.Instant, connection, tag string, redelivered bool) {
	s.record(s.now(), enqueued, m, &templateKey{
		kind: ofDelivery, queue: amqp.BytesOf(queue), connection: amqp.BytesOf(connection), tag: amqp.BytesOf(tag), redelivered: redelivered,
	})
}

func (s *Spans) now() hook.Instant {
	if s.clock == nil {
		return 0
	}
	return s.clock()
}

// since is when something began that is over now, as far as that is known and makes sense.
func since(began, now hook.Instant) hook.Instant {
	if began == 0 || began > now {
		return now
	}
	return began
}

// Decided tells what a policy decided about a message that is traced.
func (s *Spans) Decided(at *QueueRef, now hook.Instant, m *Message, d *hook.Decision) {
	about := m.subject()
	p := s.open(&about, "policy", d.Policy)
	p.addMessage(&about, "policy", at.Queue)
	p.Attributes = append(p.Attributes,
		text(policyKey, d.Policy), text(digestKey, d.Digest), text(hookKey, d.Hook),
		fuelKey.Int64(d.Fuel), batchKey.Int(d.Batch), verdictKey.String(verdict(d.Verdict.Action)))
	p.addVerdict(d)
	p.Failure = valid(d.Failure)
	s.end(p, now, now.Add(max(0, d.Took)))
}

// maxPolicyAttributes bounds what a policy may say about a message: names and values.
const maxPolicyAttributes = 2 * 32

// addVerdict adds what follows from a verdict, and what the policy says itself.
func (p *Span) addVerdict(d *hook.Decision) {
	p.addText(reasonKey, reasonName(d.Verdict.Reason))
	if d.Verdict.Deadline != 0 && d.Verdict.Action == hook.Keep {
		p.add(deadlineKey.String(instant(d.Verdict.Deadline)))
	}
	p.addTarget(d.Verdict.Target)
	said := d.Attributes[:min(len(d.Attributes), maxPolicyAttributes)]
	for i := 0; i+1 < len(said); i += 2 {
		p.add(text(attribute.Key(ofPolicy+valid(said[i])), said[i+1]))
	}
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

// Recovery is what was brought back when the broker was started.
type Recovery struct {
	Began, Ended     hook.Instant
	Bytes            int64 // of the logs
	Entries          int
	Messages, Queues int
}

// Recovered tells of a recovery that is over.
func (s *Spans) Recovered(r *Recovery) {
	p := s.open(nil, "recovery", "")
	p.Attributes = append(p.Attributes,
		bytesKey.Int64(r.Bytes), entriesKey.Int(r.Entries), recoveredMessagesKey.Int(r.Messages), recoveredQueuesKey.Int(r.Queues))
	s.end(p, r.Began, r.Ended)
}
