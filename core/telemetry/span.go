package telemetry

import (
	"encoding/binary"
	"strings"
	"sync"
	"unsafe"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"

	"github.com/curfewmq/curfew/core/amqp"
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

// spanBuffer holds copies of publishes and deliveries, one after the other, until [Spans.Flush] makes spans of them. Making
// a single span between messages takes several times as long as making many in a row, because in between neither the code nor its data
// are in the processor's caches.
type spanBuffer struct {
	maxSpans   int
	flushEvery int    // flushDue is called after this many spans and after each flushBytes
	flushDue   func() // must not block

	mu    sync.Mutex // guards the fields below
	buf   []byte
	count int
	spare []byte // memory for the next buf

	templates templateCache // for the goroutine that flushes
}

// Limits of the buffer, in bytes.
const (
	maxBufferedProps = 4 << 10 // a message with longer properties becomes a span at once
	maxBufferBytes   = 4 << 20
	flushBytes       = maxBufferBytes / 4
)

// bufferedSpan is a publish or a delivery in the buffer. key is its encoded templateKey.
type bufferedSpan struct {
	now, enqueued hook.Instant
	size          uint32
	props         []byte
	key           []byte
}

// The encoding of a buffered span: its numbers, the sizes of props and key, props, key. Props have at most maxBufferedProps bytes,
// and keys consist of short names, so 16 bits are enough for both sizes.
const (
	propsSizeAt = 8 + 8 + 4
	keySizeAt   = propsSizeAt + 2
	propsAt     = keySizeAt + 2
)

// add encodes a publish or delivery. It returns false if the buffer is full.
func (n *spanBuffer) add(now, enqueued hook.Instant, m *Message, c *templateKey) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.count >= n.maxSpans || len(n.buf) > maxBufferBytes {
		return false
	}
	le := binary.LittleEndian
	b, at := n.buf, len(n.buf)
	b = le.AppendUint64(b, uint64(now))
	b = le.AppendUint64(b, uint64(enqueued))
	b = le.AppendUint32(b, uint32(m.Size))
	b = le.AppendUint16(b, uint16(len(m.Props)))
	b = append(b, 0, 0) // for the key's size
	b = append(b, m.Props...)
	key := len(b)
	b = c.append(b)
	le.PutUint16(b[at+keySizeAt:], uint16(len(b)-key))
	n.buf = b
	if n.count++; n.count%n.flushEvery == 0 || len(b)/flushBytes > at/flushBytes {
		n.flushDue()
	}
	return true
}

// take empties the buffer and returns its content; the caller returns the memory with recycle.
func (n *spanBuffer) take() []byte {
	n.mu.Lock()
	defer n.mu.Unlock()
	all := n.buf
	n.buf, n.spare, n.count = n.spare[:0], nil, 0
	return all
}

func (n *spanBuffer) recycle(b []byte) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.spare = b[:0]
}

// decode reads the first encoded span and returns the others.
func (e *bufferedSpan) decode(b []byte) (rest []byte) {
	le := binary.LittleEndian
	e.now, e.enqueued, e.size = hook.Instant(le.Uint64(b)), hook.Instant(le.Uint64(b[8:])), le.Uint32(b[16:])
	props := propsAt + int(le.Uint16(b[propsSizeAt:]))
	key := props + int(le.Uint16(b[keySizeAt:]))
	e.props, e.key = b[propsAt:props], b[props:key]
	return b[key:]
}

// templatePool has templates for spans that are made at once.
var templatePool = sync.Pool{New: func() any { return new(SpanTemplate) }}

// record buffers a publish or delivery. If there is no buffer, or the properties are too long, it makes the span at once.
func (s *Spans) record(now, enqueued hook.Instant, m *Message, c *templateKey) {
	c.vhost, c.exchange, c.key = amqp.BytesOf(m.VHost), m.Exchange, m.Key
	switch {
	case s.buffer == nil || len(m.Props) > maxBufferedProps:
		of := templatePool.Get().(*SpanTemplate)
		of.key = c.append(of.key[:0])
		of.make()
		s.finish(&bufferedSpan{now: now, enqueued: enqueued, size: uint32(m.Size), props: m.Props}, of)
		templatePool.Put(of)
	case !s.buffer.add(now, enqueued, m, c):
		s.made.Add(1)
		s.dropped.Add(1)
	}
}

// Flush makes spans of the buffered publishes and deliveries. Only one goroutine at a time may call it.
func (s *Spans) Flush() {
	if s.buffer == nil {
		return
	}
	all := s.buffer.take()
	var e bufferedSpan
	for rest := all; len(rest) > 0; {
		rest = e.decode(rest)
		s.finish(&e, s.buffer.templates.get(e.key))
	}
	s.buffer.recycle(all)
}

// finish makes the span of a publish or delivery.
func (s *Spans) finish(e *bufferedSpan, of *SpanTemplate) {
	about := parseProps(e.props)
	p := s.begin(&about)
	if of.injected { // the message's context names this span
		p.ID, p.Parent, p.Remote = about.context.span, trace.SpanID{}, false
	}
	p.Name, p.Kind, p.Template = of.Name, of.Kind, of
	p.add(bodySizeKey.Int(int(e.size)))
	p.addText(messageIDKey, about.id)
	p.addText(conversationKey, about.conversation)
	s.end(p, since(e.enqueued, e.now), e.now)
}
