// Package telemetry exports the core's spans and metrics as the configuration and the OTEL_
// variables of the environment say: to a collector, through
// [github.com/curfewmq/curfew/core/otlp], to the terminal, and to Prometheus.
package telemetry

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/url"
	"os"
	"strings"

	"go.opentelemetry.io/otel/attribute"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/resource"

	"github.com/curfewmq/curfew/core/config"
	"github.com/curfewmq/curfew/core/otlp"
	core "github.com/curfewmq/curfew/core/telemetry"
	"github.com/curfewmq/curfew/sdk/hook"
)

// Options configure telemetry.
type Options struct {
	Config  config.Telemetry
	Clock   func() hook.Instant
	Stdout  io.Writer // where the exporters called stdout write
	Log     *slog.Logger
	Version string // of the broker
	Node    string // the broker's name, unique within the service
}

// Telemetry is the export of spans and metrics.
type Telemetry struct {
	// Recorder records the broker's activity.
	Recorder *core.Recorder

	options  Options
	settings settings
	resource *resource.Resource
	traces   *traces                  // nil: off
	metrics  *sdkmetric.MeterProvider // nil: nothing is gathered
}

// Open sets telemetry up. It does not wait for a collector. The error names wrong variables.
func Open(ctx context.Context, o Options) (*Telemetry, error) {
	handleErrors(o.Log)
	s, err := settle(&o.Config)
	if err != nil {
		return nil, err
	}
	r, err := describe(ctx, s.service, o)
	if err != nil {
		return nil, fmt.Errorf("OTEL_RESOURCE_ATTRIBUTES: %w", err)
	}
	t := &Telemetry{options: o, settings: s, resource: r}
	if s.traces.to != config.ExportOff {
		if t.traces, err = openTraces(ctx, s, r, o); err != nil {
			return nil, fmt.Errorf("telemetry.traces: %w", err)
		}
	}
	t.Recorder = core.New(core.Options{Clock: o.Clock, Events: o.Config.Events, Spans: t.traces.recorder()})
	return t, nil
}

// Close sends the recorded data, at most until ctx ends.
func (t *Telemetry) Close(ctx context.Context) error {
	ended := make(chan error, 1)
	go func() { // neither must wait for the other's collector
		if t.metrics == nil {
			ended <- nil
			return
		}
		ended <- t.metrics.Shutdown(ctx)
	}()
	err := t.traces.close(ctx)
	return once(err, <-ended)
}

// Exported returns how many spans were exported, and how many were lost.
func (t *Telemetry) Exported() (taken, lost uint64) { return t.traces.exported() }

// describe returns the resource of spans and metrics. The environment overrides the broker's own attributes, and the configuration
// overrides both.
func describe(ctx context.Context, service string, o Options) (*resource.Resource, error) {
	var named []attribute.KeyValue
	if service != "" {
		named = append(named, attribute.String("service.name", service))
	}
	r, err := resource.New(ctx,
		resource.WithAttributes(
			attribute.String("service.name", "curfew"),
			attribute.String("service.version", o.Version),
			attribute.String("service.instance.id", o.Node)),
		resource.WithHost(), resource.WithTelemetrySDK(),
		resource.WithFromEnv(), resource.WithAttributes(named...))
	if errors.Is(err, resource.ErrSchemaURLConflict) {
		err = nil
	}
	return r, err
}

// Collectors describes the destinations of spans and metrics: "off", "stdout", or protocol and address of a collector.
func (t *Telemetry) Collectors() (traces, metrics string) {
	return describeExport("TRACES", t.settings.traces), describeExport("METRICS", t.settings.metrics)
}

func describeExport(s signal, e export) string {
	if e.to != config.ExportOTLP {
		return string(e.to)
	}
	c := collectorOf(s, e)
	address := c.Host + c.Path
	if c.Host == "" {
		address = withoutLogin(os.Getenv(s.variable("ENDPOINT")))
	}
	return string(e.protocol) + " " + address
}

// withoutLogin removes the secret part of a URL.
func withoutLogin(address string) string {
	u, err := url.Parse(address)
	if err != nil {
		return "(not a URL)"
	}
	u.User, u.RawQuery, u.Fragment = nil, "", ""
	return u.String()
}

// collectorOf returns the collector for a signal: the one in the configuration or the variables, otherwise one on this machine, which
// OpenTelemetry calls without TLS.
func collectorOf(s signal, e export) otlp.Collector {
	c := otlp.Collector{HTTP: e.protocol == config.ProtocolHTTP}
	switch {
	case e.endpoint != "":
		c.Host, c.Path, c.Insecure = parseEndpoint(e.endpoint, e.insecure)
	case os.Getenv(s.variable("ENDPOINT")) != "":
	case c.HTTP:
		c.Host, c.Insecure = "localhost:4318", true
	default:
		c.Host, c.Insecure = "localhost:4317", true
	}
	return c
}

// parseEndpoint parses host:port or a URL. The text has been checked.
func parseEndpoint(endpoint string, withoutTLS bool) (host, path string, insecure bool) {
	if !strings.Contains(endpoint, "://") {
		return endpoint, "", withoutTLS
	}
	u, err := url.Parse(endpoint)
	if err != nil {
		return endpoint, "", withoutTLS
	}
	return u.Host, u.Path, u.Scheme == "http"
}
