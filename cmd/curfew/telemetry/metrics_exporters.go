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
	failed int // attempts since the last that went well; belongs to the goroutine that exports
}

// Export implements [sdkmetric.Exporter]. Its errors are logged, not returned. A collector that cannot be reached is tried again until
// ctx ends, with what was collected: counters go on from there.
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

// fail notes an attempt that failed, unless the broker ends it.
func (e *metricExporter) fail(ctx context.Context, err error) {
	if errors.Is(ctx.Err(), context.Canceled) {
		return
	}
	if e.failed == 0 {
		e.log.Warn("metrics are not sent: the collector does not take them; this is said once until it does", "error", brief(err))
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
