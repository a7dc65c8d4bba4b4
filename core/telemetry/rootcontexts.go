package telemetry

import (
	"encoding/binary"
	"math"
	"math/rand/v2"
	"sync"

	"go.opentelemetry.io/otel/trace"

	"github.com/curfewmq/curfew/core/amqp"
)

// SkipCount returns how many orphans in a row are not to be traced before one that is. Chance decides about each of them by
// itself, as with [Spans.Draw], but whoever counts them down has to ask for those alone that are traced.
func (s *Spans) SkipCount() int {
	switch r := s.sampling.Ratio; {
	case r >= 1:
		return 0
	case r <= 0:
		return math.MaxInt
	default: // how often a coin that shows heads with the chance r shows tails before it does
		return int(min(math.Log(1-rand.Float64())/s.logUnsampled, math.MaxInt32))
	}
}

// Inject returns the properties of an orphan, which x is the index of, with a new context in its headers: that of the span which
// [Spans.Published] makes of a message that is [Message.Adopted]. The gap is the one behind this orphan, see [Spans.Gap].
func (s *Spans) Inject(props []byte, x amqp.PropIndex) (adopted []byte, gap int) {
	headers := x.Headers(props)
	if hasHeader(headers, parentHeader) || hasHeader(headers, stateHeader) {
		props = amqp.RewriteProps(nil, props, x, amqp.PropEdit{Headers: withoutContext(headers)})
		x, _ = amqp.ScanProps(props) // what the broker made cannot be wrong
	}
	b, room := s.roots.take(s, len(props)+amqp.MaxHeaderGrowth+contextField)
	return amqp.AppendHeader(room, props, x, b.field[:]), b.skip
}

// rootContexts is what orphans are given. It is prepared for many at a time: between other messages, the code that makes up a context
// is not in the processor's caches, and takes longer to get there than to run.
type rootContexts struct {
	mu       sync.Mutex
	prepared [32]rootContext
	left     int    // of them
	arena    []byte // for properties
}

type rootContext struct {
	field [contextField]byte // a context as a field of a table
	skip  int
}

// A field's key and its text have their sizes before them, and between them is what kind of field it is.
const (
	contextHead  = string(byte(len(parentHeader))) + parentHeader + "S\x00\x00\x00" + string(byte(parentSize))
	contextAt    = len(contextHead)
	contextField = contextAt + parentSize
)

// take returns a beginning, and room for so many bytes.
func (o *rootContexts) take(s *Spans, size int) (rootContext, []byte) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.left == 0 {
		o.prepare(s)
	}
	o.left--
	return o.prepared[o.left], o.allocate(size)
}

// prepare fills the beginnings. The caller holds mu.
func (o *rootContexts) prepare(s *Spans) {
	for i := range o.prepared {
		b := &o.prepared[i]
		c := newContext()
		copy(b.field[:], contextHead)
		c.parent(b.field[contextAt:contextAt])
		b.skip = s.SkipCount()
	}
	o.left = len(o.prepared)
}

// arenaSize is how many bytes are got at a time for properties. They stay until the last of these is in its queues, which copy it; large
// properties have memory of their own.
const arenaSize = 8 << 10

// allocate returns room for so many bytes. The caller holds mu.
func (o *rootContexts) allocate(size int) []byte {
	if size > arenaSize/8 {
		return make([]byte, 0, size)
	}
	if size > len(o.arena) {
		o.arena = make([]byte, arenaSize)
	}
	room := o.arena[:0:size]
	o.arena = o.arena[size:]
	return room
}

func hasHeader(headers amqp.RawTable, key string) bool {
	_, ok := headers.LookupRaw(key)
	return ok
}

// withoutContext returns headers without what stands where the context does, and is not one.
func withoutContext(headers amqp.RawTable) amqp.RawTable {
	without := make(amqp.RawTable, 0, len(headers))
	for f := range headers.All() {
		if key := string(f.Key); key != parentHeader && key != stateHeader {
			without = f.Append(without)
		}
	}
	return without
}

// newContext makes up the context of a trace that begins.
func newContext() spanContext {
	c := spanContext{flags: trace.FlagsSampled, span: newSpanID()}
	for !c.trace.IsValid() {
		binary.BigEndian.PutUint64(c.trace[:8], rand.Uint64())
		binary.BigEndian.PutUint64(c.trace[8:], rand.Uint64())
	}
	return c
}
