package telemetry

import (
	"encoding/binary"
	"sync"

	"github.com/curfewmq/curfew/core/amqp"
	"github.com/curfewmq/curfew/sdk/hook"
)

// notes are what is told of messages that were published and delivered, copied one behind the other, until somebody makes spans
// of them. To make a span now and then, between messages, takes several times as long as to make many in a row: neither the
// code nor what it works on is in the processor's caches.
type notes struct {
	most int    // that may wait
	many int    // when there are so many, or twice as many and so on, somebody is told
	tell func() // must not wait

	mu    sync.Mutex // guards what follows
	buf   []byte
	count int
	spare []byte // memory for the next ones
}

// The limits of notes.
const (
	maxNote  = 4 << 10 // of properties, bytes: spans of messages with more are made at once
	maxNotes = 4 << 20 // bytes that may wait
)

// note is one of them. Its slices are parts of the notes.
type note struct {
	kind          noteKind
	adopted       bool // of a publish
	redelivered   bool // of a delivery
	now, enqueued hook.Instant
	size, queues  uint32

	vhost, exchange, key, props, queue, connection, tag []byte
}

type noteKind uint8

const (
	ofPublish noteKind = iota
	ofDelivery
)

const (
	noteHeader = 1 + 1 + 8 + 8 + 4 + 4
	noteParts  = 7

	adoptedNote     = 1
	redeliveredNote = 2
)

// add adds a note. It reports whether there is room for it.
func (n *notes) add(e *note) bool {
	parts := [noteParts][]byte{e.vhost, e.exchange, e.key, e.props, e.queue, e.connection, e.tag}
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.count >= n.most || len(n.buf) > maxNotes {
		return false
	}
	var flags byte
	if e.adopted {
		flags |= adoptedNote
	}
	if e.redelivered {
		flags |= redeliveredNote
	}
	le := binary.LittleEndian
	b := append(n.buf, byte(e.kind), flags)
	b = le.AppendUint64(b, uint64(e.now))
	b = le.AppendUint64(b, uint64(e.enqueued))
	b = le.AppendUint32(b, e.size)
	b = le.AppendUint32(b, e.queues)
	for i := range parts {
		b = le.AppendUint16(b, uint16(len(parts[i]))) // names are short, and properties are at most maxNote
	}
	for i := range parts {
		b = append(b, parts[i]...)
	}
	n.buf = b
	if n.count++; n.count%n.many == 0 {
		n.tell()
	}
	return true
}

// take returns all notes and leaves none. give gives their memory back.
func (n *notes) take() []byte {
	n.mu.Lock()
	defer n.mu.Unlock()
	all := n.buf
	n.buf, n.spare, n.count = n.spare[:0], nil, 0
	return all
}

func (n *notes) give(b []byte) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.spare = b[:0]
}

// next takes the first of some notes apart and returns the others.
func (e *note) next(b []byte) (rest []byte) {
	le := binary.LittleEndian
	*e = note{
		kind: noteKind(b[0]), adopted: b[1]&adoptedNote != 0, redelivered: b[1]&redeliveredNote != 0,
		now: hook.Instant(le.Uint64(b[2:])), enqueued: hook.Instant(le.Uint64(b[10:])), size: le.Uint32(b[18:]), queues: le.Uint32(b[22:]),
	}
	sizes, b := b[noteHeader:], b[noteHeader+2*noteParts:]
	for i, part := range [noteParts]*[]byte{&e.vhost, &e.exchange, &e.key, &e.props, &e.queue, &e.connection, &e.tag} {
		n := le.Uint16(sizes[2*i:])
		*part, b = b[:n], b[n:]
	}
	return b
}

// note notes what is told of a message, if it is to be noted, and reports whether that is done with.
func (s *Spans) note(e *note, m *Message) bool {
	if s.notes == nil || len(m.Props) > maxNote {
		return false
	}
	e.vhost, e.exchange, e.key, e.props, e.size, e.adopted = amqp.BytesOf(m.VHost), m.Exchange, m.Key, m.Props, uint32(m.Size), m.Adopted
	if !s.notes.add(e) {
		s.made.Add(1)
		s.dropped.Add(1)
	}
	return true
}

// Flush makes spans of what was told and is only noted so far. It is called by one goroutine at a time.
func (s *Spans) Flush() {
	if s.notes == nil {
		return
	}
	all := s.notes.take()
	var e note
	for rest := all; len(rest) > 0; {
		rest = e.next(rest)
		m := Message{
			VHost: stringOf(e.vhost), Exchange: e.exchange, Key: e.key, Props: e.props, Size: int(e.size), Adopted: e.adopted,
		}
		switch e.kind {
		case ofPublish:
			s.published(&m, e.now, stringOf(e.connection), int(e.queues))
		case ofDelivery:
			s.delivered(&m, stringOf(e.queue), e.enqueued, e.now, stringOf(e.connection), stringOf(e.tag), e.redelivered)
		}
	}
	s.notes.give(all)
}
