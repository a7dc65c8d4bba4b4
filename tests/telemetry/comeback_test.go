package telemetry

import (
	"net"
	"net/http"
	"testing"

	metricscollector "go.opentelemetry.io/proto/otlp/collector/metrics/v1"
	collectorpb "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	"google.golang.org/grpc"

	"github.com/curfewmq/curfew/tests/process"
)

// station is an address with a collector of spans and metrics, which is there or not.
type station struct {
	spans   collector
	metrics metricSink
}

// open lets the collector answer at an address, "" for any, and returns what closes it.
func (s *station) open(t *testing.T, protocol, address string) (at string, closes func()) {
	t.Helper()
	if address == "" {
		address = "127.0.0.1:0"
	}
	ln, err := net.Listen("tcp", address)
	must(t, err)
	ended := make(chan error, 1)
	stop := func() {}
	if protocol == "grpc" {
		g := grpc.NewServer()
		collectorpb.RegisterTraceServiceServer(g, &s.spans)
		metricscollector.RegisterMetricsServiceServer(g, &s.metrics)
		stop = g.Stop
		go func() { ended <- g.Serve(ln) }()
	} else {
		mux := http.NewServeMux()
		mux.HandleFunc("/v1/traces", s.spans.serve)
		mux.Handle("/v1/metrics", &s.metrics)
		h := &http.Server{Handler: mux}
		stop = func() { _ = h.Close() }
		go func() { ended <- h.Serve(ln) }()
	}
	return ln.Addr().String(), func() {
		stop()
		<-ended
	}
}

// A collector that is started late, or again, gets what waited for it. Over HTTP all of that was lost at once, and metrics over gRPC
// were sent up to two minutes later.
func TestCollectorIsStartedAgain(t *testing.T) {
	t.Parallel()
	for _, protocol := range []string{"grpc", "http"} {
		t.Run(protocol, func(t *testing.T) {
			var s station
			address, closes := s.open(t, protocol, "")
			closes() // the broker is there first
			b := start(t, "telemetry:\n  otlp: {endpoint: \"http://"+address+"\", protocol: "+protocol+"}\n"+
				"  traces: {exporter: otlp}\n  metrics: {exporter: otlp, interval: 1s}\n")
			b.declare("q", nil)
			for range 2 {
				m := sent(t)
				b.publish("q", m.headers, "")
				_, closes := s.open(t, protocol, address)
				s.spans.await(t, m.trace, "publish q")
				s.metrics.forget()
				if !process.Poll(func() bool { return len(s.metrics.series()) > 0 }) {
					t.Error("the collector gets no metrics")
				}
				closes()
			}
			if lost := b.counter("curfew_trace_spans_lost_total"); lost > 0 {
				t.Errorf("%v spans are lost", lost)
			}
		})
	}
}

// forget forgets what came.
func (m *metricSink) forget() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.metrics = nil
}
