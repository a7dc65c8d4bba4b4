package telemetry

import (
	"context"
	"log/slog"
	"time"

	"go.opentelemetry.io/otel/sdk/resource"

	"github.com/curfewmq/curfew/core/config"
	"github.com/curfewmq/curfew/core/otlp"
	core "github.com/curfewmq/curfew/core/telemetry"
)

// scope is the instrumentation scope of spans and metrics.
const scope = "github.com/curfewmq/curfew"

// traces are the core's spans and their sink; nil = off.
type traces struct {
	spans   *core.Spans
	sink    sink
	drops   dropLog
	closing chan struct{} // closed by close
	ended   chan struct{} // closed when watch has ended
}

// sink is a destination for spans.
type sink interface {
	core.Sink
	// Start starts the sink. flush makes the core convert its buffered spans.
	Start(ctx context.Context, flush func()) error
	// Close exports the spans that were taken, at most until ctx ends. The sink then takes no more.
	Close(ctx context.Context) error
	// Exported returns how many spans were exported, and how many were lost. Any goroutine may call it.
	Exported() (exported, lost uint64)
}

func openTraces(ctx context.Context, s settings, r *resource.Resource, o Options) (*traces, error) {
	var to sink
	spans := core.SpanOptions{Clock: o.Clock, Sampling: s.sampling, AlwaysExpiries: o.Config.Traces.Expiries == config.ExpiriesAlways}
	if s.traces.to == config.ExportStdout {
		to = newPrinter(o.Stdout)
	} else {
		from := otlp.Source{Resource: r, Scope: scope, Version: o.Version}
		e := otlp.NewSpanExporter(collectorOf("TRACES", s.traces).SpanClient(), from, s.batches, o.Log)
		to, spans.FlushDue, spans.MaxBuffered, spans.FlushEvery = e, e.Wake, s.batches.Waiting, s.batches.Batch
	}
	t := newTraces(to, spans, o.Log)
	if err := to.Start(ctx, t.spans.Flush); err != nil {
		return nil, err
	}
	go t.watch()
	return t, nil
}

func newTraces(to sink, o core.SpanOptions, log *slog.Logger) *traces {
	o.Sink = to
	return &traces{sink: to, spans: core.NewSpans(o), drops: dropLog{log: log}, closing: make(chan struct{}), ended: make(chan struct{})}
}

// watch looks for dropped spans each second until close.
func (t *traces) watch() {
	defer close(t.ended)
	each := time.NewTicker(time.Second)
	defer each.Stop()
	for {
		select {
		case <-each.C:
			t.drops.look(time.Now(), t.spans.Dropped(), false)
		case <-t.closing:
			t.drops.look(time.Now(), t.spans.Dropped(), true)
			return
		}
	}
}

// recorder returns the core's spans; nil = none.
func (t *traces) recorder() *core.Spans {
	if t == nil {
		return nil
	}
	return t.spans
}

func (t *traces) exported() (exported, lost uint64) {
	if t == nil {
		return 0, 0
	}
	return t.sink.Exported()
}

func (t *traces) close(ctx context.Context) error {
	if t == nil {
		return nil
	}
	err := t.sink.Close(ctx)
	close(t.closing)
	<-t.ended
	return err
}
