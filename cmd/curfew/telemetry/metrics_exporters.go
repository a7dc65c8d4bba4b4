package telemetry

import (
	"context"
	"errors"
	"log/slog"

	"go.opentelemetry.io/otel/exporters/otlp/otlpmetric/otlpmetricgrpc"
	"go.opentelemetry.io/otel/exporters/otlp/otlpmetric/otlpmetrichttp"
	"go.opentelemetry.io/otel/exporters/stdout/stdoutmetric"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	"google.golang.org/grpc"

	"github.com/curfewmq/curfew/core/config"
)

// metricExporter logs when a collector begins to refuse metrics, and when it accepts them again. One goroutine at a time exports.
type metricExporter struct {
	sdkmetric.Exporter
	log    *slog.Logger
	failed int // attempts since the last success; belongs to the exporting goroutine
}

// Export implements [sdkmetric.Exporter]. Its errors are logged, not returned. If a collector cannot be reached, Export tries again until
// ctx ends, with the same metrics: later counts include them.
func (e *metricExporter) Export(ctx context.Context, m *metricdata.ResourceMetrics) error {
	if persist(ctx, func() error { return e.Exporter.Export(ctx, m) }, func(err error) { e.fail(ctx, err) }) != nil {
		return nil
	}
	if e.failed > 0 {
		e.log.Info("the collector takes metrics again", "failed_attempts", e.failed)
	}
	e.failed = 0
	return nil
}

// fail counts and logs a failed attempt, unless the broker ended it.
func (e *metricExporter) fail(ctx context.Context, err error) {
	if errors.Is(ctx.Err(), context.Canceled) {
		return
	}
	if e.failed == 0 {
		e.log.Warn("metrics are not sent: the collector does not take them; this is logged only once until it does", "error", brief(err))
	}
	e.failed++
}

// newMetricExporter returns the exporter of metrics. It does not connect yet.
func newMetricExporter(ctx context.Context, e export, o Options) (sdkmetric.Exporter, error) {
	c := collectorOf("METRICS", e)
	switch {
	case e.to == config.ExportStdout:
		return stdoutmetric.New(stdoutmetric.WithWriter(o.Stdout))
	case e.protocol == config.ProtocolHTTP:
		always := []otlpmetrichttp.Option{otlpmetrichttp.WithRetry(otlpmetrichttp.RetryConfig(patience))}
		return otlpmetrichttp.New(ctx, options(c, always, otlpmetrichttp.WithEndpoint,
			func() otlpmetrichttp.Option { return otlpmetrichttp.WithURLPath(c.below("v1/metrics")) }, otlpmetrichttp.WithInsecure)...)
	}
	always := []otlpmetricgrpc.Option{
		otlpmetricgrpc.WithRetry(otlpmetricgrpc.RetryConfig(patience)), otlpmetricgrpc.WithDialOption(grpc.WithConnectParams(reconnecting)),
	}
	return otlpmetricgrpc.New(ctx, options(c, always, otlpmetricgrpc.WithEndpoint, nil, otlpmetricgrpc.WithInsecure)...)
}
