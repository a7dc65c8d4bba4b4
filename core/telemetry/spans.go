package telemetry

import (
	"encoding/binary"
	"math"
	"math/rand/v2"
	"sync/atomic"

	"github.com/curfewmq/curfew/core/amqp"
	"github.com/curfewmq/curfew/sdk/hook"
)

// Spans makes spans of what the broker does with messages that are traced. Any goroutine may use it.
//
// What leaves a queue, and decisions, become spans where that happens, on the turn of a queue, and are handed to a [Sink] that
// waits for nobody. What is published and delivered is noted, if somebody flushes the notes, and becomes spans then: there is
// much more of it, and many in a row cost less. The zero value has no sink.
type Spans struct {
	sink         Sink
	clock        func() hook.Instant
	sampling     Sampling
	threshold    uint64  // of numbers of 63 bits that are chosen
	logUnsampled float64 // log(1 - sampling.Ratio)
	always       bool    // expiries of messages that are not traced have spans, too

	roots  rootContexts
	buffer *spanBuffer // nil: spans of messages that are published and delivered are made at once

	made, dropped atomic.Uint64
}

// SpanOptions are what Spans are made with.
type SpanOptions struct {
	Sink           Sink
	Clock          func() hook.Instant // nil: spans have no time of their own
	Sampling       Sampling
	AlwaysExpiries bool // expiries of messages that are not traced have spans, too

	// FlushDue, if there is one, is called whenever Enough publishes and deliveries more are noted, or 1 MiB more of them, for
	// [Spans.Flush] to make spans of them. It must not wait. Up to Notes of them wait, and 4 MiB; what is beyond is dropped.
	FlushDue                func()
	MaxBuffered, FlushEvery int
}

// Sampling says which messages are traced.
type Sampling struct {
	Ratio float64 // of those without a context, 0 to 1
	// ByRatio decides about messages with a context by their trace's number, too, whatever the context says.
	ByRatio bool
}

// NewSpans returns Spans.
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

// Made returns how many spans were made.
func (s *Spans) Made() uint64 { return s.made.Load() }

// Dropped returns how many of them the sink had no room for.
func (s *Spans) Dropped() uint64 { return s.dropped.Load() }

// ParentSampling is what a message's headers say about its being traced.
type ParentSampling uint8

// The standings.
const (
	ParentNotSampled ParentSampling = iota // it has a context, and is not to be traced
	ParentSampled                          // it has a context, and is to be traced
	NoParent                               // it has no context: chance decides, see [Spans.Gap]
)

// ParentSamplingOf says how a message with these headers (nil: it has none) stands. It allocates nothing, and may be remembered for
// messages with the same headers.
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

// SampleRoot reports whether an orphan is to be traced. It is cheap.
func (s *Spans) SampleRoot() bool { return s.threshold > 0 && s.sampled(rand.Uint64()) }

// sampled decides about a random number, as OpenTelemetry's samplers by ratio do about the last half of a trace's.
func (s *Spans) sampled(random uint64) bool { return random>>1 < s.threshold }

// Message is one that is traced, as a session or a queue sees it. The slices are valid during the call.
type Message struct {
	VHost                string
	Exchange, Key, Props []byte
	Size                 int  // of the body, bytes
	Injected             bool // its context is of [Spans.Adopt]; for [Spans.Published] alone
}
