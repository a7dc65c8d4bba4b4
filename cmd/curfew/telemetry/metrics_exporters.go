package telemetry

import (
	"context"
	"log/slog"
	"path"

	"go.opentelemetry.io/otel/exporters/otlp/otlpmetric/otlpmetricgrpc"
	"go.opentelemetry.io/otel/exporters/otlp/otlpmetric/otlpmetrichttp"
	"go.opentelemetry.io/otel/exporters/stdout/stdoutmetric"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"github.com/curfewmq/curfew/core/config"
)

// metricExporter says when a collector begins to take nothing, and when it does again. One goroutine at a time exports.
type metricExporter struct {
	sdkmetric.Exporter
	log     *slog.Logger
	failing bool // belongs to who exports
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

// newMetricExporter makes the exporter of metrics. It does not connect yet.
func newMetricExporter(ctx context.Context, e export, o Options) (sdkmetric.Exporter, error) {
	c := collectorOf("METRICS", e)
	switch {
	case e.to == config.ExportStdout:
		return stdoutmetric.New(stdoutmetric.WithWriter(o.Stdout))
	case e.protocol == config.ProtocolHTTP:
		return otlpmetrichttp.New(ctx, c.metricHTTP()...)
	}
	return otlpmetricgrpc.New(ctx, c.metricGRPC()...)
}

func (c collector) metricGRPC() []otlpmetricgrpc.Option {
	if c.host == "" {
		return nil
	}
	os := []otlpmetricgrpc.Option{otlpmetricgrpc.WithEndpoint(c.host)}
	if c.insecure {
		os = append(os, otlpmetricgrpc.WithInsecure())
	}
	return os
}

func (c collector) metricHTTP() []otlpmetrichttp.Option {
	if c.host == "" {
		return nil
	}
	os := []otlpmetrichttp.Option{otlpmetrichttp.WithEndpoint(c.host), otlpmetrichttp.WithURLPath(path.Join("/", c.path, "v1/metrics"))}
	if c.insecure {
		os = append(os, otlpmetrichttp.WithInsecure())
	}
	return os
}
