package telemetry

import (
	"context"
	"errors"
	"time"

	"go.opentelemetry.io/otel/sdk/resource"

	"github.com/curfewmq/curfew/core/config"
	core "github.com/curfewmq/curfew/core/telemetry"
)

// scope is what spans and metrics say they were recorded by.
const scope = "github.com/curfewmq/curfew"

// traces are the way of spans out of the process. nil is none.
type traces struct {
	spans *core.Spans
	sink  sink
}

func openTraces(ctx context.Context, s settings, r *resource.Resource, o Options) (*traces, error) {
	to, err := newSink(ctx, s, r, o)
	if err != nil {
		return nil, err
	}
	return &traces{
		sink: to,
		spans: core.NewSpans(core.SpanOptions{
			Tracer: &tracer{to: to}, Clock: o.Clock, Buffer: o.Config.Traces.Buffer,
			Rest: rest, Sampling: s.sampling, AlwaysExpiries: o.Config.Traces.Expiries == config.ExpiriesAlways,
		}),
	}, nil
}

// rest waits for more spans to make.
func rest(many <-chan struct{}) {
	select {
	case <-many:
	case <-time.After(restTime):
	}
}

// restTime is how much later spans are made so that there are several to make.
const restTime = 100 * time.Millisecond

func newSink(ctx context.Context, s settings, r *resource.Resource, o Options) (sink, error) {
	if s.traces.to == config.ExportStdout {
		return &printer{to: o.Stdout}, nil
	}
	of, by := envelope(r.Attributes(), o.Version)
	return newBatches(ctx, newClient(s.traces), s.batches, of, by, o.Log)
}

// recorder is where the core's spans go.
func (t *traces) recorder() *core.Spans {
	if t == nil {
		return nil
	}
	return t.spans
}

func (t *traces) exported() (taken, lost uint64) {
	if t == nil {
		return 0, 0
	}
	return t.sink.exported()
}

func (t *traces) close(ctx context.Context) error {
	if t == nil {
		return nil
	}
	return errors.Join(t.spans.Close(ctx), t.sink.close(ctx))
}
