package telemetry

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"

	metricscollector "go.opentelemetry.io/proto/otlp/collector/metrics/v1"
	commonpb "go.opentelemetry.io/proto/otlp/common/v1"
	metricspb "go.opentelemetry.io/proto/otlp/metrics/v1"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	"github.com/curfewmq/curfew/tests/process"
)

// metricSink takes metrics as an OpenTelemetry collector does, over gRPC or HTTP, and keeps the last.
type metricSink struct {
	metricscollector.UnimplementedMetricsServiceServer
	address string

	mu       sync.Mutex // guards what follows
	resource map[string]string
	metrics  map[string]*metricspb.Metric
}

func sinkGRPC(t *testing.T) *metricSink {
	t.Helper()
	m := &metricSink{}
	m.address = serveGRPC(t, func(s *grpc.Server) { metricscollector.RegisterMetricsServiceServer(s, m) })
	return m
}

func sinkHTTP(t *testing.T) *metricSink {
	t.Helper()
	m := &metricSink{}
	s := httptest.NewServer(m)
	t.Cleanup(s.Close)
	m.address = s.URL
	return m
}

// Export implements the service.
func (m *metricSink) Export(_ context.Context, r *metricscollector.ExportMetricsServiceRequest) (*metricscollector.ExportMetricsServiceResponse, error) {
	m.take(r)
	return &metricscollector.ExportMetricsServiceResponse{}, nil
}

// ServeHTTP implements [http.Handler].
func (m *metricSink) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	var in metricscollector.ExportMetricsServiceRequest
	if err == nil {
		err = proto.Unmarshal(body, &in)
	}
	if err != nil || r.URL.Path != "/v1/metrics" {
		http.Error(w, fmt.Sprint(r.URL.Path, err), http.StatusBadRequest)
		return
	}
	m.take(&in)
	w.Header().Set("Content-Type", "application/x-protobuf")
}

func (m *metricSink) take(r *metricscollector.ExportMetricsServiceRequest) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.metrics = map[string]*metricspb.Metric{}
	for _, of := range r.GetResourceMetrics() {
		m.resource = readable(of.GetResource().GetAttributes())
		for _, by := range of.GetScopeMetrics() {
			for _, one := range by.GetMetrics() {
				m.metrics[one.GetName()] = one
			}
		}
	}
}

// series are the metrics that came last, named as Prometheus has them. Of histograms there is the number of values.
func (m *metricSink) series() map[string]float64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	all := map[string]float64{}
	for name, one := range m.metrics {
		for _, p := range slices.Concat(one.GetGauge().GetDataPoints(), one.GetSum().GetDataPoints()) {
			all[name+labels(p.GetAttributes())] = p.GetAsDouble()
		}
		for _, p := range one.GetHistogram().GetDataPoints() {
			all[name+"_count"+labels(p.GetAttributes())] = float64(p.GetCount())
		}
	}
	return all
}

func labels(as []*commonpb.KeyValue) string {
	var all []string
	for _, a := range as {
		all = append(all, fmt.Sprintf("%s=%q", a.GetKey(), a.GetValue().GetStringValue()))
	}
	if all == nil {
		return ""
	}
	slices.Sort(all)
	return "{" + strings.Join(all, ",") + "}"
}

func TestMetricsOverOTLPAreThoseOfPrometheus(t *testing.T) {
	t.Parallel()
	for protocol, listen := range map[string]func(*testing.T) *metricSink{"grpc": sinkGRPC, "http": sinkHTTP} {
		t.Run(protocol, func(t *testing.T) {
			sink := listen(t)
			b := start(t, metricsListener+"telemetry:\n  service-name: shop\n  otlp: {endpoint: \""+sink.address+"\", insecure: true, protocol: "+protocol+"}\n"+
				"  traces: {exporter: off}\n  metrics: {interval: 1s}\n")
			b.work()
			const there = `rabbitmq_queue_messages{queue="dead",vhost="/"}`
			if !process.Poll(func() bool { return sink.series()[there] == 5 }) {
				t.Fatalf("the collector has %v", sink.series())
			}
			_, page := fetch(t, b.Metrics, "/metrics")
			pulled, pushed := series(t, page), sink.series()
			same := 0
			for name, v := range pushed {
				is, ok := pulled[name]
				if !ok {
					t.Errorf("%s is not at /metrics", name)
				}
				if ok && is == v {
					same++
				}
			}
			if same < len(pushed)*3/4 { // the others count what goes on meanwhile
				t.Errorf("%d of %d values are the same", same, len(pushed))
			}
			for name := range pulled {
				_, ok := pushed[name]
				rest := strings.HasPrefix(name, "go_") || strings.HasPrefix(name, "process_") || strings.Contains(name, "_bucket{") || strings.Contains(name, "_sum{")
				if !ok && !rest {
					t.Errorf("%s was not sent", name)
				}
			}
			if sink.resource["service.name"] != "shop" {
				t.Errorf("they are said to be of %v", sink.resource)
			}
			sum := sink.metrics["rabbitmq_queues_created_total"].GetSum()
			if !sum.GetIsMonotonic() || sum.GetAggregationTemporality() != metricspb.AggregationTemporality_AGGREGATION_TEMPORALITY_CUMULATIVE ||
				sum.GetDataPoints()[0].GetStartTimeUnixNano() == 0 {
				t.Errorf("a counter is sent as %v", sum)
			}
		})
	}
}
