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

// sink is where spans go. It is open for as long as it takes to close it.
type sink interface {
	core.Sink
	// start begins. flush has spans made of what the core has only noted so far; a sink that never calls it has none noted.
	// dropped returns how many spans there was no room for; nil = nobody counts.
	start(flush func(), dropped func() uint64)
	// close passes on what was taken, as long as ctx lasts. Nothing is taken any more.
	close(ctx context.Context) error
	// exported returns how many spans arrived where they were to go, and how many did not. Any goroutine may call it.
	exported() (arrived, lost uint64)
}

// batches is a sink that sends spans to a collector, many at a time. While too many wait to be sent it takes none.
type batches struct {
	client otlptrace.Client
	log    *slog.Logger
	limits batchLimits
	of, by []byte // what stands before the spans of a batch, encoded
	room   int    // for that, bytes

	mu     sync.Mutex // guards what follows
	filled []batch    // in their order; the last one is being filled
	count  int        // of spans in them
	size   int        // of these, bytes
	spare  [][]byte   // memory of batches that were sent
	last   bool       // the end is near
	closed bool       // no more are taken

	wake  chan struct{}   // a batch is full, or could be, or the end is near
	ended chan struct{}   // closed when the goroutine has ended
	ctx   context.Context //nolint:containedctx // of the goroutine, from when it is made to when it is started
	stop  context.CancelFunc

	dropped  func() uint64 // spans for which there was no room
	dropping drops         // of them; belongs to the goroutine

	flush       func() // has spans made of what is noted; called by the goroutine
	failing     bool   // the last batch was not taken, or not all of it; belongs to the goroutine
	taken, lost atomic.Uint64
}

// batch is what is sent at a time.
type batch struct {
	spans []byte // encoded, behind room for what stands before them
	count int
	full  bool
}

// add adds a span, and reports whether that made the batch full.
func (b *batch) add(s *core.Span, most int) bool {
	b.spans = appendSpan(b.spans, s)
	b.count++
	b.full = b.count >= most || len(b.spans) >= maxBatch
	return b.full
}

// maxBatch is how many bytes make a batch full: collectors take up to 4 MiB at a time unless they are told otherwise.
const maxBatch = 1 << 20

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
		client: c, log: log, limits: l, of: of, by: by, room: len(of) + maxHead + len(by),
		wake: make(chan struct{}, 1), ended: make(chan struct{}),
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
		b.kick()
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

// memory returns room for a batch. The caller holds mu.
func (b *batches) memory() []byte {
	n := len(b.spare)
	if n == 0 {
		return make([]byte, b.room, b.room+min(b.limits.spans*usual, maxBatch))
	}
	m := b.spare[n-1]
	b.spare = b.spare[:n-1]
	return m[:b.room]
}

// usual is about what a span takes, in bytes, large what those that wait may take on average, which policies can add much to, and
// maxSpare how many batches' memory is kept for the next ones.
const (
	usual    = 512
	large    = 4 << 10
	maxSpare = 2
)

func (b *batches) kick() {
	select {
	case b.wake <- struct{}{}:
	default:
	}
}

// run sends batches until the end, and then what is left.
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

// isLast reports whether what is there now is the last to be sent.
func (b *batches) isLast() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.last
}

// end has no more spans taken.
func (b *batches) end() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.closed = true
}

// ready returns how many batches there are to be sent: those that are full, or all.
func (b *batches) ready(all bool) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	n := len(b.filled)
	if n > 0 && !all && !b.filled[n-1].full {
		n--
	}
	return n
}

// next takes the batch that waits longest.
func (b *batches) next() batch {
	b.mu.Lock()
	defer b.mu.Unlock()
	next := b.filled[0]
	b.filled = slices.Delete(b.filled, 0, 1)
	b.count -= next.count
	b.size -= len(next.spans) - b.room
	return next
}

func (b *batches) send(ctx context.Context, sent batch) {
	ctx, cancel := context.WithTimeout(ctx, b.limits.timeout)
	defer cancel()
	var r tracepb.ResourceSpans
	// Fields that protobuf does not know are sent as they are; it is not told that it knows these.
	r.ProtoReflect().SetUnknown(request(sent.spans, b.of, b.by))
	err := b.client.UploadTraces(ctx, []*tracepb.ResourceSpans{&r})
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

// drops is what is known of spans that were dropped because too many waited.
type drops struct {
	seen, said uint64 // how many those were when it was looked last, and when something was said of them
	lasts      bool   // it was said that it began
	when       time.Time
}

// sayAgain is how often at most it is said that spans are dropped.
const sayAgain = 10 * time.Second

// watch says when spans begin to be dropped, and, once there is room for more, how many those were.
func (b *batches) watch(last bool) {
	if b.dropped == nil {
		return
	}
	d, n, now := &b.dropping, b.dropped(), time.Now()
	fresh := n > d.seen
	d.seen = n
	switch {
	case fresh && !d.lasts && (d.when.IsZero() || now.Sub(d.when) >= sayAgain):
		d.lasts, d.when = true, now
		b.log.Warn("spans are dropped: too many wait for the collector (telemetry.traces.buffer)", "dropped", n-d.said)
	case d.lasts && (last || !fresh && b.roomy()):
		d.lasts = false
		b.log.Info("spans are not dropped any more", "dropped", n-d.said)
		d.said = n
	}
}

// roomy reports whether few spans wait.
func (b *batches) roomy() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.count <= b.limits.waiting/2
}

// partly is how OpenTelemetry's clients say that a collector has taken a batch but for some spans, or none if it only had something
// to say. Their error has a type that only they can name.
var partly = regexp.MustCompile(`(?s)^OTLP partial success: .*\((\d+) spans rejected\)`)

// lostOf returns how many of the spans of a batch were lost when sending it ended like this.
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

// report says when a collector begins not to take all spans, and when it does again.
func (b *batches) report(lost int, err error) {
	switch {
	case lost > 0 && !b.failing:
		b.log.Warn("spans are lost: the collector does not take them; this is said once until it does", "error", err)
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
