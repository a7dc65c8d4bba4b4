package telemetry

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

	core "github.com/curfewmq/curfew/core/telemetry"
)

// sink is a destination for spans.
type sink interface {
	core.Sink
	// start starts the sink. flush makes the core convert its buffered spans; for a sink that never calls it, the core must not buffer spans.
	// dropped returns how many spans the core dropped; nil = they are not counted.
	start(flush func(), dropped func() uint64)
	// close exports the spans that were taken, at most until ctx ends. The sink then takes no more.
	close(ctx context.Context) error
	// exported returns how many spans were exported, and how many were lost. Any goroutine may call it.
	exported() (arrived, lost uint64)
}

// batches is a sink that sends spans to a collector, many at a time. While too many are waiting it takes none.
type batches struct {
	client otlptrace.Client
	log    *slog.Logger
	limits batchLimits
	of, by []byte // encoded resource and scope, which precede the spans of a batch
	head   int    // size of these in bytes

	mu     sync.Mutex // guards the fields below
	filled []batch    // in order; the last one is being filled
	count  int        // number of spans in them
	size   int        // size of these spans in bytes
	spare  [][]byte   // memory of sent batches, to be reused
	last   bool       // close was called
	closed bool       // no more are taken

	wake  signalled       // a batch is full, or may be, or close was called
	ended chan struct{}   // closed when the goroutine has ended
	ctx   context.Context //nolint:containedctx // the goroutine's, until it is started
	stop  context.CancelFunc

	dropped  func() uint64 // number of spans that the core dropped
	dropping drops         // belongs to the goroutine

	flush       func() // converts the core's buffered spans; called by the goroutine
	failing     bool   // all or a part of the last batch was lost; belongs to the goroutine
	taken, lost atomic.Uint64
}

// batch is the spans of one request.
type batch struct {
	spans []byte // encoded, after free space for resource and scope
	count int
	full  bool
}

// add adds a span, and reports whether the batch is full.
func (b *batch) add(s *core.Span, most int) bool {
	b.spans = appendSpan(b.spans, s)
	b.count++
	b.full = b.count >= most || len(b.spans) >= maxBatch
	return b.full
}

// maxBatch is the size in bytes of a full batch. By default collectors accept up to 4 MiB at a time.
const maxBatch = 1 << 20

// batchLimits are the limits of batches.
type batchLimits struct {
	spans   int           // in a batch
	waiting int           // spans that may wait for sending
	delay   time.Duration // between batches that are not full
	timeout time.Duration // for sending a batch
}

func newBatches(ctx context.Context, c otlptrace.Client, l batchLimits, of, by []byte, log *slog.Logger) (*batches, error) {
	if err := c.Start(ctx); err != nil {
		return nil, err
	}
	b := &batches{
		client: c, log: log, limits: l, of: of, by: by, head: len(of) + maxHead + len(by),
		wake: make(signalled, 1), ended: make(chan struct{}),
	}
	b.ctx, b.stop = context.WithCancel(context.WithoutCancel(ctx))
	return b, nil
}

// start implements [sink].
func (b *batches) start(flush func(), dropped func() uint64) {
	b.flush, b.dropped = flush, dropped
	go b.run(b.ctx)
}

// Take implements [core.Sink].
func (b *batches) Take(s *core.Span) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed || b.count >= b.limits.waiting || b.size >= b.limits.waiting*large {
		return false
	}
	into := b.open()
	before := len(into.spans)
	if into.add(s, b.limits.spans) {
		b.wake.kick()
	}
	b.count++
	b.size += len(into.spans) - before
	return true
}

// open returns the batch that is being filled. The caller holds mu.
func (b *batches) open() *batch {
	if n := len(b.filled); n == 0 || b.filled[n-1].full {
		b.filled = append(b.filled, batch{spans: b.memory()})
	}
	return &b.filled[len(b.filled)-1]
}

// memory returns memory for a batch. The caller holds mu.
func (b *batches) memory() []byte {
	n := len(b.spare)
	if n == 0 {
		return make([]byte, b.head, b.head+min(b.limits.spans*usual, maxBatch))
	}
	m := b.spare[n-1]
	b.spare = b.spare[:n-1]
	return m[:b.head]
}

const (
	usual    = 512     // bytes of a typical span
	large    = 4 << 10 // bytes per waiting span on average, at most: policies can add much to a span
	maxSpare = 2       // sent batches whose memory is kept
)

// signalled wakes a goroutine. It has the capacity 1.
type signalled chan struct{}

func (s signalled) kick() {
	select {
	case s <- struct{}{}:
	default:
	}
}

// run sends batches until close, and then the remaining ones.
func (b *batches) run(ctx context.Context) {
	defer close(b.ended)
	late := time.NewTicker(b.limits.delay)
	defer late.Stop()
	for last := false; !last; {
		all := false
		select {
		case <-b.wake:
		case <-late.C:
			all = true
		}
		last = b.isLast()
		b.flush()
		if last {
			b.end()
		}
		b.watch(last)
		for range b.ready(all || last) {
			b.send(ctx, b.next())
			b.watch(last)
		}
	}
}

// isLast reports whether close was called.
func (b *batches) isLast() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.last
}

// end makes Take refuse spans.
func (b *batches) end() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.closed = true
}

// ready returns how many batches to send: the full ones, or all.
func (b *batches) ready(all bool) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	n := len(b.filled)
	if n > 0 && !all && !b.filled[n-1].full {
		n--
	}
	return n
}

// next removes the oldest batch.
func (b *batches) next() batch {
	b.mu.Lock()
	defer b.mu.Unlock()
	next := b.filled[0]
	b.filled = slices.Delete(b.filled, 0, 1)
	b.count -= next.count
	b.size -= len(next.spans) - b.head
	return next
}

// send sends a batch. If a collector cannot be reached, send tries again for as long as the time limit allows; in the meantime other spans may be
// dropped.
func (b *batches) send(ctx context.Context, sent batch) {
	ctx, cancel := context.WithTimeout(ctx, b.limits.timeout)
	defer cancel()
	ended := make(chan error, 1)
	go func() {
		var r tracepb.ResourceSpans
		// Protobuf sends unknown fields unchanged, so the encoded spans are passed as such.
		r.ProtoReflect().SetUnknown(request(sent.spans, b.of, b.by))
		ended <- persist(ctx, func() error { return b.client.UploadTraces(ctx, []*tracepb.ResourceSpans{&r}) }, func(error) {})
	}()
	err := b.await(ended)
	lost := lostOf(sent.count, err)
	b.lost.Add(uint64(lost))
	b.taken.Add(uint64(sent.count - lost))
	b.report(lost, err)
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.spare) < maxSpare {
		b.spare = append(b.spare, sent.spans[:0])
	}
}

// await returns the value from ended, and checks for dropped spans until then.
func (b *batches) await(ended <-chan error) error {
	each := time.NewTicker(time.Second)
	defer each.Stop()
	for {
		select {
		case err := <-ended:
			return err
		case <-each.C:
			b.watch(false)
		}
	}
}

// watch logs when spans begin to be dropped. When only a few are waiting again, it logs how many were dropped.
func (b *batches) watch(last bool) {
	if b.dropped != nil {
		b.dropping.watch(b.log, b.dropped(), b.fewWait() || last)
	}
}

// fewWait reports whether at least half of the queue is free.
func (b *batches) fewWait() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.count <= b.limits.waiting/2
}

// partly matches the error of OpenTelemetry's clients for a collector that rejected some spans of a batch, or none if it only sent a
// warning. The error's type is not exported.
var partly = regexp.MustCompile(`(?s)^OTLP partial success: .*\((\d+) spans rejected\)`)

// lostOf returns how many of count spans were lost if sending them returned err.
func lostOf(count int, err error) int {
	if err == nil {
		return 0
	}
	said := partly.FindStringSubmatch(err.Error())
	if said == nil {
		return count
	}
	n, err := strconv.Atoi(said[1])
	if err != nil {
		return count
	}
	return min(n, count)
}

// report logs when a collector begins to refuse spans, and when it accepts all again.
func (b *batches) report(lost int, err error) {
	switch {
	case lost > 0 && !b.failing:
		b.log.Warn("spans are lost: the collector does not take them; this is logged only once until it does", "lost", lost, "error", brief(err))
	case lost == 0 && b.failing:
		b.log.Info("the collector takes spans again", "lost", b.lost.Load())
	}
	b.failing = lost > 0
}

// exported implements [sink].
func (b *batches) exported() (taken, lost uint64) { return b.taken.Load(), b.lost.Load() }

// close implements [sink].
func (b *batches) close(ctx context.Context) error {
	b.mu.Lock()
	b.last = true
	b.mu.Unlock()
	b.wake.kick()
	defer b.stop()
	select {
	case <-b.ended:
		return b.client.Stop(ctx)
	case <-ctx.Done():
		b.stop()
		return errors.Join(ctx.Err(), b.client.Stop(ctx))
	}
}
