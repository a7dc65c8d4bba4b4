package telemetry

import (
	"strings"
	"sync"
	"unsafe"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"

	"github.com/curfewmq/curfew/sdk/hook"
)

// Span is a span that has ended. The span and everything it refers to are valid during the sink's call.
type Span struct {
	Name       string
	Kind       trace.SpanKind
	Trace      trace.TraceID
	ID         trace.SpanID
	Parent     trace.SpanID // zero: this span is the root
	Remote     bool         // the parent belongs to another process
	Link       trace.SpanID // the message's own context, in the same trace, if another span is the parent; zero: none
	LinkFlags  trace.TraceFlags
	State      string // tracestate; "" = none
	Began      hook.Instant
	Ended      hook.Instant
	Template   *SpanTemplate // has more attributes, shared with other spans; nil: none
	Attributes []attribute.KeyValue
	Events     []SpanEvent
	Failure    string // the error; "" = none

	name, destination []byte // memory for its texts
}

// SpanEvent is an event during a span.
type SpanEvent struct {
	Name       string
	At         hook.Instant
	Attributes []attribute.KeyValue
}

// Sink takes ended spans.
type Sink interface {
	// Take consumes a span without retaining it, and returns false if the sink is full. Any goroutine may call it; it must not
	// block.
	Take(s *Span) bool
}

var spanPool = sync.Pool{New: func() any { return new(Span) }}

// begin returns a span about a message, as a child of the message's context; nil or an invalid context begins a new trace.
func (s *Spans) begin(m *tracedProps) *Span {
	p := spanPool.Get().(*Span)
	*p = Span{Attributes: p.Attributes[:0], Events: p.Events[:0], name: p.name[:0], destination: p.destination[:0]}
	if m == nil || !m.context.valid() {
		p.Trace = newContext().trace
	} else {
		p.Trace, p.Parent, p.Remote, p.State = m.context.trace, m.context.span, true, validState(m.state)
	}
	p.ID = newSpanID()
	return p
}

// open begins an internal span with a name; m nil means that it is not about a message.
func (s *Spans) open(m *subject, operation, of string) *Span {
	var p *Span
	if m == nil {
		p = s.begin(nil)
	} else {
		p = s.begin(&m.tracedProps)
	}
	p.name = appendName(p.name, operation, of)
	p.Name, p.Kind = valid(stringOf(p.name)), trace.SpanKindInternal
	return p
}

// appendName appends a span's name. Following the conventions, it omits an anonymous destination, which would be different for each
// client.
func appendName(dst []byte, operation, of string) []byte {
	dst = append(dst, operation...)
	if of != "" && !anonymous(of) {
		dst = append(append(dst, ' '), of...)
	}
	return dst
}

// end passes a span to the sink. The span must not be used afterwards.
func (s *Spans) end(p *Span, began, ended hook.Instant) {
	p.Began, p.Ended = began, ended
	s.made.Add(1)
	if s.sink == nil || !s.sink.Take(p) {
		s.dropped.Add(1)
	}
	clear(p.Attributes) // they refer to the message's memory, which is reused
	clear(p.Events)
	spanPool.Put(p)
}

func (p *Span) addEvent(name string, at hook.Instant, as ...attribute.KeyValue) {
	p.Events = append(p.Events, SpanEvent{name, at, as})
}

// fail marks the span as an error. There must be few kinds of errors.
func (p *Span) fail(kind, failure string) {
	p.Failure = valid(failure)
	p.add(errorTypeKey.String(kind))
}

// add adds an attribute; addText adds a text unless it is empty.
func (p *Span) add(a attribute.KeyValue) { p.Attributes = append(p.Attributes, a) }

func (p *Span) addText(k attribute.Key, text string) {
	p.Attributes = appendText(p.Attributes, k, text)
}

func appendText(as []attribute.KeyValue, k attribute.Key, s string) []attribute.KeyValue {
	if s == "" {
		return as
	}
	return append(as, text(k, s))
}

// stringOf returns b as a string, valid until b changes.
func stringOf(b []byte) string { return unsafe.String(unsafe.SliceData(b), len(b)) }

// validState returns a normalised tracestate; "" if it is invalid.
func validState(state string) string {
	if state == "" {
		return ""
	}
	s, err := trace.ParseTraceState(strings.Clone(state))
	if err != nil {
		return ""
	}
	return s.String()
}
