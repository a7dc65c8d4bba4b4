package telemetry

import (
	"encoding/binary"
	"math"
	"math/rand/v2"
	"sync"

	"go.opentelemetry.io/otel/trace"

	"github.com/curfewmq/curfew/core/amqp"
)

// SkipCount returns how many messages without a context to skip before the next sampled one. The distribution equals that of
// calling [Spans.SampleRoot] for each of them, but a caller that counts down pays only for the sampled ones.
func (s *Spans) SkipCount() int {
	switch r := s.sampling.Ratio; {
	case r >= 1:
		return 0
	case r <= 0:
		return math.MaxInt
	default: // geometrically distributed
		return int(min(math.Log(1-rand.Float64())/s.logUnsampled, math.MaxInt32))
	}
}

// Inject returns props, whose index is x, with a new context in the headers. [Spans.Published] makes the span of that context if
// [Message.Injected] is set. skip is the [Spans.SkipCount] for the messages after this one.
func (s *Spans) Inject(props []byte, x amqp.PropIndex) (injected []byte, skip int) {
	headers := x.Headers(props)
	if hasHeader(headers, parentHeader) || hasHeader(headers, stateHeader) {
		props = amqp.RewriteProps(nil, props, x, amqp.PropEdit{Headers: withoutContext(headers)})
		x, _ = amqp.ScanProps(props) // it is valid, because the broker wrote it
	}
	c, buf := s.roots.take(s, len(props)+amqp.MaxHeaderGrowth+contextField)
	return amqp.AppendHeader(buf, props, x, c.field[:]), c.skip
}

// rootContexts prepares contexts for messages without one, many at a time: between other messages the code is not in the
// processor's caches, and loading it takes longer than running it.
type rootContexts struct {
	mu       sync.Mutex
	prepared [32]rootContext
	left     int    // unused contexts in prepared
	arena    []byte // memory for injected properties
}

type rootContext struct {
	field [contextField]byte // a context as a table field
	skip  int
}

// A field consists of the key's size, the key, the type, the text's size and the text.
const (
	contextHead  = string(byte(len(parentHeader))) + parentHeader + "S\x00\x00\x00" + string(byte(parentSize))
	contextAt    = len(contextHead)
	contextField = contextAt + parentSize
)

// take returns a context, and an empty buffer with the capacity size.
func (r *rootContexts) take(s *Spans, size int) (rootContext, []byte) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.left == 0 {
		r.prepare(s)
	}
	r.left--
	return r.prepared[r.left], r.allocate(size)
}

// prepare makes new contexts. The caller holds mu.
func (r *rootContexts) prepare(s *Spans) {
	for i := range r.prepared {
		b := &r.prepared[i]
		c := newContext()
		copy(b.field[:], contextHead)
		c.parent(b.field[contextAt:contextAt])
		b.skip = s.SkipCount()
	}
	r.left = len(r.prepared)
}

// arenaSize is the number of bytes that are allocated at a time for properties. An arena is freed when queues have copied all properties
// in it; large properties are allocated separately.
const arenaSize = 8 << 10

// allocate returns an empty buffer with the capacity size. The caller holds mu.
func (r *rootContexts) allocate(size int) []byte {
	if size > arenaSize/8 {
		return make([]byte, 0, size)
	}
	if size > len(r.arena) {
		r.arena = make([]byte, arenaSize)
	}
	buf := r.arena[:0:size]
	r.arena = r.arena[size:]
	return buf
}

func hasHeader(headers amqp.RawTable, key string) bool {
	_, ok := headers.LookupRaw(key)
	return ok
}

// withoutContext returns the headers without an invalid context.
func withoutContext(headers amqp.RawTable) amqp.RawTable {
	without := make(amqp.RawTable, 0, len(headers))
	for f := range headers.All() {
		if key := string(f.Key); key != parentHeader && key != stateHeader {
			without = f.Append(without)
		}
	}
	return without
}

// newContext returns a random, sampled context of a new trace.
func newContext() spanContext {
	c := spanContext{flags: trace.FlagsSampled, span: newSpanID()}
	for !c.trace.IsValid() {
		binary.BigEndian.PutUint64(c.trace[:8], rand.Uint64())
		binary.BigEndian.PutUint64(c.trace[8:], rand.Uint64())
	}
	return c
}
