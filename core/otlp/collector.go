package otlp

import (
	"context"
	"path"
	"time"

	"go.opentelemetry.io/otel/exporters/otlp/otlpmetric/otlpmetricgrpc"
	"go.opentelemetry.io/otel/exporters/otlp/otlpmetric/otlpmetrichttp"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracegrpc"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
)

// Collector is the address of a collector. OpenTelemetry's clients read headers,
// certificates, time limits and compression from the OTEL_ variables.
type Collector struct {
	Host     string // host:port; "" = the clients read the address from the OTEL_ variables, too
	Path     string // before /v1/traces and /v1/metrics, over HTTP
	Insecure bool   // without TLS
	HTTP     bool   // over HTTP; false = over gRPC
}

// SpanClient returns a client for [NewSpanExporter]. It does not connect yet.
func (c Collector) SpanClient() otlptrace.Client {
	if c.HTTP {
		always := []otlptracehttp.Option{otlptracehttp.WithRetry(otlptracehttp.RetryConfig(patience))}
		path := func() otlptracehttp.Option { return otlptracehttp.WithURLPath(c.below("v1/traces")) }
		return otlptracehttp.NewClient(options(c, always, otlptracehttp.WithEndpoint, path, otlptracehttp.WithInsecure)...)
	}
	always := []otlptracegrpc.Option{
		otlptracegrpc.WithRetry(otlptracegrpc.RetryConfig(patience)), otlptracegrpc.WithDialOption(grpc.WithConnectParams(reconnecting)),
	}
	return otlptracegrpc.NewClient(options(c, always, otlptracegrpc.WithEndpoint, nil, otlptracegrpc.WithInsecure)...)
}

// MetricClient returns an exporter for [NewMetricExporter]. It does not connect yet.
func (c Collector) MetricClient(ctx context.Context) (sdkmetric.Exporter, error) {
	if c.HTTP {
		always := []otlpmetrichttp.Option{otlpmetrichttp.WithRetry(otlpmetrichttp.RetryConfig(patience))}
		path := func() otlpmetrichttp.Option { return otlpmetrichttp.WithURLPath(c.below("v1/metrics")) }
		return otlpmetrichttp.New(ctx, options(c, always, otlpmetrichttp.WithEndpoint, path, otlpmetrichttp.WithInsecure)...)
	}
	always := []otlpmetricgrpc.Option{
		otlpmetricgrpc.WithRetry(otlpmetricgrpc.RetryConfig(patience)), otlpmetricgrpc.WithDialOption(grpc.WithConnectParams(reconnecting)),
	}
	return otlpmetricgrpc.New(ctx, options(c, always, otlpmetricgrpc.WithEndpoint, nil, otlpmetricgrpc.WithInsecure)...)
}

func (c Collector) below(name string) string { return path.Join("/", c.Path, name) }

// options returns the options of a client for c: always, and one for each setting of c.
// Each of the four clients has an option type of its own.
func options[O any](c Collector, always []O, host func(string) O, path func() O, insecure func() O) []O {
	if c.Host == "" {
		return always
	}
	os := append(always, host(c.Host))
	if path != nil {
		os = append(os, path())
	}
	if c.Insecure {
		os = append(os, insecure())
	}
	return os
}

// patience configures a client's retries for a collector that does not answer, or asks to
// wait. They happen within two seconds, so that spans flow again soon after the collector
// recovers. By default the clients wait up to half a minute, and gRPC up to two minutes.
var patience = struct {
	Enabled                                      bool
	InitialInterval, MaxInterval, MaxElapsedTime time.Duration
}{true, 500 * time.Millisecond, 2 * time.Second, time.Minute}

var reconnecting = grpc.ConnectParams{
	Backoff:           backoff.Config{BaseDelay: 500 * time.Millisecond, Multiplier: 1.6, Jitter: 0.2, MaxDelay: 2 * time.Second},
	MinConnectTimeout: 5 * time.Second,
}
