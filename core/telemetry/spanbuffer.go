package telemetry

import (
	"encoding/binary"
	"sync"

	"go.opentelemetry.io/otel/trace"

	"github.com/curfewmq/curfew/core/amqp"
	"github.com/curfewmq/curfew/sdk/hook"
)

// spanBuffer are what is told of messages that were published and delivered, copied one behind the other, until somebody makes spans
// of them. To make a span now and then, between messages, takes several times as long as to make many in a row: neither the
// code nor what it works on is in the processor's caches.
type spanBuffer struct {
	maxSpans   int    // that may wait
	flushEvery int    // when there are so many or someNotes, or twice as much and so on, somebody is told
	flushDue   func() // must not wait

	mu    sync.Mutex // guards what follows
	buf   []byte
	count int
	spare []byte // memory for the next ones

	templates templateCache // belongs to whoever flushes
}

// The limits of notes.
const (
	maxBufferedProps = 4 << 10            // of properties, bytes: spans of messages with more are made at once
	maxBufferBytes   = 4 << 20            // bytes that may wait
	flushBytes       = maxBufferBytes / 4 // bytes after which somebody is told
)

// bufferedSpan is one of them: what tells it from others of its kind, and the kind itself.
type bufferedSpan struct {
	now, enqueued hook.Instant
	size          uint32
	props         []byte
	key           []byte
}

// A note begins with its numbers and the sizes of its parts. Names are short, and properties are at most maxNote.
const (
	propsSizeAt = 8 + 8 + 4
	keySizeAt   = propsSizeAt + 2
	propsAt     = keySizeAt + 2
)

// add adds a note about a message. It reports whether there is room for it.
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
	b = append(b, 0, 0) // for the scene's size
	b = append(b, m.Props...)
	scene := len(b)
	b = c.append(b)
	le.PutUint16(b[at+keySizeAt:], uint16(len(b)-scene))
	n.buf = b
	if n.count++; n.count%n.flushEvery == 0 || len(b)/flushBytes > at/flushBytes {
		n.flushDue()
	}
	return true
}

// take returns all notes and leaves none. give gives their memory back.
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

// decode takes the first of some notes apart and returns the others.
func (e *bufferedSpan) decode(b []byte) (rest []byte) {
	le := binary.LittleEndian
	e.now, e.enqueued, e.size = hook.Instant(le.Uint64(b)), hook.Instant(le.Uint64(b[8:])), le.Uint32(b[16:])
	props := propsAt + int(le.Uint16(b[propsSizeAt:]))
	scene := props + int(le.Uint16(b[keySizeAt:]))
	e.props, e.key = b[propsAt:props], b[props:scene]
	return b[scene:]
}

// templatePool are shapes of spans that are made at once, one by one.
var templatePool = sync.Pool{New: func() any { return new(SpanTemplate) }}

// record notes what is told of a message. What is not noted is a span at once.
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

// Flush makes spans of what was told and is only noted so far. It is called by one goroutine at a time.
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

// finish makes the span of what was noted.
func (s *Spans) finish(e *bufferedSpan, of *SpanTemplate) {
	about := parseProps(e.props)
	p := s.begin(&about)
	if of.injected { // the message's context is of this very span
		p.ID, p.Parent, p.Remote, p.Link, p.LinkFlags = about.context.span, trace.SpanID{}, false, trace.SpanID{}, 0
	}
	p.Name, p.Kind, p.Template = of.Name, of.Kind, of
	p.add(bodySizeKey.Int(int(e.size)))
	p.addText(messageIDKey, about.id)
	p.addText(conversationKey, about.conversation)
	s.end(p, since(e.enqueued, e.now), e.now)
}
