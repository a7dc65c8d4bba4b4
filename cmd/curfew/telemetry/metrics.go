package telemetry

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	exposition "go.opentelemetry.io/otel/exporters/prometheus"
	"go.opentelemetry.io/otel/exporters/stdout/stdoutmetric"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"

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
