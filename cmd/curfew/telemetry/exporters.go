package telemetry

import (
	"net/url"
	"os"
	"path"
	"strings"
	"time"

	"go.opentelemetry.io/otel/exporters/otlp/otlptrace"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracegrpc"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"

	"github.com/curfewmq/curfew/core/config"
)

// newClient returns a client for spans. It does not connect yet.
func newClient(e export) otlptrace.Client {
	c := collectorOf("TRACES", e)
	if e.protocol == config.ProtocolHTTP {
		return otlptracehttp.NewClient(options(c, []otlptracehttp.Option{otlptracehttp.WithRetry(otlptracehttp.RetryConfig(patience))},
			otlptracehttp.WithEndpoint, func() otlptracehttp.Option { return otlptracehttp.WithURLPath(c.below("v1/traces")) },
			otlptracehttp.WithInsecure)...)
	}
	always := []otlptracegrpc.Option{
		otlptracegrpc.WithRetry(otlptracegrpc.RetryConfig(patience)), otlptracegrpc.WithDialOption(grpc.WithConnectParams(reconnecting)),
	}
	return otlptracegrpc.NewClient(options(c, always, otlptracegrpc.WithEndpoint, nil, otlptracegrpc.WithInsecure)...)
}

// collector is the address of a collector. The zero value leaves it to the environment's variables.
type collector struct {
	host     string // host:port; "" = left to the variables
	path     string // before /v1/traces
	insecure bool
}

func (c collector) below(name string) string { return path.Join("/", c.path, name) }

// collectorOf returns the collector for a signal: the one in the configuration or the variables, otherwise one on this machine, which
// OpenTelemetry calls without TLS.
func collectorOf(s signal, e export) collector {
	switch {
	case e.endpoint != "":
		return parseCollector(e.endpoint, e.insecure)
	case os.Getenv(s.variable("ENDPOINT")) != "":
		return collector{}
	case e.protocol == config.ProtocolHTTP:
		return collector{host: "localhost:4318", insecure: true}
	}
	return collector{host: "localhost:4317", insecure: true}
}

// parseCollector parses host:port or a URL. The text has been checked.
func parseCollector(endpoint string, insecure bool) collector {
	if !strings.Contains(endpoint, "://") {
		return collector{host: endpoint, insecure: insecure}
	}
	u, err := url.Parse(endpoint)
	if err != nil {
		return collector{host: endpoint, insecure: insecure}
	}
	return collector{host: u.Host, path: u.Path, insecure: u.Scheme == "http"}
}

// patience configures retries for a collector that does not answer, or asks to wait. They happen within two seconds, so that spans flow again
// soon after it recovers. The clients' own interval is half a minute, and gRPC's two minutes.
var patience = struct {
	Enabled                                      bool
	InitialInterval, MaxInterval, MaxElapsedTime time.Duration
}{true, 500 * time.Millisecond, 2 * time.Second, time.Minute}

var reconnecting = grpc.ConnectParams{
	Backoff:           backoff.Config{BaseDelay: 500 * time.Millisecond, Multiplier: 1.6, Jitter: 0.2, MaxDelay: 2 * time.Second},
	MinConnectTimeout: 5 * time.Second,
}

// options returns the options of an exporter for c; exporters are in four packages. They are always, and one for each setting of c.
func options[O any](c collector, always []O, host func(string) O, path func() O, insecure func() O) []O {
	if c.host == "" {
		return always
	}
	os := append(always, host(c.host))
	if path != nil {
		os = append(os, path())
	}
	if c.insecure {
		os = append(os, insecure())
	}
	return os
}
