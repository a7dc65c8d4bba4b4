package otlp

import (
	"context"
	"errors"
	"log/slog"

	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
)

// MetricExporter logs when a collector begins to refuse metrics, and when it accepts them again. One goroutine at a time exports.
type MetricExporter struct {
	sdkmetric.Exporter
	log    *slog.Logger
	failed int // attempts since the last success; belongs to the exporting goroutine
}

// NewMetricExporter returns an exporter that sends through to.
func NewMetricExporter(to sdkmetric.Exporter, log *slog.Logger) *MetricExporter {
	return &MetricExporter{Exporter: to, log: log}
}

// Export implements [sdkmetric.Exporter]. Its errors are logged, not returned. If the
// collector cannot be reached, Export sends the same metrics again until ctx ends: later
// counts include them.
func (e *MetricExporter) Export(ctx context.Context, m *metricdata.ResourceMetrics) error {
	if retry(ctx, func() error { return e.Exporter.Export(ctx, m) }, func(err error) { e.fail(ctx, err) }) != nil {
		return nil
	}
	if e.failed > 0 {
		e.log.Info("the collector takes metrics again", "failed_attempts", e.failed)
	}
	e.failed = 0
	return nil
}

// fail counts and logs a failed attempt, unless the broker ended it.
func (e *MetricExporter) fail(ctx context.Context, err error) {
	if errors.Is(ctx.Err(), context.Canceled) {
		return
	}
	if e.failed == 0 {
		e.log.Warn("metrics are not sent: the collector does not take them; this is logged only once until it does", "error", Brief(err))
	}
	e.failed++
}
