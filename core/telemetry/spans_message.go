package telemetry

import (
	"cmp"

	"go.opentelemetry.io/otel/attribute"

	"github.com/curfewmq/curfew/core/amqp"
	"github.com/curfewmq/curfew/sdk/hook"
	"github.com/curfewmq/curfew/sdk/hook/guest"
)

// Published records that a client published a traced message, with the number of queues that it was routed to.
func (s *Spans) Published(m *Message, connection string, queues int) {
	now := s.now()
	s.record(now, now, m, &templateKey{kind: ofPublish, injected: m.Injected, connection: amqp.BytesOf(connection), queues: uint32(queues)})
}

// Delivered records the delivery of a traced message. tag is the consumer's; "" means basic.get.
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

// since returns began, or now if began is unknown or later.
func since(began, now hook.Instant) hook.Instant {
	if began == 0 || began > now {
		return now
	}
	return began
}

// Decided records a policy's decision about a traced message.
func (s *Spans) Decided(q *QueueRef, now hook.Instant, m *Message, d *guest.Decision) {
	about := m.subject()
	p := s.open(&about, "policy", d.Policy)
	p.addMessage(&about, "policy", q.Queue)
	p.Attributes = append(p.Attributes,
		text(policyKey, d.Policy), text(digestKey, d.Digest), text(hookKey, d.Hook),
		fuelKey.Int64(d.Fuel), batchKey.Int(d.Batch), verdictKey.String(verdict(d.Verdict.Action)))
	p.addVerdict(d)
	if d.Failure != "" {
		p.fail(cmp.Or(d.FailureKind, otherError), d.Failure)
	}
	s.end(p, now, now.Add(max(0, d.Took)))
}

// otherError is the conventions' kind for errors without one.
const otherError = "_OTHER"

// maxPolicyAttributes bounds the names and values that a span takes from a policy's attributes.
const maxPolicyAttributes = 2 * 32

// addVerdict adds the consequences of the verdict and the policy's own attributes.
func (p *Span) addVerdict(d *guest.Decision) {
	p.addText(reasonKey, reasonName(d.Verdict.Reason))
	if d.Verdict.Deadline != 0 && d.Verdict.Action == hook.Keep {
		p.add(deadlineKey.String(instant(d.Verdict.Deadline)))
	}
	if d.Verdict.Hold != 0 && d.Verdict.Action == hook.Keep {
		p.add(policyHold.String(instant(d.Verdict.Hold)))
	}
	p.addTarget(d.Verdict.Target)
	own := d.Attributes[:min(len(d.Attributes), maxPolicyAttributes)]
	for i := 0; i+1 < len(own); i += 2 {
		p.add(text(attribute.Key(policyPrefix+valid(own[i])), own[i+1]))
	}
}

// verdict returns an action's name in attributes; "" for an invalid one.
func verdict(a hook.Action) string {
	names := [...]string{hook.Keep: "keep", hook.Drop: "drop", hook.Route: "route", hook.Refuse: "refuse"}
	if int(a) >= len(names) {
		return ""
	}
	return names[a]
}

// Recovery describes what a broker recovered when it started.
type Recovery struct {
	Began, Ended     hook.Instant
	Bytes            int64 // of the logs
	Entries          int
	Messages, Queues int
}

// Recovered records a recovery.
func (s *Spans) Recovered(r *Recovery) {
	p := s.open(nil, "recovery", "")
	p.Attributes = append(p.Attributes,
		bytesKey.Int64(r.Bytes), entriesKey.Int(r.Entries), recoveredMessagesKey.Int(r.Messages), recoveredQueuesKey.Int(r.Queues))
	s.end(p, r.Began, r.Ended)
}
