package telemetry

import (
	"encoding/binary"
	"encoding/hex"
	"math"
	"math/rand/v2"
	"sync"

	"go.opentelemetry.io/otel/trace"

	"github.com/curfewmq/curfew/core/amqp"
)

// The headers of a context, as written by OpenTelemetry's propagators for AMQP.
const (
	parentHeader = "traceparent"
	stateHeader  = "tracestate"
)

// spanContext is a decoded traceparent. The zero value is none.
type spanContext struct {
	trace trace.TraceID
	span  trace.SpanID
	flags trace.TraceFlags
}

func (c *spanContext) valid() bool { return c.trace.IsValid() && c.span.IsValid() }

// contextOf returns the context in a message's headers, the zero value if it is absent or invalid. It does not allocate.
func contextOf(headers amqp.RawTable) spanContext {
	f, ok := headers.LookupRaw(parentHeader)
	if !ok {
		return spanContext{}
	}
	text, ok := f.Text()
	if !ok {
		return spanContext{}
	}
	return parseParent(text)
}

// The layout of traceparent [W3C Trace Context 3.2]:
//
//	00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01
//	|  |                                |                flags
//	|  |                                span
//	|  trace
//	version
const (
	parentTrace = 3
	parentSpan  = parentTrace + 2*16 + 1
	parentFlags = parentSpan + 2*8 + 1
	parentSize  = parentFlags + 2
	badVersion  = 0xff
)

// parseParent parses traceparent. Later versions are read like version 0, and may have more text after a dash
// [W3C Trace Context 3.2.4].
func parseParent(s []byte) spanContext {
	var version, flags [1]byte
	var c spanContext
	if len(s) < parentSize || !unhex(version[:], s[:2]) || version[0] == badVersion {
		return spanContext{}
	}
	if len(s) > parentSize && (version[0] == 0 || s[parentSize] != '-') {
		return spanContext{}
	}
	if s[parentTrace-1] != '-' || s[parentSpan-1] != '-' || s[parentFlags-1] != '-' {
		return spanContext{}
	}
	if !unhex(c.trace[:], s[parentTrace:]) || !unhex(c.span[:], s[parentSpan:]) || !unhex(flags[:], s[parentFlags:]) {
		return spanContext{}
	}
	if !c.valid() {
		return spanContext{}
	}
	c.flags = trace.TraceFlags(flags[0]) & trace.FlagsSampled // the other bits are reserved
	return c
}

// unhex fills dst from the digits at the beginning of s. Upper-case letters are not accepted [W3C Trace Context 3.2.2].
func unhex(dst, s []byte) bool {
	s = s[:2*len(dst)]
	for i := range dst {
		high, low := digits[s[2*i]], digits[s[2*i+1]]
		if high == 0 || low == 0 {
			return false
		}
		dst[i] = (high-1)<<4 | (low - 1)
	}
	return true
}

// digits maps hexadecimal digits to their values plus 1. It is a table because the context of every message is decoded.
var digits = [256]byte{
	'0': 1, '1': 2, '2': 3, '3': 4, '4': 5, '5': 6, '6': 7, '7': 8, '8': 9, '9': 10,
	'a': 11, 'b': 12, 'c': 13, 'd': 14, 'e': 15, 'f': 16,
}

func newSpanID() (id trace.SpanID) {
	for !id.IsValid() {
		binary.BigEndian.PutUint64(id[:], rand.Uint64())
	}
	return id
}

// parent appends the context in the form of traceparent.
func (c *spanContext) parent(dst []byte) []byte {
	dst = append(dst, "00-"...)
	dst = append(hex.AppendEncode(dst, c.trace[:]), '-')
	dst = append(hex.AppendEncode(dst, c.span[:]), '-')
	return hex.AppendEncode(dst, []byte{byte(c.flags)})
}

// maxState is the longest tracestate that spans adopt, in bytes; a longer one only stays in the message
// [W3C Trace Context 3.3.1.5].
const maxState = 512

// stateOf returns the tracestate in a message's headers, unchecked.
func stateOf(headers amqp.RawTable) []byte {
	f, _ := headers.LookupRaw(stateHeader)
	text, ok := f.Text()
	if !ok || len(text) > maxState {
		return nil
	}
	return text
}

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
