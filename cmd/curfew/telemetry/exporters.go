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

// newClient makes what speaks to a collector that takes spans. It does not connect yet.
func newClient(e export) otlptrace.Client {
	c := collectorOf("TRACES", e)
	if e.protocol == config.ProtocolHTTP {
		return otlptracehttp.NewClient(c.http()...)
	}
	return otlptracegrpc.NewClient(c.grpc()...)
}

// collector is what exporters are told of one. The zero value lets variables speak.
type collector struct {
	host     string // host:port; "" = what variables say
	path     string // before /v1/traces
	insecure bool
}

// collectorOf returns the collector for a signal: the configuration's, that of variables, or the one on this machine, which
// OpenTelemetry has without TLS.
func collectorOf(s signal, e export) collector {
	switch {
	case e.endpoint != "":
		return parseCollector(e.endpoint, e.insecure)
	case os.Getenv(s.variable(envEndpoint)) != "":
		return collector{}
	case e.protocol == config.ProtocolHTTP:
		return collector{host: "localhost:4318", insecure: true}
	}
	return collector{host: "localhost:4317", insecure: true}
}

// parseCollector takes host:port or a URL apart, which were checked.
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

// patience is how a collector is tried again that does not answer, or asks to wait: within two seconds, so that spans flow again
// soon after it does. The clients' own is half a minute, and as long as two of gRPC's.
var patience = struct {
	Enabled                                      bool
	InitialInterval, MaxInterval, MaxElapsedTime time.Duration
}{true, 500 * time.Millisecond, 2 * time.Second, time.Minute}

var reconnecting = grpc.ConnectParams{
	Backoff:           backoff.Config{BaseDelay: 500 * time.Millisecond, Multiplier: 1.6, Jitter: 0.2, MaxDelay: 2 * time.Second},
	MinConnectTimeout: 5 * time.Second,
}

func (c collector) grpc() []otlptracegrpc.Option {
	os := []otlptracegrpc.Option{
		otlptracegrpc.WithRetry(otlptracegrpc.RetryConfig(patience)), otlptracegrpc.WithDialOption(grpc.WithConnectParams(reconnecting)),
	}
	if c.host == "" {
		return os
	}
	os = append(os, otlptracegrpc.WithEndpoint(c.host))
	if c.insecure {
		os = append(os, otlptracegrpc.WithInsecure())
	}
	return os
}

func (c collector) http() []otlptracehttp.Option {
	os := []otlptracehttp.Option{otlptracehttp.WithRetry(otlptracehttp.RetryConfig(patience))}
	if c.host == "" {
		return os
	}
	os = append(os, otlptracehttp.WithEndpoint(c.host), otlptracehttp.WithURLPath(path.Join("/", c.path, "v1/traces")))
	if c.insecure {
		os = append(os, otlptracehttp.WithInsecure())
	}
	return os
}
