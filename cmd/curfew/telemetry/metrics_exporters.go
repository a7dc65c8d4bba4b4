package telemetry

import (
	"context"
	"log/slog"

	"go.opentelemetry.io/otel/exporters/otlp/otlpmetric/otlpmetricgrpc"
	"go.opentelemetry.io/otel/exporters/otlp/otlpmetric/otlpmetrichttp"
	"go.opentelemetry.io/otel/exporters/stdout/stdoutmetric"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"github.com/curfewmq/curfew/core/config"
)

// metricExporter logs when a collector begins to refuse metrics, and when it accepts them again. One goroutine at a time exports.
type metricExporter struct {
	sdkmetric.Exporter
	log     *slog.Logger
	failing bool // belongs to the goroutine that exports
}

// Export implements [sdkmetric.Exporter]. Its errors are logged, not returned.
func (e *metricExporter) Export(ctx context.Context, m *metricdata.ResourceMetrics) error {
	err := e.Exporter.Export(ctx, m)
	switch {
	case err != nil && !e.failing:
		e.log.Warn("metrics are not sent: the collector does not take them; this is said once until it does", "error", err)
	case err == nil && e.failing:
		e.log.Info("the collector takes metrics again")
	}
	e.failing = err != nil
	return nil
}

// newMetricExporter returns the exporter of metrics. It does not connect yet.
func newMetricExporter(ctx context.Context, e export, o Options) (sdkmetric.Exporter, error) {
	c := collectorOf("METRICS", e)
	switch {
	case e.to == config.ExportStdout:
		return stdoutmetric.New(stdoutmetric.WithWriter(o.Stdout))
	case e.protocol == config.ProtocolHTTP:
		return otlpmetrichttp.New(ctx, options(c, nil, otlpmetrichttp.WithEndpoint,
			func() otlpmetrichttp.Option { return otlpmetrichttp.WithURLPath(c.below("v1/metrics")) }, otlpmetrichttp.WithInsecure)...)
	}
	return otlpmetricgrpc.New(ctx, options(c, nil, otlpmetricgrpc.WithEndpoint, nil, otlpmetricgrpc.WithInsecure)...)
}
