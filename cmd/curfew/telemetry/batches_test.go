package telemetry

import (
	"bytes"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"
	coltracepb "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"

	"github.com/curfewmq/curfew/core/config"
	core "github.com/curfewmq/curfew/core/telemetry"
	"github.com/curfewmq/curfew/sdk/hook"
)

// upstream is a collector's client that records what it should send.
type upstream struct {
	got  []*tracepb.Span
	last *tracepb.ResourceSpans
	err  error
	hold chan struct{} // each upload waits for it, at most until its timeout; nil = it does not wait

	largest int // batch
}

func (u *upstream) Start(context.Context) error { return nil }
func (u *upstream) Stop(context.Context) error  { return nil }

func (u *upstream) UploadTraces(ctx context.Context, rs []*tracepb.ResourceSpans) error {
	if u.hold != nil {
		select {
		case <-u.hold:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	if u.err != nil {
		return u.err
	}
	raw, err := proto.Marshal(rs[0])
	if err != nil {
		return err
	}
	u.last = new(tracepb.ResourceSpans)
	if err := proto.Unmarshal(raw, u.last); err != nil {
		return err
	}
	for _, by := range u.last.GetScopeSpans() {
		u.got = append(u.got, by.GetSpans()...)
		u.largest = max(u.largest, len(by.GetSpans()))
	}
	return nil
}

func newTestBatches(t *testing.T, u *upstream, l batchLimits, log *slog.Logger) *batches {
	t.Helper()
	of, by := envelope([]attribute.KeyValue{attribute.String("service.name", "orders")}, "https://example.com/1", "1.2")
	b, err := newBatches(t.Context(), u, l, of, by, log)
	if err != nil {
		t.Fatal(err)
	}
	b.start(func() {}, nil)
	return b
}

var noLog = slog.New(slog.DiscardHandler)

// Protobuf reads the hand-made encoding.
func TestEncodedSpans(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		u := &upstream{}
		b := newTestBatches(t, u, batchLimits{spans: 512, waiting: 1024, delay: time.Second, timeout: time.Second}, noLog)
		long := strings.Repeat("long ", 5000)
		outer := core.Span{
			Name: "outer", Kind: trace.SpanKindServer, Trace: trace.TraceID{1}, ID: trace.SpanID{3}, Parent: trace.SpanID{2}, Remote: true,
			Link: trace.SpanID{2}, State: "a=1", Began: 5, Ended: 8,
			Attributes: []attribute.KeyValue{
				attribute.String("text", "x"), attribute.Int("number", -7), attribute.Bool("truth", true), attribute.Float64("part", 0.5), attribute.String("long", long),
			},
			Events: []core.SpanEvent{{Name: "due", At: 6, Attributes: []attribute.KeyValue{attribute.String("why", "so")}}},
		}
		inner := core.Span{
			Name: "inner", Kind: trace.SpanKindInternal, Trace: outer.Trace, ID: trace.SpanID{4}, Parent: outer.ID, State: "a=1",
			Began: 6, Ended: 7, Failure: "lost",
		}
		if !b.Take(&inner) || !b.Take(&outer) {
			t.Fatal("they are not taken")
		}
		if err := b.close(t.Context()); err != nil {
			t.Fatal(err)
		}
		if len(u.got) != 2 {
			t.Fatalf("%d spans", len(u.got))
		}
		checkInner(t, u.got[0], u.got[1])
		checkOuter(t, u.got[1], long)
		checkEnvelope(t, u.last)
	})
}

func checkInner(t *testing.T, s, parent *tracepb.Span) {
	t.Helper()
	if s.GetName() != "inner" || !bytes.Equal(s.GetParentSpanId(), parent.GetSpanId()) || !bytes.Equal(s.GetTraceId(), parent.GetTraceId()) {
		t.Errorf("inner: %v", s)
	}
	if s.GetStatus().GetCode() != tracepb.Status_STATUS_CODE_ERROR || s.GetStatus().GetMessage() != "lost" {
		t.Errorf("inner: %v", s.GetStatus())
	}
	if s.GetKind() != tracepb.Span_SPAN_KIND_INTERNAL || s.GetFlags() != 0x101 || s.GetTraceState() != "a=1" {
		t.Errorf("inner: %v, flags %x, state %q", s.GetKind(), s.GetFlags(), s.GetTraceState())
	}
}

func checkOuter(t *testing.T, s *tracepb.Span, long string) {
	t.Helper()
	if s.GetName() != "outer" || hex.EncodeToString(s.GetTraceId()) != "01"+strings.Repeat("0", 30) || hex.EncodeToString(s.GetParentSpanId()) != "02"+strings.Repeat("0", 14) {
		t.Errorf("outer: %v", s)
	}
	if s.GetStartTimeUnixNano() != 5 || s.GetEndTimeUnixNano() != 8 || s.GetKind() != tracepb.Span_SPAN_KIND_SERVER || s.GetFlags() != 0x301 || s.GetStatus() != nil {
		t.Errorf("outer: %d to %d, %v, flags %x, %v", s.GetStartTimeUnixNano(), s.GetEndTimeUnixNano(), s.GetKind(), s.GetFlags(), s.GetStatus())
	}
	as := s.GetAttributes()
	if len(as) != 5 || as[0].GetKey() != "text" || as[0].GetValue().GetStringValue() != "x" || as[1].GetValue().GetIntValue() != -7 ||
		!as[2].GetValue().GetBoolValue() || as[3].GetValue().GetDoubleValue() != 0.5 || as[4].GetValue().GetStringValue() != long {
		t.Errorf("outer: %d attributes, %.200v", len(as), as)
	}
	es := s.GetEvents()
	if len(es) != 1 || es[0].GetName() != "due" || es[0].GetTimeUnixNano() != 6 || es[0].GetAttributes()[0].GetValue().GetStringValue() != "so" {
		t.Errorf("outer: events %v", es)
	}
	ls := s.GetLinks()
	if len(ls) != 1 || !bytes.Equal(ls[0].GetSpanId(), s.GetParentSpanId()) || ls[0].GetTraceState() != "a=1" || ls[0].GetFlags() != 0x300 {
		t.Errorf("outer: links %v", ls)
	}
}

func checkEnvelope(t *testing.T, r *tracepb.ResourceSpans) {
	t.Helper()
	a := r.GetResource().GetAttributes()
	if len(a) != 1 || a[0].GetKey() != "service.name" || a[0].GetValue().GetStringValue() != "orders" {
		t.Errorf("resource %v", a)
	}
	if s := r.GetScopeSpans(); len(s) != 1 || s[0].GetScope().GetName() != scope || s[0].GetScope().GetVersion() != "1.2" {
		t.Errorf("scope %v", s[0].GetScope())
	}
	if of, by := r.GetSchemaUrl(), r.GetScopeSpans()[0].GetSchemaUrl(); of != "https://example.com/1" || by != core.Schema {
		t.Errorf("the schema of the resource is %q, that of the spans %q", of, by)
	}
	if unknown := r.ProtoReflect().GetUnknown(); len(unknown) != 0 {
		t.Errorf("%d bytes are of no field", len(unknown))
	}
}

// The common parts of spans are encoded once, and again for spans of another shape.
func TestShapes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		u := &upstream{}
		b := newTestBatches(t, u, batchLimits{spans: 512, waiting: 1024, delay: time.Second, timeout: time.Second}, noLog)
		of := core.SpanTemplate{Name: "publish orders", Kind: trace.SpanKindProducer, Attributes: []attribute.KeyValue{attribute.String("queue", "new")}}
		span := func(i int) {
			b.Take(&core.Span{
				Name: of.Name, Kind: of.Kind, Template: &of, Began: 1, Ended: 2, Attributes: []attribute.KeyValue{attribute.Int("size", i)},
			})
		}
		span(0)
		span(1)
		of = core.SpanTemplate{Name: "deliver orders", Kind: trace.SpanKindServer, Encoded: of.Encoded[:0]}
		span(2)
		if err := b.close(t.Context()); err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, s := range u.got {
			words := []string{s.GetName(), s.GetKind().String()}
			for _, a := range s.GetAttributes() {
				words = append(words, fmt.Sprint(a.GetKey(), "=", a.GetValue().GetStringValue(), a.GetValue().GetIntValue()))
			}
			got = append(got, strings.Join(words, " "))
		}
		want := []string{
			"publish orders SPAN_KIND_PRODUCER queue=new0 size=0", "publish orders SPAN_KIND_PRODUCER queue=new0 size=1",
			"deliver orders SPAN_KIND_SERVER size=2",
		}
		if !slices.Equal(got, want) {
			t.Errorf("got  %q\nwant %q", got, want)
		}
	})
}

// Collectors refuse requests that are too large, however few spans they contain.
func TestBatchesAreBoundedInBytes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		u := &upstream{}
		b := newTestBatches(t, u, batchLimits{spans: 1000, waiting: 1000, delay: time.Hour, timeout: time.Second}, noLog)
		failure := strings.Repeat("x", 100<<10)
		for i := range 25 {
			b.Take(&core.Span{Name: "x", Failure: failure, Began: hook.Instant(i)})
		}
		synctest.Wait()
		if len(u.got) != 22 || u.largest != 11 {
			t.Errorf("%d were sent, up to %d at a time; want 22 of 100 KiB, 11 at a time", len(u.got), u.largest)
		}
		if err := b.close(t.Context()); err != nil {
			t.Error(err)
		}
		for i, s := range u.got {
			if s.GetStartTimeUnixNano() != uint64(i) || s.GetStatus().GetMessage() != failure {
				t.Fatalf("span %d is not what it was", i)
			}
		}
		if len(u.got) != 25 {
			t.Errorf("%d were sent, want 25", len(u.got))
		}
	})
}

// Policies may add much to spans, so waiting spans are limited in bytes, too.
func TestLargeSpansThatWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		u := &upstream{hold: make(chan struct{})}
		b := newTestBatches(t, u, batchLimits{spans: 10, waiting: 100, delay: time.Second, timeout: time.Hour}, noLog)
		endSpans(b, 10)
		synctest.Wait() // they are on their way
		taken := 0
		for range 50 {
			if b.Take(&core.Span{Name: "x", Failure: strings.Repeat("x", 10*large)}) {
				taken++
			}
		}
		if taken != 10 {
			t.Errorf("%d were taken that are ten times as large as 100 that wait may be; want 10", taken)
		}
		close(u.hold)
		synctest.Wait()
		if n := endSpans(b, 100); n != 100 {
			t.Errorf("%d were taken when the large ones had been sent, want 100", n)
		}
		if err := b.close(t.Context()); err != nil {
			t.Error(err)
		}
		if b.size != 0 || b.count != 0 {
			t.Errorf("nothing waits, and it counts %d spans of %d bytes", b.count, b.size)
		}
	})
}

// However few spans may wait, and whatever limits the variables set, nothing is lost as long as the collector keeps up.
func TestThereIsRoomWhileABatchIsMade(t *testing.T) {
	environment(t, "OTEL_BSP_MAX_QUEUE_SIZE=400", "OTEL_BSP_MAX_EXPORT_BATCH_SIZE=400")
	l, err := limits(8192)
	if err != nil {
		t.Fatal(err)
	}
	synctest.Test(t, func(t *testing.T) {
		b, err := newBatches(t.Context(), &upstream{}, l, nil, nil, noLog)
		if err != nil {
			t.Fatal(err)
		}
		s := core.NewSpans(core.SpanOptions{Sink: b, FlushDue: b.wake.kick, MaxBuffered: l.waiting, FlushEvery: l.spans})
		b.start(s.Flush, s.Dropped)
		for i := range 5000 {
			s.Published(&core.Message{VHost: "/", Exchange: []byte("e"), Props: []byte{0, 0}}, "app", 1)
			if i%150 == 0 {
				synctest.Wait()
			}
		}
		if err := b.close(t.Context()); err != nil {
			t.Error(err)
		}
		if taken, _ := b.exported(); s.Dropped() != 0 || taken != 5000 {
			t.Errorf("%d were dropped, %d arrived; want 0 and 5000", s.Dropped(), taken)
		}
	})
}

// endSpans passes spans to the sink, and returns how many were taken.
func endSpans(b *batches, times int) (taken int) {
	for range times {
		if b.Take(&core.Span{Name: "x", Began: 1, Ended: 2}) {
			taken++
		}
	}
	return taken
}

func TestBatchesGoWhenFullOrAfterAWhile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		u := &upstream{}
		b := newTestBatches(t, u, batchLimits{spans: 10, waiting: 20, delay: 5 * time.Second, timeout: time.Second}, noLog)
		endSpans(b, 9)
		synctest.Wait()
		if len(u.got) != 0 {
			t.Errorf("%d were sent before the batch was full", len(u.got))
		}
		endSpans(b, 1)
		synctest.Wait()
		if len(u.got) != 10 {
			t.Errorf("%d of a full batch were sent", len(u.got))
		}
		endSpans(b, 1)
		time.Sleep(5 * time.Second)
		synctest.Wait()
		if taken, lost := b.exported(); len(u.got) != 11 || taken != 11 || lost != 0 {
			t.Errorf("%d were sent, %d taken, %d lost; want 11", len(u.got), taken, lost)
		}
		if err := b.close(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// No batch exceeds the limits, and spans stay in order.
func TestBatchesAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		u := &upstream{hold: make(chan struct{})}
		b := newTestBatches(t, u, batchLimits{spans: 10, waiting: 100, delay: time.Second, timeout: time.Hour}, noLog)
		for i := range 75 {
			b.Take(&core.Span{Name: "x", Began: hook.Instant(i), Ended: hook.Instant(i)})
			synctest.Wait()
		}
		close(u.hold)
		if err := b.close(t.Context()); err != nil {
			t.Error(err)
		}
		if u.largest != 10 || len(u.got) != 75 {
			t.Errorf("%d spans, in batches of up to %d; want 75, 10", len(u.got), u.largest)
		}
		for i, s := range u.got {
			if s.GetStartTimeUnixNano() != uint64(i) {
				t.Fatalf("span %d is where span %d should be", s.GetStartTimeUnixNano(), i)
			}
		}
	})
}

// A collector that never answers costs spans, and delays only the end.
func TestSlowCollector(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		u := &upstream{hold: make(chan struct{})}
		b := newTestBatches(t, u, batchLimits{spans: 10, waiting: 20, delay: time.Second, timeout: 30 * time.Second}, noLog)
		if n := endSpans(b, 10); n != 10 {
			t.Errorf("%d of 10 were taken", n)
		}
		synctest.Wait() // they are on their way
		if n := endSpans(b, 100); n != 20 {
			t.Errorf("%d were taken that wait, want 20", n)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		defer cancel()
		if err := b.close(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("close: %v", err)
		}
		<-b.ended
		if taken, lost := b.exported(); taken != 0 || lost != 30 {
			t.Errorf("%d arrived, %d lost; want 30 lost", taken, lost)
		}
		if endSpans(b, 1) != 0 {
			t.Error("one was taken after the end")
		}
	})
}

// Spans that the core has only buffered are converted and sent: when there are many, after a while, and at the end.
func TestNotedSpansAreSent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		u := &upstream{}
		b, err := newBatches(t.Context(), u, batchLimits{spans: 10, waiting: 100, delay: 5 * time.Second, timeout: time.Second}, nil, nil, noLog)
		if err != nil {
			t.Fatal(err)
		}
		var noted atomic.Int64
		b.start(func() { endSpans(b, int(noted.Swap(0))) }, nil)
		sent := func(want int) {
			t.Helper()
			synctest.Wait()
			if len(u.got) != want {
				t.Errorf("%d were sent, want %d", len(u.got), want)
			}
			noted.Add(0) // for the race detector: the reads come before the next send
		}
		noted.Store(12)
		b.wake.kick()
		sent(10) // the others are no batch yet
		noted.Store(3)
		sent(10)
		time.Sleep(5 * time.Second)
		sent(15)
		noted.Store(2)
		if err := b.close(t.Context()); err != nil {
			t.Error(err)
		}
		sent(17)
	})
}

func TestChangesAreLoggedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		u := &upstream{}
		b := newTestBatches(t, u, batchLimits{spans: 2, waiting: 20, delay: time.Second, timeout: time.Second}, slog.New(slog.NewTextHandler(&log, nil)))
		for _, err := range []error{nil, errors.New("gone"), errors.New("gone"), nil, nil} {
			u.err = err
			endSpans(b, 2)
			synctest.Wait()
		}
		if err := b.close(t.Context()); err != nil {
			t.Error(err)
		}
		if taken, lost := b.exported(); taken != 6 || lost != 4 {
			t.Errorf("%d taken, %d lost", taken, lost)
		}
		if lines := strings.Count(log.String(), "\n"); lines != 2 || !strings.Contains(log.String(), "error=gone") || !strings.Contains(log.String(), "lost=4") {
			t.Errorf("logged:\n%s", &log)
		}
	})
}

// A collector may accept a part of a batch, or all of it with a warning. OpenTelemetry's clients return an error for both.
func TestBatchesThatArePartlyTaken(t *testing.T) {
	for _, tc := range []struct {
		name        string
		rejected    int64
		taken, lost uint64
		logged      int // lines
	}{
		{"some are lost", 3, 7, 3, 1},
		{"it is only said", 0, 10, 0, 0},
		{"more than there were", 99, 0, 10, 1},
	} {
		t.Run(tc.name, func(t *testing.T) {
			answer, err := proto.Marshal(&coltracepb.ExportTraceServiceResponse{PartialSuccess: &coltracepb.ExportTracePartialSuccess{
				RejectedSpans: tc.rejected, ErrorMessage: "(5 spans rejected)\nnot these",
			}})
			if err != nil {
				t.Fatal(err)
			}
			collector := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Type", "application/x-protobuf")
				_, _ = w.Write(answer)
			}))
			defer collector.Close()
			var log bytes.Buffer
			client := newClient(export{endpoint: collector.URL, protocol: config.ProtocolHTTP})
			l := batchLimits{spans: 10, waiting: 20, delay: time.Minute, timeout: time.Minute}
			b, err := newBatches(t.Context(), client, l, nil, nil, slog.New(slog.NewTextHandler(&log, nil)))
			if err != nil {
				t.Fatal(err)
			}
			b.start(func() {}, nil)
			endSpans(b, 10)
			if err := b.close(t.Context()); err != nil {
				t.Error(err)
			}
			if taken, lost := b.exported(); taken != tc.taken || lost != tc.lost || strings.Count(log.String(), "\n") != tc.logged {
				t.Errorf("%d taken, %d lost; want %d and %d, and %d lines logged:\n%s", taken, lost, tc.taken, tc.lost, tc.logged, &log)
			}
		})
	}
}

func BenchmarkSpan(b *testing.B) {
	u := &upstream{}
	of, by := envelope(nil, "", "1")
	to, err := newBatches(b.Context(), u, batchLimits{spans: 512, waiting: 2048, delay: time.Second, timeout: time.Second}, of, by, noLog)
	if err != nil {
		b.Fatal(err)
	}
	u.err = errors.New("thrown away")
	to.start(func() {}, nil)
	b.ReportAllocs()
	for b.Loop() {
		endSpans(to, 1)
	}
	_ = to.close(b.Context())
}

// Spans were dropped by the million without a log line because too many were waiting. The beginning is now logged, and at the end the number.
func TestDroppedSpansAreLogged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		u := &upstream{hold: make(chan struct{})}
		of, by := envelope(nil, "", "1")
		b, err := newBatches(t.Context(), u, batchLimits{spans: 4, waiting: 8, delay: time.Second, timeout: time.Minute}, of, by, slog.New(slog.NewTextHandler(&log, nil)))
		if err != nil {
			t.Fatal(err)
		}
		var dropped atomic.Uint64
		b.start(func() {}, dropped.Load)
		offer := func(n int) {
			for range n {
				if !b.Take(&core.Span{Name: "x"}) {
					dropped.Add(1)
				}
			}
		}
		offer(4) // they are being sent
		synctest.Wait()
		offer(100)
		time.Sleep(2 * time.Second) // the collector has not answered yet: it was only said when it did
		synctest.Wait()
		if n := strings.Count(log.String(), "spans are dropped"); n != 1 || !strings.Contains(log.String(), "dropped=92") {
			t.Errorf("it was said %d times: %s", n, log.String())
		}
		offer(100)
		close(u.hold)
		time.Sleep(3 * time.Second)
		synctest.Wait()
		if !strings.Contains(log.String(), "spans are not dropped any more\" dropped="+strconv.FormatUint(dropped.Load(), 10)) || strings.Count(log.String(), "spans are dropped") != 1 {
			t.Errorf("%d were dropped; it was said: %s", dropped.Load(), log.String())
		}
		if err := b.close(t.Context()); err != nil {
			t.Fatal(err)
		}
	})
}
