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
	most int    // that may wait
	many int    // when there are so many or someNotes, or twice as much and so on, somebody is told
	tell func() // must not wait

	mu    sync.Mutex // guards what follows
	buf   []byte
	count int
	spare []byte // memory for the next ones

	shapes shapes // belongs to whoever flushes
}

// The limits of notes.
const (
	maxNote   = 4 << 10      // of properties, bytes: spans of messages with more are made at once
	maxNotes  = 4 << 20      // bytes that may wait
	someNotes = maxNotes / 4 // bytes after which somebody is told
)

// bufferedSpan is one of them: what tells it from others of its kind, and the kind itself.
type bufferedSpan struct {
	now, enqueued hook.Instant
	size          uint32
	props         []byte
	scene         []byte
}

// A note begins with its numbers and the sizes of its parts. Names are short, and properties are at most maxNote.
const (
	noteSize  = 8 + 8 + 4
	noteProps = noteSize + 2
	noteScene = noteProps + 2
)

// add adds a note about a message. It reports whether there is room for it.
func (n *spanBuffer) add(now, enqueued hook.Instant, m *Message, c *templateKey) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.count >= n.most || len(n.buf) > maxNotes {
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
	le.PutUint16(b[at+noteProps:], uint16(len(b)-scene))
	n.buf = b
	if n.count++; n.count%n.many == 0 || len(b)/someNotes > at/someNotes {
		n.tell()
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

func (n *spanBuffer) give(b []byte) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.spare = b[:0]
}

// next takes the first of some notes apart and returns the others.
func (e *bufferedSpan) next(b []byte) (rest []byte) {
	le := binary.LittleEndian
	e.now, e.enqueued, e.size = hook.Instant(le.Uint64(b)), hook.Instant(le.Uint64(b[8:])), le.Uint32(b[16:])
	props := noteScene + int(le.Uint16(b[noteSize:]))
	scene := props + int(le.Uint16(b[noteProps:]))
	e.props, e.scene = b[noteScene:props], b[props:scene]
	return b[scene:]
}

// single are shapes of spans that are made at once, one by one.
var single = sync.Pool{New: func() any { return new(SpanTemplate) }}

// note notes what is told of a message. What is not noted is a span at once.
func (s *Spans) note(now, enqueued hook.Instant, m *Message, c *templateKey) {
	c.vhost, c.exchange, c.key = amqp.BytesOf(m.VHost), m.Exchange, m.Key
	switch {
	case s.notes == nil || len(m.Props) > maxNote:
		of := single.Get().(*SpanTemplate)
		of.scene = c.append(of.scene[:0])
		of.make()
		s.noted(&bufferedSpan{now: now, enqueued: enqueued, size: uint32(m.Size), props: m.Props}, of)
		single.Put(of)
	case !s.notes.add(now, enqueued, m, c):
		s.made.Add(1)
		s.dropped.Add(1)
	}
}

// Flush makes spans of what was told and is only noted so far. It is called by one goroutine at a time.
func (s *Spans) Flush() {
	if s.notes == nil {
		return
	}
	all := s.notes.take()
	var e bufferedSpan
	for rest := all; len(rest) > 0; {
		rest = e.next(rest)
		s.noted(&e, s.notes.shapes.of(e.scene))
	}
	s.notes.give(all)
}

// noted makes the span of what was noted.
func (s *Spans) noted(e *bufferedSpan, of *SpanTemplate) {
	about := tellingOf(e.props)
	p := s.begin(&about)
	if of.adopted { // the message's context is of this very span
		p.ID, p.Parent, p.Remote, p.Link, p.LinkFlags = about.context.span, trace.SpanID{}, false, trace.SpanID{}, 0
	}
	p.Name, p.Kind, p.Shape = of.Name, of.Kind, of
	p.add(bodySizeKey.Int(int(e.size)))
	p.tellText(messageIDKey, about.id)
	p.tellText(conversationKey, about.conversation)
	s.end(p, since(e.enqueued, e.now), e.now)
}
