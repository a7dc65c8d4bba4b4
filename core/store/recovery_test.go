package store

import (
	"fmt"
	"strings"
	"testing"

	"github.com/curfewmq/curfew/core/queue"
	"github.com/curfewmq/curfew/core/telemetry"
	"github.com/curfewmq/curfew/core/wlog/vfs"
	"github.com/curfewmq/curfew/sdk/hook"
)

// spanNames is a sink that writes down what spans are called, and their attributes.
type spanNames []string

func (n *spanNames) Take(s *telemetry.Span) bool {
	var b strings.Builder
	b.WriteString(s.Name)
	for _, a := range s.Attributes {
		fmt.Fprintf(&b, " %s=%s", a.Key, a.Value.String())
	}
	*n = append(*n, b.String())
	return true
}

// A restart that finds something says so, and whether a message is traced is known after it.
func TestRecoveryIsTold(t *testing.T) {
	var names spanNames
	spans := telemetry.NewSpans(telemetry.SpanOptions{Sink: &names})
	told := func(o *Options) { o.Telemetry = telemetry.New(telemetry.Options{Clock: o.Clock, Spans: spans}) }
	dir := vfs.Dir(t.TempDir())
	k := open(t, dir, told)
	q := k.declare("q")
	b := queue.NewBatch()
	arrived := make(outcome, 1)
	b.Publisher = arrived
	for _, flags := range []queue.Flags{queue.Persistent, queue.Persistent | queue.Traced} {
		b.Messages = append(b.Messages, queue.Message{Routing: &queue.RoutingInfo{Key: "q"}, Props: []byte{0, 0}, Body: []byte("m"), Flags: flags})
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
	if len(names) != 1 || !strings.HasPrefix(names[0], "recovery ") || !strings.Contains(names[0], "messages=2 curfew.recovery.queues=1") {
		t.Errorf("told of %q, want the recovery of the second start", names)
	}
}
