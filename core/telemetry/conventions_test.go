package telemetry

import (
	"testing"

	"go.opentelemetry.io/otel/trace"

	"github.com/curfewmq/curfew/sdk/hook"
	"github.com/curfewmq/curfew/sdk/hook/guest"
)

// Fetching used to be called delivering, of kind producer, and publishing was named after the exchange and had another destination.
func TestConventions(t *testing.T) {
	type facts struct{ exchange, key, queue, tag string }
	publish := func(f facts) func(*Spans) {
		return func(s *Spans) {
			s.Published(&Message{Exchange: []byte(f.exchange), Key: []byte(f.key), Props: propsOf(traced)}, "app", 1)
		}
	}
	deliver := func(f facts) func(*Spans) {
		return func(s *Spans) {
			s.Delivered(&Message{Exchange: []byte(f.exchange), Key: []byte(f.key), Props: propsOf(traced)}, f.queue, noon, "app", f.tag, false)
		}
	}
	drop := func(f facts) func(*Spans) {
		return func(s *Spans) {
			s.removed(&QueueRef{Queue: f.queue}, noon, []Removal{{
				Exchange: []byte(f.exchange), Key: []byte(f.key), Props: propsOf(traced), Traced: true, Reason: hook.ReasonRejected,
			}})
		}
	}
	for _, tc := range []struct {
		name                   string
		tell                   func(*Spans)
		span                   string
		kind                   trace.SpanKind
		destination, operation string
		anonymous              bool
	}{
		{"to an exchange", publish(facts{exchange: "orders", key: "new"}), "publish orders:new", trace.SpanKindServer, "orders:new", "send", false},
		{"without a key", publish(facts{exchange: "orders"}), "publish orders", trace.SpanKindServer, "orders", "send", false},
		{"to the default exchange", publish(facts{key: "jobs"}), "publish jobs", trace.SpanKindServer, "jobs", "send", false},
		{"to nowhere", publish(facts{}), "publish amq.default", trace.SpanKindServer, "amq.default", "send", false},
		{"to a queue without a name", publish(facts{key: "amq.gen-x"}), "publish", trace.SpanKindServer, "amq.gen-x", "send", true},
		{"a reply", publish(facts{key: "amq.rabbitmq.reply-to"}), "publish amq.rabbitmq.reply-to", trace.SpanKindServer, "amq.rabbitmq.reply-to", "send", false},
		{"to a consumer", deliver(facts{"orders", "new", "q", "tag"}), "deliver q", trace.SpanKindProducer, "orders:new:q", "", false},
		{"fetched", deliver(facts{"orders", "new", "q", ""}), "receive q", trace.SpanKindServer, "orders:new:q", "receive", false},
		{"fetched from a queue without a name", deliver(facts{"orders", "new", "amq.gen-x", ""}), "receive", trace.SpanKindServer, "orders:new:amq.gen-x", "receive", true},
		{"dropped", drop(facts{"orders", "new", "q", ""}), "drop q", trace.SpanKindInternal, "orders:new:q", "", false},
		{"dropped from a queue without a name", drop(facts{"", "amq.gen-x", "amq.gen-x", ""}), "drop", trace.SpanKindInternal, "amq.gen-x", "", true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := one(t, tc.tell)
			belongs(t, s)
			if s.Name != tc.span || s.Kind != tc.kind {
				t.Errorf("it is %q, %v; want %q, %v", s.Name, s.Kind, tc.span, tc.kind)
			}
			has(t, s, "messaging.destination.name="+tc.destination)
			if got := s.attributes["messaging.operation.type"]; got != tc.operation {
				t.Errorf("the type of the operation is %q, want %q", got, tc.operation)
			}
			if got := s.attributes["messaging.destination.anonymous"]; (got == "true") != tc.anonymous {
				t.Errorf("anonymous is %q, want %t", got, tc.anonymous)
			}
		})
	}
}

func TestKindsOfErrors(t *testing.T) {
	for _, tc := range []struct{ failure, kind, want string }{
		{"", "", ""},
		{"", "trap", ""},
		{"fuel: it used up its fuel", "fuel", "fuel"},
		{"it is ill", "", "_OTHER"},
	} {
		s := one(t, func(s *Spans) {
			s.Decided(&QueueRef{VHost: "/", Queue: "q"}, noon, message(traced), &guest.Decision{Failure: tc.failure, FailureKind: tc.kind})
		})
		if got, there := s.attributes["error.type"]; got != tc.want || there != (tc.want != "") || s.Failure != tc.failure {
			t.Errorf("%+v: its error is %q, of kind %q (there: %t)", tc, s.Failure, got, there)
		}
	}
}
