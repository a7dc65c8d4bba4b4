package telemetry

import (
	"strings"
	"sync"
	"unsafe"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"

	"github.com/curfewmq/curfew/sdk/hook"
)

// Span is one that has ended. It is valid, with everything that it refers to, during the call that it comes with.
type Span struct {
	Name       string
	Kind       trace.SpanKind
	Trace      trace.TraceID
	ID         trace.SpanID
	Parent     trace.SpanID // zero: it begins the trace
	Remote     bool         // the parent is of another process
	Link       trace.SpanID // of the same trace and another process: what brought the message; zero: none
	LinkFlags  trace.TraceFlags
	State      string // tracestate; "" = none
	Began      hook.Instant
	Ended      hook.Instant
	Template   *SpanTemplate // what it has in common with others, attributes among it; nil: nothing
	Attributes []attribute.KeyValue
	Events     []SpanEvent
	Failure    string // why it is an error; "" = it is not

	name, destination []byte // where texts of it are
}

// SpanEvent is what OpenTelemetry calls an event: something that happened during a span.
type SpanEvent struct {
	Name       string
	At         hook.Instant
	Attributes []attribute.KeyValue
}

// Sink takes spans that have ended.
type Sink interface {
	// Take takes a span, of which it keeps nothing, and reports false if there is no room for it. It is called from any
	// goroutine and must not wait.
	Take(s *Span) bool
}

var spanPool = sync.Pool{New: func() any { return new(Span) }}

// begin returns a span about a message, a child of what brought it if that is known.
func (s *Spans) begin(m *tracedProps) *Span {
	p := spanPool.Get().(*Span)
	*p = Span{Attributes: p.Attributes[:0], Events: p.Events[:0], name: p.name[:0], destination: p.destination[:0]}
	if m == nil || !m.context.valid() {
		p.Trace = newContext().trace
	} else {
		p.Trace, p.Parent, p.Remote, p.State = m.context.trace, m.context.span, true, validState(m.state)
		p.Link, p.LinkFlags = m.context.span, m.context.flags
	}
	p.ID = newSpanID()
	return p
}

// open begins a span of what the broker does itself.
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

// appendName appends the name of spans.
func appendName(dst []byte, operation, of string) []byte {
	dst = append(dst, operation...)
	if of != "" {
		dst = append(append(dst, ' '), of...)
	}
	return dst
}

// end hands a span over, which must not be used any more.
func (s *Spans) end(p *Span, began, ended hook.Instant) {
	p.Began, p.Ended = began, ended
	s.made.Add(1)
	if s.sink == nil || !s.sink.Take(p) {
		s.dropped.Add(1)
	}
	clear(p.Attributes) // they refer to the message's memory, which may be anything soon
	clear(p.Events)
	spanPool.Put(p)
}

// addEvent adds what happened during a span.
func (p *Span) addEvent(name string, at hook.Instant, as ...attribute.KeyValue) {
	p.Events = append(p.Events, SpanEvent{name, at, as})
}

// add adds an attribute, and tellText one that is a text, unless it is empty.
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

// stringOf is b as a string, for as long as b stays as it is.
func stringOf(b []byte) string { return unsafe.String(unsafe.SliceData(b), len(b)) }

// validState is a tracestate if it is one.
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
