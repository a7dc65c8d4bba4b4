package telemetry

import (
	"encoding/binary"
	"math"
	"math/rand/v2"
	"sync/atomic"

	"github.com/curfewmq/curfew/core/amqp"
	"github.com/curfewmq/curfew/sdk/hook"
)

// Spans makes spans about traced messages. Any goroutine may use it.
//
// Removals and decisions become spans at once, in the queue's turn, and go to a [Sink] that does not block. Publishes and
// deliveries are more frequent. They are buffered if [SpanOptions.FlushDue] is set, because many spans in a row cost less. The zero value has no
// sink.
type Spans struct {
	sink         Sink
	clock        func() hook.Instant
	sampling     Sampling
	threshold    uint64  // 63-bit random numbers below it are sampled
	logUnsampled float64 // log(1 - sampling.Ratio)
	always       bool    // see SpanOptions.AlwaysExpiries

	roots  rootContexts
	buffer *spanBuffer // nil: publishes and deliveries become spans at once

	made, dropped atomic.Uint64
}

// SpanOptions configure Spans.
type SpanOptions struct {
	Sink           Sink
	Clock          func() hook.Instant // nil: publishes and deliveries have no time
	Sampling       Sampling
	AlwaysExpiries bool // expiries of unsampled messages have spans, too

	// FlushDue is called after each FlushEvery buffered publishes and deliveries, and after each MiB of them, so that the caller
	// arranges for [Spans.Flush]. It must not block. At most MaxBuffered of them and 4 MiB are buffered; further ones are
	// dropped. nil means that there is no buffer.
	FlushDue                func()
	MaxBuffered, FlushEvery int
}

// Sampling decides which messages are traced.
type Sampling struct {
	Ratio float64 // fraction of the messages without a context, 0 to 1
	// ByRatio means that messages with a context are sampled by their trace ID, and the context's sampled flag is ignored.
	ByRatio bool
}

// NewSpans returns Spans with these options.
func NewSpans(o SpanOptions) *Spans {
	s := &Spans{
		sink: o.Sink, clock: o.Clock, sampling: o.Sampling, always: o.AlwaysExpiries,
		threshold: uint64(o.Sampling.Ratio * (1 << 63)), logUnsampled: math.Log1p(-o.Sampling.Ratio),
	}
	if o.FlushDue != nil {
		s.buffer = &spanBuffer{maxSpans: o.MaxBuffered, flushEvery: o.FlushEvery, flushDue: o.FlushDue, templates: newTemplateCache()}
	}
	return s
}

// Made returns the number of spans made.
func (s *Spans) Made() uint64 { return s.made.Load() }

// Dropped returns how many spans were dropped, by the sink or for lack of buffer space.
func (s *Spans) Dropped() uint64 { return s.dropped.Load() }

// ParentSampling is the sampling decision in a message's headers.
type ParentSampling uint8

// The decisions.
const (
	ParentNotSampled ParentSampling = iota // the message has a context and is not traced
	ParentSampled                          // the message has a context and is traced
	NoParent                               // the message has no context; see [Spans.SampleRoot]
)

// ParentSamplingOf returns the decision in these headers; nil means no headers. It does not allocate. The result may
// be cached for equal headers.
func (s *Spans) ParentSamplingOf(headers amqp.RawTable) ParentSampling {
	c := contextOf(headers)
	switch {
	case !c.valid():
		return NoParent
	case s.sampling.ByRatio && s.sampled(binary.BigEndian.Uint64(c.trace[8:])):
		return ParentSampled
	case !s.sampling.ByRatio && c.flags.IsSampled():
		return ParentSampled
	}
	return ParentNotSampled
}

// SampleRoot decides by chance whether to trace a message without a context.
func (s *Spans) SampleRoot() bool { return s.threshold > 0 && s.sampled(rand.Uint64()) }

// sampled decides by a random number, as OpenTelemetry's TraceIDRatioBased sampler does by the second half of a trace ID.
func (s *Spans) sampled(random uint64) bool { return random>>1 < s.threshold }

// Message is a traced message. The slices are valid during the call.
type Message struct {
	VHost                string
	Exchange, Key, Props []byte
	Size                 int  // of the body, bytes
	Injected             bool // its context was made by [Spans.Inject]; only for [Spans.Published]
}
