package telemetry

import (
	"context"
	"encoding/binary"
	"math/rand/v2"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/embedded"
	"go.opentelemetry.io/otel/trace/noop"

	core "github.com/curfewmq/curfew/core/telemetry"
)

// tracer makes spans for the core, which asks for those alone that are to be recorded, tells everything about them at once and
// from one goroutine. It does what the SDK's does of that: the SDK takes several times as long.
type tracer struct {
	embedded.Tracer
	to   sink
	free []*span // have ended, and are used again
}

var _ trace.Tracer = (*tracer)(nil)

// sink is where spans go that have ended.
type sink interface {
	// take may wait, and keeps nothing of the span.
	take(s *span)
	// close passes on what was taken, as long as ctx lasts.
	close(ctx context.Context) error
	// exported returns how many spans arrived where they were to go, and how many did not. Any goroutine may call it.
	exported() (taken, lost uint64)
}

// span is one that is being made. It belongs to one goroutine, and nobody may touch it after its end.
type span struct {
	noop.Span // answers what nobody asks
	by        *tracer

	name       string
	kind       trace.SpanKind
	context    trace.SpanContext
	parent     trace.SpanContext
	began      time.Time
	ended      time.Time
	attributes []attribute.KeyValue
	links      []trace.Link
	events     []event
	failure    string // why it is an error; "" = it is not
}

// event is something that happened during a span.
type event struct {
	name       string
	at         time.Time
	attributes []attribute.KeyValue
}

// Start implements [trace.Tracer].
func (t *tracer) Start(ctx context.Context, name string, opts ...trace.SpanStartOption) (context.Context, trace.Span) {
	o := trace.NewSpanStartConfig(opts...)
	s := t.blank()
	s.name, s.kind, s.parent, s.began = name, o.SpanKind(), trace.SpanContextFromContext(ctx), o.Timestamp()
	s.attributes, s.links = append(s.attributes, o.Attributes()...), append(s.links, o.Links()...)
	s.context = identify(ctx, s.parent)
	return trace.ContextWithSpan(ctx, s), s
}

// blank returns a span of which nothing is known.
func (t *tracer) blank() *span {
	n := len(t.free)
	if n == 0 {
		return &span{by: t}
	}
	s := t.free[n-1]
	t.free = t.free[:n-1]
	*s = span{by: t, attributes: s.attributes[:0], links: s.links[:0], events: s.events[:0]}
	return s
}

// identify makes up the identity of a span: that which a message carries already, or a random one in its parent's trace or a
// new one.
func identify(ctx context.Context, parent trace.SpanContext) trace.SpanContext {
	t, s, known := core.IDs(ctx)
	if !known {
		t, s = parent.TraceID(), trace.SpanID{}
	}
	for !t.IsValid() {
		binary.BigEndian.PutUint64(t[:8], rand.Uint64())
		binary.BigEndian.PutUint64(t[8:], rand.Uint64())
	}
	for !s.IsValid() {
		binary.BigEndian.PutUint64(s[:], rand.Uint64())
	}
	return trace.NewSpanContext(trace.SpanContextConfig{
		TraceID: t, SpanID: s, TraceFlags: parent.TraceFlags() | trace.FlagsSampled, TraceState: parent.TraceState(),
	})
}

// SpanContext implements [trace.Span].
func (s *span) SpanContext() trace.SpanContext { return s.context }

// IsRecording implements [trace.Span].
func (s *span) IsRecording() bool { return true }

// SetAttributes implements [trace.Span]. Each is set once.
func (s *span) SetAttributes(as ...attribute.KeyValue) { s.attributes = append(s.attributes, as...) }

// AddLink implements [trace.Span].
func (s *span) AddLink(l trace.Link) { s.links = append(s.links, l) }

// AddEvent implements [trace.Span].
func (s *span) AddEvent(name string, opts ...trace.EventOption) {
	o := trace.NewEventConfig(opts...)
	s.events = append(s.events, event{name, o.Timestamp(), o.Attributes()})
}

// SetStatus implements [trace.Span].
func (s *span) SetStatus(code codes.Code, description string) {
	if code == codes.Error {
		s.failure = description
	}
}

// End implements [trace.Span].
func (s *span) End(opts ...trace.SpanEndOption) {
	o := trace.NewSpanEndConfig(opts...)
	s.ended = o.Timestamp()
	s.by.to.take(s)
	s.by.free = append(s.by.free, s)
}
