package otlp

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.opentelemetry.io/otel/exporters/otlp/otlptrace"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// away is the clients' error for an absent collector.
var away = []error{
	fmt.Errorf("post: %w", &net.OpError{Op: "dial", Err: errors.New("connection refused")}),
	fmt.Errorf("after ten seconds: %w", status.Error(codes.Unavailable, "connection refused")),
}

// downUntil is a collector's client that is away until an instant.
type downUntil struct {
	upstream
	until time.Time
	with  error
	back  time.Time // when the first batch arrived
}

func (d *downUntil) UploadTraces(ctx context.Context, rs []*tracepb.ResourceSpans) error {
	if time.Now().Before(d.until) {
		return d.with
	}
	if d.back.IsZero() {
		d.back = time.Now()
	}
	return d.upstream.UploadTraces(ctx, rs)
}

var _ otlptrace.Client = (*downUntil)(nil)

// Over HTTP each batch was lost at once while nothing listened, together with the waiting spans.
func TestCollectorThatComesBack(t *testing.T) {
	for _, err := range away {
		synctest.Test(t, func(t *testing.T) {
			u := &downUntil{with: err, until: time.Now().Add(25 * time.Second)}
			b := opened(t, u, Limits{Batch: 10, Waiting: 100, Delay: time.Second, Timeout: 30 * time.Second}, noLog)
			if n := endSpans(b, 60); n != 60 {
				t.Errorf("%d were taken, want 60", n)
			}
			time.Sleep(30 * time.Second)
			synctest.Wait()
			if taken, lost := b.Exported(); taken != 60 || lost != 0 {
				t.Errorf("%v: %d arrived, %d lost; want all 60", u.with, taken, lost)
			}
			if late := u.back.Sub(u.until); late > tryAgain {
				t.Errorf("%v: it was found %v after it came back", u.with, late)
			}
			if err := b.Close(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
}

// Retries do not delay the end.
func TestEndWithoutACollector(t *testing.T) {
	for _, err := range away {
		synctest.Test(t, func(t *testing.T) {
			u := &downUntil{with: err, until: time.Now().Add(time.Hour)}
			b := opened(t, u, Limits{Batch: 10, Waiting: 100, Delay: time.Second, Timeout: 30 * time.Second}, noLog)
			endSpans(b, 60)
			began := time.Now()
			ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
			defer cancel()
			if err := b.Close(ctx); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("close: %v", err)
			}
			if took := time.Since(began); took > 2*time.Second {
				t.Errorf("it took %v", took)
			}
			<-b.ended
			if taken, lost := b.Exported(); taken != 0 || lost != 60 {
				t.Errorf("%d arrived, %d lost; want all 60 lost", taken, lost)
			}
		})
	}
}

// metricsDown is an exporter of metrics whose collector is away until an instant.
type metricsDown struct {
	sdkmetric.Exporter
	until time.Time
	with  error
	times int // that metrics arrived
}

func (d *metricsDown) Export(context.Context, *metricdata.ResourceMetrics) error {
	if time.Now().Before(d.until) {
		return d.with
	}
	d.times++
	return nil
}

// Metrics were tried once per interval, and the log contained neither the number of failed attempts nor, in time, the recovery.
func TestMetricsOfACollectorThatComesBack(t *testing.T) {
	for _, err := range away {
		synctest.Test(t, func(t *testing.T) {
			var log bytes.Buffer
			d := &metricsDown{with: err, until: time.Now().Add(25 * time.Second)}
			e := NewMetricExporter(d, slog.New(slog.NewTextHandler(&log, nil)))
			began := time.Now()
			for range 2 {
				ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
				if err := e.Export(ctx, nil); err != nil {
					t.Error(err)
				}
				cancel()
			}
			if late := time.Since(began) - 25*time.Second; d.times != 1 || late > tryAgain {
				t.Errorf("they arrived %d times, %v after the collector came back", d.times, late)
			}
			ctx, cancel := context.WithCancel(t.Context())
			cancel()
			d.until = time.Now().Add(time.Hour)
			if err := e.Export(ctx, nil); err != nil { // the broker ends
				t.Error(err)
			}
			if text := log.String(); strings.Count(text, "\n") != 2 || strings.Count(text, "metrics are not sent") != 1 ||
				!strings.Contains(text, "the collector takes metrics again\" failed_attempts=") {
				t.Errorf("logged:\n%s", text)
			}
		})
	}
}

// Errors that another attempt cannot fix are not retried; the clients' errors for an absent collector are.
func TestUnreachable(t *testing.T) {
	for _, err := range []error{io.EOF, context.DeadlineExceeded, status.Error(codes.InvalidArgument, "no"), &net.OpError{Op: "read", Err: io.EOF}} {
		if unreachable(err) {
			t.Errorf("%v counts as unreachable", err)
		}
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	absent := ln.Addr().String()
	if err := ln.Close(); err != nil {
		t.Fatal(err)
	}
	for _, c := range []Collector{{Host: absent, Insecure: true, HTTP: true}, {Host: absent, Insecure: true}} {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		spans := c.SpanClient()
		if err := spans.Start(ctx); err != nil {
			t.Fatal(err)
		}
		metrics, err := c.MetricClient(ctx)
		if err != nil {
			t.Fatal(err)
		}
		if err := spans.UploadTraces(ctx, []*tracepb.ResourceSpans{{}}); !unreachable(err) {
			t.Errorf("spans to %+v: %v does not count as unreachable", c, err)
		}
		if c.HTTP { // over gRPC the first attempt took the time
			if err := metrics.Export(ctx, &metricdata.ResourceMetrics{}); !unreachable(err) {
				t.Errorf("metrics to %+v: %v does not count as unreachable", c, err)
			}
		}
		cancel()
		_ = spans.Stop(t.Context())       // there is nothing to send
		_ = metrics.Shutdown(t.Context()) // there neither
		http.DefaultClient.CloseIdleConnections()
	}
}

// A collector that was started again had closed the connection that spans were sent over: they were lost, though it would have taken them.
func TestWhatACutConnectionCarriedIsSentAgain(t *testing.T) {
	cut := fmt.Errorf("post: %w", io.EOF)
	for _, tc := range []struct {
		name     string
		cuts     int
		attempts int
		err      error
	}{
		{"the collector takes it then", 1, 2, nil},
		{"the collector takes it at last", mostCuts, mostCuts + 1, nil},
		{"the collector never takes it", 100, mostCuts + 1, cut},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				attempts := 0
				err := retry(t.Context(), func() error {
					if attempts++; attempts <= tc.cuts {
						return cut
					}
					return nil
				}, func(error) {})
				if !errors.Is(err, tc.err) || attempts != tc.attempts {
					t.Errorf("%d attempts, %v; want %d, %v", attempts, err, tc.attempts, tc.err)
				}
			})
		})
	}
}

// failing is an exporter that can fail.
type failing struct {
	sdkmetric.Exporter
	err error
}

func (f *failing) Export(context.Context, *metricdata.ResourceMetrics) error { return f.err }

func TestRefusedMetricsAreLoggedOnce(t *testing.T) {
	var log bytes.Buffer
	f := &failing{err: errors.New("refused")}
	e := NewMetricExporter(f, slog.New(slog.NewTextHandler(&log, nil)))
	for _, f.err = range []error{f.err, f.err, nil, nil} {
		if err := e.Export(t.Context(), nil); err != nil {
			t.Error(err)
		}
	}
	if n := strings.Count(log.String(), "\n"); n != 2 || !strings.Contains(log.String(), "refused") {
		t.Errorf("the log says\n%s", log.String())
	}
}

// A collector that answered a request with megabytes had them written to the log, for spans and for metrics.
func TestBoundedErrors(t *testing.T) {
	answer := errors.New("400 Bad Request (body: " + strings.Repeat("ö", 1<<20) + ")")
	for name, say := range map[string]func(log *slog.Logger){
		"spans": func(log *slog.Logger) { (&SpanExporter{log: log}).report(1, answer) },
		"metrics": func(log *slog.Logger) {
			if err := NewMetricExporter(&failing{err: answer}, log).Export(t.Context(), nil); err != nil {
				t.Error(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			var out bytes.Buffer
			say(slog.New(slog.NewJSONHandler(&out, nil)))
			text := out.String()
			if len(text) > 1000 || !strings.Contains(text, "400 Bad Request (body: öö") || !strings.Contains(text, `ö…"`) {
				t.Errorf("%d bytes were logged: %.1000s", len(text), text)
			}
		})
	}
}
