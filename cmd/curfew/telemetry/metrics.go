package telemetry

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"go.opentelemetry.io/otel/attribute"
	exposition "go.opentelemetry.io/otel/exporters/prometheus"
	"go.opentelemetry.io/otel/exporters/stdout/stdoutmetric"
	"go.opentelemetry.io/otel/sdk/instrumentation"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"github.com/curfewmq/curfew/core/config"
	core "github.com/curfewmq/curfew/core/metrics"
	"github.com/curfewmq/curfew/core/otlp"
)

// Serve starts to export c's metrics, and returns the handler for paths that begin with /metrics. It must be called once.
func (t *Telemetry) Serve(ctx context.Context, c *core.Collector) (http.Handler, error) {
	p := &producer{collector: c}
	registry := prometheus.NewRegistry()
	pulled, err := exposition.New(
		exposition.WithRegisterer(registry), exposition.WithProducer(p),
		exposition.WithTranslationStrategy("NoTranslation"), exposition.WithoutScopeInfo(), exposition.WithoutTargetInfo())
	if err != nil {
		return nil, err
	}
	readers := []sdkmetric.Option{sdkmetric.WithResource(t.resource), sdkmetric.WithReader(pulled)}
	if t.settings.metrics.to != config.ExportOff {
		to, err := newMetricExporter(ctx, t.settings.metrics, t.options)
		if err != nil {
			return nil, fmt.Errorf("telemetry.metrics: %w", err)
		}
		sent := otlp.NewMetricExporter(to, t.options.Log)
		periodic := []sdkmetric.PeriodicReaderOption{sdkmetric.WithProducer(p), sdkmetric.WithInterval(t.settings.interval)}
		if os.Getenv(envMetricTimeout) == "" { // a collector that comes back is found at any time of the interval
			periodic = append(periodic, sdkmetric.WithTimeout(t.settings.interval))
		}
		readers = append(readers, sdkmetric.WithReader(sdkmetric.NewPeriodicReader(sent, periodic...)))
	}
	err = errors.Join(registry.Register(collectors.NewGoCollector()),
		registry.Register(collectors.NewProcessCollector(collectors.ProcessCollectorOpts{})))
	if err != nil {
		return nil, err
	}
	t.metrics = sdkmetric.NewMeterProvider(readers...)
	return newExposition(registry, core.NewObjects(c), t.options.Log), nil
}

// newMetricExporter returns the exporter of metrics. It does not connect yet.
func newMetricExporter(ctx context.Context, e export, o Options) (sdkmetric.Exporter, error) {
	if e.to == config.ExportStdout {
		return stdoutmetric.New(stdoutmetric.WithWriter(o.Stdout))
	}
	return collectorOf("METRICS", e).MetricClient(ctx)
}

// newExposition returns the handler for metrics: those of the busiest queues at /metrics, those of all queues at paths below it.
func newExposition(registry *prometheus.Registry, objects http.Handler, log *slog.Logger) http.Handler {
	const atOnce = 8 // requests at a time
	busiest := promhttp.HandlerFor(registry, promhttp.HandlerOpts{
		ErrorLog:          slog.NewLogLogger(&rateLimitedHandler{Handler: log.Handler(), limit: new(limit)}, slog.LevelWarn),
		ErrorHandling:     promhttp.ContinueOnError, // an error in one series must not hide the others
		EnableOpenMetrics: true, MaxRequestsInFlight: atOnce,
	})
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case !strings.HasSuffix(r.URL.Path, "/metrics"):
			objects.ServeHTTP(w, r)
		case r.Method != http.MethodGet && r.Method != http.MethodHead:
			w.Header().Set("Allow", "HEAD, GET")
			w.WriteHeader(http.StatusMethodNotAllowed)
		default:
			busiest.ServeHTTP(w, r)
		}
	})
}

// producer converts collections for OpenTelemetry's exporters, each collection once. Any goroutine may use it.
type producer struct {
	collector *core.Collector

	mu    sync.Mutex // guards the fields below
	last  *core.Collection
	made  []metricdata.ScopeMetrics // made from last; read only
	known map[*core.Labels]attribute.Set
}

var _ sdkmetric.Producer = (*producer)(nil)

// Produce implements [sdkmetric.Producer].
func (p *producer) Produce(context.Context) ([]metricdata.ScopeMetrics, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	c := p.collector.Collect()
	if c == p.last {
		return p.made, nil
	}
	m := converter{known: p.known, used: make(map[*core.Labels]attribute.Set, len(p.known)), began: c.Started.Time(), at: c.At.Time()}
	all := make([]metricdata.Metrics, 0, len(c.Families))
	for _, f := range c.Families {
		if len(f.Points) > 0 {
			all = append(all, metricdata.Metrics{Name: f.Name, Description: f.Help, Data: m.aggregation(f)})
		}
	}
	p.last, p.known = c, m.used
	p.made = []metricdata.ScopeMetrics{{Scope: instrumentation.Scope{Name: scope}, Metrics: all}}
	return p.made, nil
}

// converter converts one collection to OpenTelemetry's types.
type converter struct {
	known, used map[*core.Labels]attribute.Set // points share labels, and collections the sets made from them
	began, at   time.Time
}

func (m *converter) aggregation(f *core.Family) metricdata.Aggregation {
	switch f.Kind {
	case core.Counter:
		return metricdata.Sum[float64]{DataPoints: m.points(f), Temporality: metricdata.CumulativeTemporality, IsMonotonic: true}
	case core.Histogram:
		return metricdata.Histogram[float64]{DataPoints: m.distributions(f), Temporality: metricdata.CumulativeTemporality}
	}
	return metricdata.Gauge[float64]{DataPoints: m.points(f)}
}

func (m *converter) points(f *core.Family) []metricdata.DataPoint[float64] {
	all := make([]metricdata.DataPoint[float64], len(f.Points))
	for i := range f.Points {
		all[i] = metricdata.DataPoint[float64]{Attributes: m.set(f.Points[i].Labels), Time: m.at, Value: f.Points[i].Value}
		if f.Kind == core.Counter {
			all[i].StartTime = m.began
		}
	}
	return all
}

func (m *converter) distributions(f *core.Family) []metricdata.HistogramDataPoint[float64] {
	all := make([]metricdata.HistogramDataPoint[float64], len(f.Points))
	for i := range f.Points {
		d := &f.Points[i].Distribution
		all[i] = metricdata.HistogramDataPoint[float64]{
			Attributes: m.set(f.Points[i].Labels), StartTime: m.began, Time: m.at,
			Count: d.Count, Sum: d.Sum, Bounds: d.Bounds, BucketCounts: d.Counts,
		}
	}
	return all
}

func (m *converter) set(l *core.Labels) attribute.Set {
	if l == nil {
		return *attribute.EmptySet()
	}
	if s, ok := m.used[l]; ok {
		return s
	}
	s, ok := m.known[l]
	if !ok {
		all := make([]attribute.KeyValue, len(l.Names))
		for i, name := range l.Names {
			all[i] = attribute.String(name, l.Values[i])
		}
		s = attribute.NewSet(all...)
	}
	m.used[l] = s
	return s
}
