package telemetry

import (
	"context"
	"encoding/binary"
	"math/rand/v2"
	"sync"
	"sync/atomic"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"

	"github.com/curfewmq/curfew/core/amqp"
	"github.com/curfewmq/curfew/sdk/hook"
)

// Spans makes spans of what the broker does with messages that are traced. Any goroutine may use it.
//
// Whoever tells of something waits for nobody: what is told is copied and offered to a channel, and dropped if that is full.
// One goroutine makes spans of it, and may be held up by the tracer for as long as that likes. The zero value drops all.
type Spans struct {
	tracer   trace.Tracer
	clock    func() hook.Instant
	sampling Sampling
	bound    uint64 // of numbers of 63 bits that are chosen
	always   bool   // expiries of messages that are not traced have spans, too

	records       chan record
	many          chan struct{} // half of the channel is full
	rest          func(many <-chan struct{})
	made, dropped atomic.Uint64

	scratch []attribute.KeyValue // of the span that is being made; belongs to the goroutine

	closing   chan struct{} // closed by Close
	closeOnce sync.Once
	ended     chan struct{} // closed when the goroutine has ended
}

// SpanOptions are what Spans are made with.
type SpanOptions struct {
	Tracer         trace.Tracer // it must heed [IDs], and record every span that it is asked for
	Clock          func() hook.Instant
	Buffer         int // how much may wait to be made into spans
	Sampling       Sampling
	AlwaysExpiries bool // expiries of messages that are not traced have spans, too
	// Rest is called when nothing waits to be made into spans. It may return a little later, or when it receives from many:
	// to be woken for each span costs more than to make it. nil returns at once.
	Rest func(many <-chan struct{})
}

// Sampling says which messages are traced.
type Sampling struct {
	Ratio float64 // of those without a context, 0 to 1
	// ByRatio decides about messages with a context by their trace's number, too, whatever the context says.
	ByRatio bool
}

// NewSpans returns Spans, which are to be closed.
func NewSpans(o SpanOptions) *Spans {
	s := &Spans{
		tracer: o.Tracer, clock: o.Clock, sampling: o.Sampling, always: o.AlwaysExpiries,
		bound:   uint64(o.Sampling.Ratio * (1 << 63)),
		records: make(chan record, o.Buffer), many: make(chan struct{}, 1), rest: o.Rest,
		closing: make(chan struct{}), ended: make(chan struct{}),
	}
	if s.rest == nil {
		s.rest = func(<-chan struct{}) {}
	}
	go s.run()
	return s
}

// record is what spans are made of, copied from where it happened.
type record interface{ make(s *Spans) }

// crowded reports whether a record would be dropped, and then counts it as such: copying it can be spared.
func (s *Spans) crowded() bool {
	if len(s.records) < cap(s.records) {
		return false
	}
	s.dropped.Add(1)
	return true
}

// offer hands a record over, or drops it.
func (s *Spans) offer(r record) {
	select {
	case s.records <- r:
	default:
		s.dropped.Add(1)
		return
	}
	if len(s.records) >= cap(s.records)/2 {
		select {
		case s.many <- struct{}{}:
		default:
		}
	}
}

func (s *Spans) run() {
	defer close(s.ended)
	for {
		select {
		case r := <-s.records:
			r.make(s)
			s.drain()
			s.rest(s.many)
		case <-s.closing:
			s.drain()
			return
		}
	}
}

// drain makes spans of what is there.
func (s *Spans) drain() {
	for {
		select {
		case r := <-s.records:
			r.make(s)
		default:
			return
		}
	}
}

// Close waits until everything that was told before is made into spans, or ctx is over. What is told later is dropped.
func (s *Spans) Close(ctx context.Context) error {
	s.closeOnce.Do(func() { close(s.closing) })
	select {
	case <-s.ended:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Made returns how many spans were made.
func (s *Spans) Made() uint64 { return s.made.Load() }

// Dropped returns how many records were dropped because the tracer did not keep up. Most are of one span.
func (s *Spans) Dropped() uint64 { return s.dropped.Load() }

// Standing is what a message's headers say about its being traced.
type Standing uint8

// The standings.
const (
	Untraced Standing = iota // it has a context, and is not to be traced
	Traced                   // it has a context, and is to be traced
	Orphan                   // it has no context: chance decides, see [Spans.Draw]
)

// Judge says how a message with these headers (nil: it has none) stands. It allocates nothing, and may be remembered for
// messages with the same headers.
func (s *Spans) Judge(headers amqp.RawTable) Standing {
	c := contextOf(headers)
	switch {
	case !c.valid():
		return Orphan
	case s.sampling.ByRatio && s.chosen(binary.BigEndian.Uint64(c.trace[8:])):
		return Traced
	case !s.sampling.ByRatio && c.flags.IsSampled():
		return Traced
	}
	return Untraced
}

// Draw reports whether an orphan is to be traced. It is cheap.
func (s *Spans) Draw() bool { return s.bound > 0 && s.chosen(rand.Uint64()) }

// chosen decides about a random number, as OpenTelemetry's samplers by ratio do about the last half of a trace's.
func (s *Spans) chosen(random uint64) bool { return random>>1 < s.bound }

// Adopt returns the properties of an orphan, which were checked, with a new context in its headers: that of the span which
// [Spans.Published] makes of a message that is [Message.Adopted].
func (s *Spans) Adopt(props []byte) []byte {
	x, err := amqp.ScanProps(props)
	if err != nil {
		return props
	}
	c := newContext()
	return amqp.RewriteProps(nil, props, x, amqp.PropEdit{Headers: c.header(x.Headers(props))})
}

// Message is one that is traced, as a session or a queue sees it. The slices are valid during the call.
type Message struct {
	VHost                string
	Exchange, Key, Props []byte
	Size                 int  // of the body, bytes
	Adopted              bool // its context is of [Spans.Adopt]; for [Spans.Published] alone
}
