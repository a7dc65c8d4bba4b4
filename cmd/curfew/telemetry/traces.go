package telemetry

import (
	"context"

	"go.opentelemetry.io/otel/sdk/resource"

	"github.com/curfewmq/curfew/core/config"
	core "github.com/curfewmq/curfew/core/telemetry"
)

// scope is the instrumentation scope of spans and metrics.
const scope = "github.com/curfewmq/curfew"

// traces are the core's spans and their sink; nil = off.
type traces struct {
	spans *core.Spans
	sink  sink
}

func openTraces(ctx context.Context, s settings, r *resource.Resource, o Options) (*traces, error) {
	to, err := newSink(ctx, s, r, o)
	if err != nil {
		return nil, err
	}
	spans := core.SpanOptions{
		Sink: to, Clock: o.Clock, Sampling: s.sampling, AlwaysExpiries: o.Config.Traces.Expiries == config.ExpiriesAlways,
	}
	if b, ok := to.(*batches); ok {
		spans.FlushDue, spans.MaxBuffered, spans.FlushEvery = b.wake.kick, b.limits.waiting, b.limits.spans
	}
	t := &traces{sink: to, spans: core.NewSpans(spans)}
	to.start(t.spans.Flush, t.spans.Dropped)
	return t, nil
}

func newSink(ctx context.Context, s settings, r *resource.Resource, o Options) (sink, error) {
	if s.traces.to == config.ExportStdout {
		return newPrinter(o.Stdout, o.Log), nil
	}
	of, by := envelope(r.Attributes(), r.SchemaURL(), o.Version)
	return newBatches(ctx, newClient(s.traces), s.batches, of, by, o.Log)
}

// recorder returns the core's spans; nil = none.
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
	return t.sink.close(ctx)
}
