package telemetry

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"hash/maphash"
	"math"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel/attribute"

	"github.com/curfewmq/curfew/core/amqp"
	"github.com/curfewmq/curfew/sdk/hook"
	"github.com/curfewmq/curfew/sdk/hook/guest"
)

// Spans makes spans about traced messages. Any goroutine may use it.
//
// Removals and decisions become spans at once, in the queue's turn, and go to a [Sink] that
// does not block. Publishes and deliveries are more frequent. They are buffered if
// [SpanOptions.FlushDue] is set, because many spans in a row cost less. The zero value has
// no sink.
type Spans struct {
	sink         Sink
	clock        func() hook.Instant
	sampling     Sampling
	threshold    uint64  // 63-bit random numbers below it are sampled
	logUnsampled float64 // log(1 - sampling.Ratio)
	always       bool    // see SpanOptions.AlwaysExpiries

	roots  rootContexts
	buffer *spanBuffer // nil: publishes and deliveries become spans at once

	made, dropped atomic.Uint64
}

// SpanOptions configure Spans.
type SpanOptions struct {
	Sink           Sink
	Clock          func() hook.Instant // nil: publishes and deliveries have no time
	Sampling       Sampling
	AlwaysExpiries bool // expiries of unsampled messages have spans, too

	// FlushDue is called after each FlushEvery buffered publishes and deliveries, and after each MiB of them, so that the caller
	// arranges for [Spans.Flush]. It must not block. At most MaxBuffered of them and 4 MiB are buffered; further ones are
	// dropped. nil means that there is no buffer.
	FlushDue                func()
	MaxBuffered, FlushEvery int
}

// Sampling decides which messages are traced.
type Sampling struct {
	Ratio float64 // fraction of the messages without a context, 0 to 1
	// ByRatio means that messages with a context are sampled by their trace ID, and the context's sampled flag is ignored.
	ByRatio bool
}

// NewSpans returns Spans with these options.
func NewSpans(o SpanOptions) *Spans {
	s := &Spans{
		sink: o.Sink, clock: o.Clock, sampling: o.Sampling, always: o.AlwaysExpiries,
		threshold: uint64(o.Sampling.Ratio * (1 << 63)), logUnsampled: math.Log1p(-o.Sampling.Ratio),
	}
	if o.FlushDue != nil {
		s.buffer = &spanBuffer{maxSpans: o.MaxBuffered, flushEvery: o.FlushEvery, flushDue: o.FlushDue, templates: templateCache{seed: maphash.MakeSeed(), templates: make([]SpanTemplate, maxTemplates)}}
	}
	return s
}

// Made returns the number of spans made.
func (s *Spans) Made() uint64 { return s.made.Load() }

// Dropped returns how many spans were dropped, by the sink or for lack of buffer space.
func (s *Spans) Dropped() uint64 { return s.dropped.Load() }

// ParentSampling is the sampling decision in a message's headers.
type ParentSampling uint8

// The decisions.
const (
	ParentNotSampled ParentSampling = iota // the message has a context and is not traced
	ParentSampled                          // the message has a context and is traced
	NoParent                               // the message has no context; see [Spans.SampleRoot]
)

// ParentSamplingOf returns the decision in these headers; nil means no headers. It does not allocate. The result may
// be cached for equal headers.
func (s *Spans) ParentSamplingOf(headers amqp.RawTable) ParentSampling {
	c := contextOf(headers)
	switch {
	case !c.valid():
		return NoParent
	case s.sampling.ByRatio && s.sampled(binary.BigEndian.Uint64(c.trace[8:])):
		return ParentSampled
	case !s.sampling.ByRatio && c.flags.IsSampled():
		return ParentSampled
	}
	return ParentNotSampled
}

// SampleRoot decides by chance whether to trace a message without a context.
func (s *Spans) SampleRoot() bool { return s.threshold > 0 && s.sampled(rand.Uint64()) }

// sampled decides by a random number, as OpenTelemetry's TraceIDRatioBased sampler does by the second half of a trace ID.
func (s *Spans) sampled(random uint64) bool { return random>>1 < s.threshold }

// Message is a traced message. The slices are valid during the call.
type Message struct {
	VHost                string
	Exchange, Key, Props []byte
	Size                 int  // of the body, bytes
	Injected             bool // its context was made by [Spans.Inject]; only for [Spans.Published]
}

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
