package telemetry

import (
	"net/url"
	"os"
	"path"
	"strings"

	"go.opentelemetry.io/otel/exporters/otlp/otlptrace"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracegrpc"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"

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

func (c collector) grpc() []otlptracegrpc.Option {
	if c.host == "" {
		return nil
	}
	os := []otlptracegrpc.Option{otlptracegrpc.WithEndpoint(c.host)}
	if c.insecure {
		os = append(os, otlptracegrpc.WithInsecure())
	}
	return os
}

func (c collector) http() []otlptracehttp.Option {
	if c.host == "" {
		return nil
	}
	os := []otlptracehttp.Option{otlptracehttp.WithEndpoint(c.host), otlptracehttp.WithURLPath(path.Join("/", c.path, "v1/traces"))}
	if c.insecure {
		os = append(os, otlptracehttp.WithInsecure())
	}
	return os
}
