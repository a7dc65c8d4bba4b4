// Package otlp sends the core's spans and metrics to a collector over OTLP, OpenTelemetry's
// protocol. It encodes spans itself; the clients of OpenTelemetry's exporters send them.
package otlp

import (
	"context"
	"errors"
	"log/slog"
	"regexp"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel/exporters/otlp/otlptrace"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"

	"github.com/curfewmq/curfew/core/telemetry"
)

// SpanExporter sends spans to a collector in batches. It implements [telemetry.Sink].
type SpanExporter struct {
	client otlptrace.Client
	log    *slog.Logger
	limits Limits
	source Source

	mu      sync.Mutex // guards the fields below
	batches []batch    // in order; Take adds to the last one
	count   int        // spans in batches
	size    int        // bytes in batches
	spare   [][]byte   // memory of sent batches
	closed  bool       // Take refuses spans

	wake    chan struct{} // has the capacity 1; a value means that a batch is full or the core's buffer is to be flushed
	closing chan struct{} // closed by Close
	ended   chan struct{} // closed when run has ended
	cancel  context.CancelFunc

	failing        bool // the collector did not accept the whole of the last batch; belongs to run
	exported, lost atomic.Uint64
}

var _ telemetry.Sink = (*SpanExporter)(nil)

// Limits bound batches and waiting spans.
type Limits struct {
	Batch   int           // spans in a batch
	Waiting int           // spans that wait for the collector; Take refuses further ones
	Delay   time.Duration // before a batch that is not full is sent
	Timeout time.Duration // for sending a batch, with all retries
}

// Limits in bytes.
const (
	maxBatch        = 1 << 20 // of a batch; collectors accept up to 4 MiB by default
	maxMeanSpan     = 4 << 10 // of a waiting span on average; policies can add much to a span
	typicalSpan     = 512
	maxSpareBatches = 2
)

// batch has the spans of one request.
type batch struct {
	spans []byte // encoded
	count int
}

func (e *SpanExporter) full(b *batch) bool {
	return b.count >= e.limits.Batch || len(b.spans) >= maxBatch
}

// NewSpanExporter returns an exporter that sends through client. Start starts it.
func NewSpanExporter(client otlptrace.Client, s Source, l Limits, log *slog.Logger) *SpanExporter {
	return &SpanExporter{
		client: client, log: log, limits: l, source: s,
		wake: make(chan struct{}, 1), closing: make(chan struct{}), ended: make(chan struct{}),
	}
}

// Start starts the exporter. flush converts the spans that the core buffers; the exporter
// calls it before it sends, from one goroutine. Start does not wait for the collector.
// Sending ends with Close, not with ctx.
func (e *SpanExporter) Start(ctx context.Context, flush func()) error {
	if err := e.client.Start(ctx); err != nil {
		return err
	}
	ctx, e.cancel = context.WithCancel(context.WithoutCancel(ctx))
	go e.run(ctx, flush)
	return nil
}

// Wake makes the exporter flush the core's buffer soon. It does not block; any goroutine may call it.
func (e *SpanExporter) Wake() {
	select {
	case e.wake <- struct{}{}:
	default:
	}
}

// Take implements [telemetry.Sink].
func (e *SpanExporter) Take(s *telemetry.Span) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed || e.count >= e.limits.Waiting || e.size >= e.limits.Waiting*maxMeanSpan {
		return false
	}
	if n := len(e.batches); n == 0 || e.full(&e.batches[n-1]) {
		e.batches = append(e.batches, batch{spans: e.memory()})
	}
	b := &e.batches[len(e.batches)-1]
	before := len(b.spans)
	b.spans = appendSpan(b.spans, s)
	b.count++
	e.count++
	e.size += len(b.spans) - before
	if e.full(b) {
		e.Wake()
	}
	return true
}

// memory returns memory for a batch. The caller holds mu.
func (e *SpanExporter) memory() []byte {
	n := len(e.spare)
	if n == 0 {
		return make([]byte, 0, min(e.limits.Batch*typicalSpan, maxBatch))
	}
	m := e.spare[n-1]
	e.spare = e.spare[:n-1]
	return m
}

// run sends batches until Close, and then the remaining ones.
func (e *SpanExporter) run(ctx context.Context, flush func()) {
	defer close(e.ended)
	late := time.NewTicker(e.limits.Delay)
	defer late.Stop()
	for closing := false; !closing; {
		all := false
		select {
		case <-e.wake:
		case <-late.C:
			all = true
		case <-e.closing:
			closing = true
		}
		flush()
		for range e.ready(all || closing, closing) {
			e.send(ctx, e.next())
		}
	}
}

// ready returns how many batches to send: the full ones, or all. closing makes Take refuse spans from now on.
func (e *SpanExporter) ready(all, closing bool) int {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.closed = closing
	n := len(e.batches)
	if n > 0 && !all && !e.full(&e.batches[n-1]) {
		n--
	}
	return n
}

// next removes the oldest batch.
func (e *SpanExporter) next() batch {
	e.mu.Lock()
	defer e.mu.Unlock()
	next := e.batches[0]
	e.batches = slices.Delete(e.batches, 0, 1)
	e.count -= next.count
	e.size -= len(next.spans)
	return next
}

// send sends a batch. If the collector cannot be reached, send tries again until the time limit; meanwhile Take may refuse spans.
func (e *SpanExporter) send(ctx context.Context, b batch) {
	ctx, cancel := context.WithTimeout(ctx, e.limits.Timeout)
	defer cancel()
	request := []*tracepb.ResourceSpans{e.source.resourceSpans(b.spans)}
	err := retry(ctx, func() error { return e.client.UploadTraces(ctx, request) }, func(error) {})
	lost := lostOf(b.count, err)
	e.lost.Add(uint64(lost))
	e.exported.Add(uint64(b.count - lost))
	e.report(lost, err)
	e.mu.Lock()
	defer e.mu.Unlock()
	if len(e.spare) < maxSpareBatches {
		e.spare = append(e.spare, b.spans[:0])
	}
}

// rejected matches the error of OpenTelemetry's clients for a collector that rejected some
// spans of a batch, or none if the collector only sent a warning. The clients do not export
// the error's type.
var rejected = regexp.MustCompile(`(?s)^OTLP partial success: .*\((\d+) spans rejected\)`)

// lostOf returns how many of count spans were lost if sending them returned err.
func lostOf(count int, err error) int {
	if err == nil {
		return 0
	}
	match := rejected.FindStringSubmatch(err.Error())
	if match == nil {
		return count
	}
	n, err := strconv.Atoi(match[1])
	if err != nil {
		return count
	}
	return min(n, count)
}

// report logs when a collector begins to refuse spans, and when it accepts all again.
func (e *SpanExporter) report(lost int, err error) {
	switch {
	case lost > 0 && !e.failing:
		e.log.Warn("spans are lost: the collector does not take them; this is logged only once until it does", "lost", lost, "error", Brief(err))
	case lost == 0 && e.failing:
		e.log.Info("the collector takes spans again", "lost", e.lost.Load())
	}
	e.failing = lost > 0
}

// Exported returns how many spans were exported, and how many were lost. Any goroutine may call it.
func (e *SpanExporter) Exported() (exported, lost uint64) { return e.exported.Load(), e.lost.Load() }

// Close sends the waiting spans, at most until ctx ends, and ends the exporter. It must be called once, after Start.
func (e *SpanExporter) Close(ctx context.Context) error {
	close(e.closing)
	defer e.cancel()
	select {
	case <-e.ended:
		return e.client.Stop(ctx)
	case <-ctx.Done():
		e.cancel()
		return errors.Join(ctx.Err(), e.client.Stop(ctx))
	}
}
