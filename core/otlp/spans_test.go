package otlp

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
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace"
	"go.opentelemetry.io/otel/sdk/resource"
	"go.opentelemetry.io/otel/trace"
	coltracepb "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"

	"github.com/curfewmq/curfew/core/telemetry"
	"github.com/curfewmq/curfew/sdk/hook"
)

// upstream is a collector's client that records the spans that it should send.
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

// opened returns a started exporter.
func opened(t *testing.T, client otlptrace.Client, l Limits, log *slog.Logger) *SpanExporter {
	t.Helper()
	r := resource.NewWithAttributes("https://example.com/1", attribute.String("service.name", "orders"))
	e := NewSpanExporter(client, Source{Resource: r, Scope: "example.com/broker", Version: "1.2"}, l, log)
	if err := e.Start(t.Context(), func() {}); err != nil {
		t.Fatal(err)
	}
	return e
}

var noLog = slog.New(slog.DiscardHandler)

// Protobuf reads the hand-made encoding.
func TestEncodedSpans(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		u := &upstream{}
		b := opened(t, u, Limits{Batch: 512, Waiting: 1024, Delay: time.Second, Timeout: time.Second}, noLog)
		long := strings.Repeat("long ", 5000)
		outer := telemetry.Span{
			Name: "outer", Kind: trace.SpanKindServer, Trace: trace.TraceID{1}, ID: trace.SpanID{3}, Parent: trace.SpanID{2}, Remote: true,
			Link: trace.SpanID{2}, State: "a=1", Began: 5, Ended: 8,
			Attributes: []attribute.KeyValue{
				attribute.String("text", "x"), attribute.Int("number", -7), attribute.Bool("truth", true), attribute.Float64("part", 0.5), attribute.String("long", long),
			},
			Events: []telemetry.SpanEvent{{Name: "due", At: 6, Attributes: []attribute.KeyValue{attribute.String("why", "so")}}},
		}
		inner := telemetry.Span{
			Name: "inner", Kind: trace.SpanKindInternal, Trace: outer.Trace, ID: trace.SpanID{4}, Parent: outer.ID, State: "a=1",
			Began: 6, Ended: 7, Failure: "lost",
		}
		if !b.Take(&inner) || !b.Take(&outer) {
			t.Fatal("they are not taken")
		}
		if err := b.Close(t.Context()); err != nil {
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
	if s := r.GetScopeSpans(); len(s) != 1 || s[0].GetScope().GetName() != "example.com/broker" || s[0].GetScope().GetVersion() != "1.2" {
		t.Errorf("scope %v", s[0].GetScope())
	}
	if of, by := r.GetSchemaUrl(), r.GetScopeSpans()[0].GetSchemaUrl(); of != "https://example.com/1" || by != telemetry.Schema {
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
		b := opened(t, u, Limits{Batch: 512, Waiting: 1024, Delay: time.Second, Timeout: time.Second}, noLog)
		of := telemetry.SpanTemplate{Name: "publish orders", Kind: trace.SpanKindProducer, Attributes: []attribute.KeyValue{attribute.String("queue", "new")}}
		span := func(i int) {
			b.Take(&telemetry.Span{
				Name: of.Name, Kind: of.Kind, Template: &of, Began: 1, Ended: 2, Attributes: []attribute.KeyValue{attribute.Int("size", i)},
			})
		}
		span(0)
		span(1)
		of = telemetry.SpanTemplate{Name: "deliver orders", Kind: trace.SpanKindServer, Encoded: of.Encoded[:0]}
		span(2)
		if err := b.Close(t.Context()); err != nil {
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
		b := opened(t, u, Limits{Batch: 1000, Waiting: 1000, Delay: time.Hour, Timeout: time.Second}, noLog)
		failure := strings.Repeat("x", 100<<10)
		for i := range 25 {
			b.Take(&telemetry.Span{Name: "x", Failure: failure, Began: hook.Instant(i)})
		}
		synctest.Wait()
		if len(u.got) != 22 || u.largest != 11 {
			t.Errorf("%d were sent, up to %d at a time; want 22 of 100 KiB, 11 at a time", len(u.got), u.largest)
		}
		if err := b.Close(t.Context()); err != nil {
			t.Error(err)
		}
		for i, s := range u.got {
			if s.GetStartTimeUnixNano() != uint64(i) || s.GetStatus().GetMessage() != failure {
				t.Fatalf("span %d has changed", i)
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
		b := opened(t, u, Limits{Batch: 10, Waiting: 100, Delay: time.Second, Timeout: time.Hour}, noLog)
		endSpans(b, 10)
		synctest.Wait() // they are on their way
		taken := 0
		for range 50 {
			if b.Take(&telemetry.Span{Name: "x", Failure: strings.Repeat("x", 10*maxMeanSpan)}) {
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
		if err := b.Close(t.Context()); err != nil {
			t.Error(err)
		}
		if b.size != 0 || b.count != 0 {
			t.Errorf("nothing waits, and it counts %d spans of %d bytes", b.count, b.size)
		}
	})
}

// A batch of a quarter of the spans that may wait leaves room for others while it is filled: no span is lost as long as the collector keeps up.
func TestThereIsRoomWhileABatchIsMade(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := Limits{Batch: 100, Waiting: 400, Delay: 5 * time.Second, Timeout: time.Second}
		e := NewSpanExporter(&upstream{}, Source{}, l, noLog)
		s := telemetry.NewSpans(telemetry.SpanOptions{Sink: e, FlushDue: e.Wake, MaxBuffered: l.Waiting, FlushEvery: l.Batch})
		if err := e.Start(t.Context(), s.Flush); err != nil {
			t.Fatal(err)
		}
		for i := range 5000 {
			s.Published(&telemetry.Message{VHost: "/", Exchange: []byte("e"), Props: []byte{0, 0}}, "app", 1)
			if i%150 == 0 {
				synctest.Wait()
			}
		}
		if err := e.Close(t.Context()); err != nil {
			t.Error(err)
		}
		if exported, _ := e.Exported(); s.Dropped() != 0 || exported != 5000 {
			t.Errorf("%d were dropped, %d arrived; want 0 and 5000", s.Dropped(), exported)
		}
	})
}

// endSpans passes spans to the sink, and returns how many were taken.
func endSpans(b *SpanExporter, times int) (taken int) {
	for range times {
		if b.Take(&telemetry.Span{Name: "x", Began: 1, Ended: 2}) {
			taken++
		}
	}
	return taken
}

func TestBatchesGoWhenFullOrAfterAWhile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		u := &upstream{}
		b := opened(t, u, Limits{Batch: 10, Waiting: 20, Delay: 5 * time.Second, Timeout: time.Second}, noLog)
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
		if taken, lost := b.Exported(); len(u.got) != 11 || taken != 11 || lost != 0 {
			t.Errorf("%d were sent, %d taken, %d lost; want 11", len(u.got), taken, lost)
		}
		if err := b.Close(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// No batch exceeds the limits, and spans stay in order.
func TestBatchesAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		u := &upstream{hold: make(chan struct{})}
		b := opened(t, u, Limits{Batch: 10, Waiting: 100, Delay: time.Second, Timeout: time.Hour}, noLog)
		for i := range 75 {
			b.Take(&telemetry.Span{Name: "x", Began: hook.Instant(i), Ended: hook.Instant(i)})
			synctest.Wait()
		}
		close(u.hold)
		if err := b.Close(t.Context()); err != nil {
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
		b := opened(t, u, Limits{Batch: 10, Waiting: 20, Delay: time.Second, Timeout: 30 * time.Second}, noLog)
		if n := endSpans(b, 10); n != 10 {
			t.Errorf("%d of 10 were taken", n)
		}
		synctest.Wait() // they are on their way
		if n := endSpans(b, 100); n != 20 {
			t.Errorf("%d were taken that wait, want 20", n)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		defer cancel()
		if err := b.Close(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("close: %v", err)
		}
		<-b.ended
		if taken, lost := b.Exported(); taken != 0 || lost != 30 {
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
		b := NewSpanExporter(u, Source{}, Limits{Batch: 10, Waiting: 100, Delay: 5 * time.Second, Timeout: time.Second}, noLog)
		var noted atomic.Int64
		if err := b.Start(t.Context(), func() { endSpans(b, int(noted.Swap(0))) }); err != nil {
			t.Fatal(err)
		}
		sent := func(want int) {
			t.Helper()
			synctest.Wait()
			if len(u.got) != want {
				t.Errorf("%d were sent, want %d", len(u.got), want)
			}
			noted.Add(0) // for the race detector: the reads come before the next send
		}
		noted.Store(12)
		b.Wake()
		sent(10) // the others are no batch yet
		noted.Store(3)
		sent(10)
		time.Sleep(5 * time.Second)
		sent(15)
		noted.Store(2)
		if err := b.Close(t.Context()); err != nil {
			t.Error(err)
		}
		sent(17)
	})
}

func TestChangesAreLoggedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		u := &upstream{}
		b := opened(t, u, Limits{Batch: 2, Waiting: 20, Delay: time.Second, Timeout: time.Second}, slog.New(slog.NewTextHandler(&log, nil)))
		for _, err := range []error{nil, errors.New("gone"), errors.New("gone"), nil, nil} {
			u.err = err
			endSpans(b, 2)
			synctest.Wait()
		}
		if err := b.Close(t.Context()); err != nil {
			t.Error(err)
		}
		if taken, lost := b.Exported(); taken != 6 || lost != 4 {
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
			client := Collector{Host: strings.TrimPrefix(collector.URL, "http://"), Insecure: true, HTTP: true}.SpanClient()
			l := Limits{Batch: 10, Waiting: 20, Delay: time.Minute, Timeout: time.Minute}
			b := opened(t, client, l, slog.New(slog.NewTextHandler(&log, nil)))
			endSpans(b, 10)
			if err := b.Close(t.Context()); err != nil {
				t.Error(err)
			}
			if taken, lost := b.Exported(); taken != tc.taken || lost != tc.lost || strings.Count(log.String(), "\n") != tc.logged {
				t.Errorf("%d taken, %d lost; want %d and %d, and %d lines logged:\n%s", taken, lost, tc.taken, tc.lost, tc.logged, &log)
			}
		})
	}
}

// BenchmarkSpan measures a span's way through the exporter, without the sending.
func BenchmarkSpan(b *testing.B) {
	u := &upstream{err: errors.New("thrown away")}
	e := NewSpanExporter(u, Source{}, Limits{Batch: 512, Waiting: 2048, Delay: time.Second, Timeout: time.Second}, noLog)
	if err := e.Start(b.Context(), func() {}); err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		endSpans(e, 1)
	}
	_ = e.Close(b.Context())
}
