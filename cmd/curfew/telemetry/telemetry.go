// Package telemetry takes what the core tells of itself out of the process: spans, which it encodes itself, through the clients
// of OpenTelemetry's exporters, and metrics through its SDK. It is set up by the configuration and by the OTEL_ variables of the
// environment.
package telemetry

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/sdk/resource"

	"github.com/curfewmq/curfew/core/config"
	core "github.com/curfewmq/curfew/core/telemetry"
	"github.com/curfewmq/curfew/sdk/hook"
)

// Options are what telemetry is set up with.
type Options struct {
	Config  config.Telemetry
	Clock   func() hook.Instant
	Stdout  io.Writer // where the exporters called stdout write
	Log     *slog.Logger
	Version string // of the broker
	Node    string // the broker's name, which tells it from others of the same service
}

// Telemetry is what was set up.
type Telemetry struct {
	// Recorder is what the broker tells things to.
	Recorder *core.Recorder

	options  Options
	settings settings
	resource *resource.Resource
	traces   *traces  // nil: off
	metrics  *metrics // nil: nothing is gathered
}

// Open sets telemetry up. It does not wait for a collector. The error names the variables that are wrong.
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

// Close sends what was recorded, as long as ctx lasts.
func (t *Telemetry) Close(ctx context.Context) error {
	ended := make(chan error, 1)
	go func() { ended <- t.metrics.close(ctx) }() // neither waits for the other's collector
	err := t.traces.close(ctx)
	return once(err, <-ended)
}

// Exported returns how many spans a collector has taken, and how many it has not.
func (t *Telemetry) Exported() (taken, lost uint64) { return t.traces.exported() }

// describe makes the description of the broker that spans and metrics carry. What the environment says of it wins over what
// the broker says itself, and the configuration over both.
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
