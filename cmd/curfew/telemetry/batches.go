package telemetry

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel/exporters/otlp/otlptrace"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
)

// batches is a sink that sends spans to a collector, many at a time. Who ends spans waits while too many wait to be sent: they
// are dropped in one place alone, which is before they are made.
type batches struct {
	client otlptrace.Client
	log    *slog.Logger
	limits batchLimits
	of, by []byte // what stands before the spans of a batch, encoded

	mu      sync.Mutex // guards what follows
	room    sync.Cond  // there is room again, or nobody will ever send anything
	filled  []batch    // in their order; the last one is being filled
	count   int        // of spans in them
	spare   []byte     // memory of a batch that was sent
	closing bool

	wake  chan struct{} // a batch is full, or the end is near
	ended chan struct{} // closed when the goroutine has ended
	stop  context.CancelFunc

	request     []byte // the batch that is sent, encoded; belongs to the goroutine
	failing     bool   // the last batch was not taken; so does this
	taken, lost atomic.Uint64
}

// batch is what is sent at a time.
type batch struct {
	spans []byte // encoded
	count int
}

// add adds a span, and returns how many there are.
func (b *batch) add(s *span) int {
	b.spans = appendSpan(b.spans, s)
	b.count++
	return b.count
}

// batchLimits are what variables say about batches.
type batchLimits struct {
	spans   int           // in a batch
	waiting int           // spans that may wait to be sent
	delay   time.Duration // between batches that are not full
	timeout time.Duration // for sending one
}

func newBatches(ctx context.Context, c otlptrace.Client, l batchLimits, of, by []byte, log *slog.Logger) (*batches, error) {
	if err := c.Start(ctx); err != nil {
		return nil, err
	}
	b := &batches{
		client: c, log: log, limits: l, of: of, by: by,
		wake: make(chan struct{}, 1), ended: make(chan struct{}),
	}
	b.room.L = &b.mu
	ctx, b.stop = context.WithCancel(context.WithoutCancel(ctx))
	go b.run(ctx)
	return b, nil
}

// take implements [sink].
func (b *batches) take(s *span) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for b.count >= b.limits.waiting && !b.closing {
		b.room.Wait()
	}
	if b.closing {
		b.lost.Add(1)
		return
	}
	b.count++
	if last := b.last(); last.add(s) == b.limits.spans {
		b.kick()
	}
}

// last returns the batch that is being filled. The caller holds mu.
func (b *batches) last() *batch {
	if n := len(b.filled); n == 0 || b.filled[n-1].count == b.limits.spans {
		b.filled = append(b.filled, batch{spans: b.spare})
		b.spare = nil
	}
	return &b.filled[len(b.filled)-1]
}

func (b *batches) kick() {
	select {
	case b.wake <- struct{}{}:
	default:
	}
}

// run sends batches until the end, and then what is left.
func (b *batches) run(ctx context.Context) {
	defer close(b.ended)
	for last := false; !last; {
		select {
		case <-b.wake:
		case <-time.After(b.limits.delay):
		}
		last = b.sendAll(ctx)
	}
}

// sendAll sends what waits, and reports whether there will be no more.
func (b *batches) sendAll(ctx context.Context) (last bool) {
	waiting, last := b.waiting()
	for range waiting {
		b.send(ctx, b.next())
	}
	return last
}

// waiting returns how many batches there are to be sent, and whether there will be no more.
func (b *batches) waiting() (n int, last bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.filled), b.closing
}

// next takes the batch that waits longest.
func (b *batches) next() batch {
	b.mu.Lock()
	defer b.mu.Unlock()
	next := b.filled[0]
	b.filled = slices.Delete(b.filled, 0, 1)
	b.count -= next.count
	b.room.Broadcast()
	return next
}

func (b *batches) send(ctx context.Context, sent batch) {
	ctx, cancel := context.WithTimeout(ctx, b.limits.timeout)
	defer cancel()
	var r tracepb.ResourceSpans
	// Fields that protobuf does not know are sent as they are; it is not told that it knows these.
	b.request = appendRequest(b.request[:0], b.of, b.by, sent.spans)
	r.ProtoReflect().SetUnknown(b.request)
	err := b.client.UploadTraces(ctx, []*tracepb.ResourceSpans{&r})
	if err != nil {
		b.lost.Add(uint64(sent.count))
	} else {
		b.taken.Add(uint64(sent.count))
	}
	b.report(err)
	b.mu.Lock()
	defer b.mu.Unlock()
	b.spare = sent.spans[:0]
}

// report says when a collector begins to take nothing, and when it does again.
func (b *batches) report(err error) {
	switch {
	case err != nil && !b.failing:
		b.log.Warn("spans are lost: the collector does not take them; this is said once until it does", "error", err)
	case err == nil && b.failing:
		b.log.Info("the collector takes spans again", "lost", b.lost.Load())
	}
	b.failing = err != nil
}

// exported implements [sink].
func (b *batches) exported() (taken, lost uint64) { return b.taken.Load(), b.lost.Load() }

// close implements [sink].
func (b *batches) close(ctx context.Context) error {
	b.mu.Lock()
	b.closing = true
	b.room.Broadcast()
	b.mu.Unlock()
	b.kick()
	defer b.stop()
	select {
	case <-b.ended:
		return b.client.Stop(ctx)
	case <-ctx.Done():
		b.stop()
		return errors.Join(ctx.Err(), b.client.Stop(ctx))
	}
}
