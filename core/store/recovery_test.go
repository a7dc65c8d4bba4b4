package store

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/embedded"
	"go.opentelemetry.io/otel/trace/noop"

	"github.com/curfewmq/curfew/core/queue"
	"github.com/curfewmq/curfew/core/telemetry"
	"github.com/curfewmq/curfew/core/wlog/vfs"
	"github.com/curfewmq/curfew/sdk/hook"
)

// spanNames is a tracer that hands on what the spans that it is asked for are called, and their attributes.
type spanNames struct {
	embedded.Tracer
	names chan string
}

func (s *spanNames) Start(ctx context.Context, name string, _ ...trace.SpanStartOption) (context.Context, trace.Span) {
	return ctx, namedSpan{name: name, to: s}
}

// namedSpan hands on its name when its attributes are known.
type namedSpan struct {
	noop.Span
	name string
	to   *spanNames
}

func (s namedSpan) SetAttributes(as ...attribute.KeyValue) {
	var b strings.Builder
	b.WriteString(s.name)
	for _, a := range as {
		fmt.Fprintf(&b, " %s=%s", a.Key, a.Value.String())
	}
	s.to.names <- b.String()
}

// A restart that finds something says so, and whether a message is traced is known after it.
func TestRecoveryIsTold(t *testing.T) {
	tracer := &spanNames{names: make(chan string, 10)}
	spans := telemetry.NewSpans(telemetry.SpanOptions{Tracer: tracer, Buffer: 10})
	told := func(o *Options) { o.Telemetry = telemetry.New(telemetry.Options{Clock: o.Clock, Spans: spans}) }
	dir := vfs.Dir(t.TempDir())
	k := open(t, dir, told)
	q := k.declare("q")
	b := queue.NewBatch()
	arrived := make(outcome, 1)
	b.Source = arrived
	for _, flags := range []queue.Flags{queue.Persistent, queue.Persistent | queue.Traced} {
		b.Messages = append(b.Messages, queue.Publish{Origin: &queue.Origin{Key: "q"}, Props: []byte{0, 0}, Body: []byte("m"), Flags: flags})
	}
	q.Publish(b)
	must(t, <-arrived)
	k.close()

	k = open(t, dir, told)
	var traced []bool
	must(t, k.queue("q").Do(func(q *queue.Queue, now hook.Instant) {
		for q.Get(now, &queue.Consumer{}, func(d queue.Delivery, _ int) { traced = append(traced, d.Traced) }) {
			continue
		}
	}))
	if len(traced) != 2 || traced[0] || !traced[1] {
		t.Errorf("messages are traced %v", traced)
	}
	k.close()
	must(t, spans.Close(t.Context()))
	close(tracer.names)
	n := 0
	for name := range tracer.names {
		if n++; !strings.HasPrefix(name, "recovery ") || !strings.Contains(name, "messages=2 curfew.recovery.queues=1") {
			t.Errorf("told of %q", name)
		}
	}
	if n != 1 {
		t.Errorf("told of %d recoveries, want that of the second start", n)
	}
}
