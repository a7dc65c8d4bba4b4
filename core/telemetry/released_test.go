package telemetry

import (
	"slices"
	"testing"
	"time"

	"github.com/curfewmq/curfew/sdk/hook"
)

// schedule is an exchange that holds messages.
var schedule = &QueueRef{VHost: "/", Queue: "later", Schedule: true}

// released is a message that entered ten seconds before noon, and was held until two milliseconds before noon.
func released(outcome Outcome) Removal {
	r := expired(traced)
	r.Reason, r.Outcome, r.Deadline, r.Held = hook.ReasonReleased, outcome, 0, noon.Add(-2*time.Millisecond)
	return r
}

// Held messages count as neither expired nor dead-lettered when they are released, moved or cancelled.
func TestKindsOfHeldMessages(t *testing.T) {
	to := &hook.Target{Exchange: "later"}
	for _, tc := range []struct {
		name    string
		removal Removal
		kind    Kind
		became  Outcome
	}{
		{"released in its queue", Removal{Reason: hook.ReasonReleased, Outcome: Ready}, MessageReleased, Ready},
		{"released to a queue", Removal{Reason: hook.ReasonReleased, Outcome: DeadLettered, Target: to}, MessageReleased, Routed},
		{"released to nobody", Removal{Reason: hook.ReasonReleased, Outcome: Unroutable, Target: to}, MessageDropped, Unroutable},
		{"released to no exchange", Removal{Reason: hook.ReasonReleased, Outcome: NoExchange, Target: to}, MessageDropped, NoExchange},
		{"redriven", Removal{Reason: hook.ReasonRedriven, Outcome: DeadLettered, Target: to}, MessageRedriven, Routed},
		{"redriven to nobody", Removal{Reason: hook.ReasonRedriven, Outcome: Unroutable, Target: to}, MessageDropped, Unroutable},
		{"cancelled", Removal{Reason: hook.ReasonCancelled}, ScheduleCancelled, Dropped},
		{"expired while it was held", Removal{Reason: hook.ReasonExpired, Held: noon}, MessageExpired, Dropped},
		{"rejected", Removal{Reason: hook.ReasonRejected, Outcome: DeadLettered, Target: to}, MessageDeadLettered, DeadLettered},
	} {
		r := New(Options{Events: 4})
		r.Removed(schedule, noon, []Removal{tc.removal})
		var events [1]Event
		if r.Events().Read(0, events[:]) != 1 || events[0].Kind != tc.kind || events[0].Outcome != tc.became || !events[0].Kind.OfMessage() {
			t.Errorf("%s: got %v, %v, want %v, %v", tc.name, events[0].Kind, events[0].Outcome, tc.kind, tc.became)
		}
	}
}

func TestLatenessOfReleases(t *testing.T) {
	onRequest, kept, cancelled := released(Ready), released(Ready), released(Dropped)
	onRequest.Held = 0
	kept.Reason = hook.ReasonRejected
	cancelled.Reason = hook.ReasonCancelled
	early := released(Ready)
	early.Held = noon.Add(time.Second)
	r := New(Options{})
	r.Removed(place, noon, []Removal{released(Ready), onRequest, kept, cancelled})
	r.Removed(schedule, noon, []Removal{released(DeadLettered), released(Unroutable), early})
	all := r.Lateness().Releases()
	if n, m := all[OfQueues].Count, all[OfExchanges].Count; n != 1 || m != 3 {
		t.Errorf("%d releases in queues, %d in exchanges; want 1, 3", n, m)
	}
	if got := all[OfExchanges].Sum; got < 0.0039 || got > 0.0041 {
		t.Errorf("they were %v s late, want 4 ms", got)
	}
	if expiries := r.Lateness().Read(); len(expiries) != 0 {
		t.Errorf("releases count as expiries: %v", expiries)
	}
	if all := (*Recorder)(nil).Lateness().Releases(); len(all) != 0 {
		t.Error(all)
	}
}

func TestHoldSpans(t *testing.T) {
	to := &hook.Target{Exchange: "later", Key: "new", HasKey: true}
	for _, tc := range []struct {
		name    string
		of      *QueueRef
		removal func() Removal
		span    string
		has     []string
		events  []string
		failure string
	}{
		{
			"in a queue", place, func() Removal { return released(Ready) }, "hold q",
			[]string{
				"messaging.operation.name=hold", "curfew.queue=q", "messaging.destination.name=orders:new:q", "curfew.dead_letter.reason=released",
				"curfew.dead_letter.outcome=ready", "curfew.hold.until=1970-01-01T11:59:59.998Z", "curfew.hold.lateness_ms=2",
			},
			[]string{"due +9.998s"},
			"",
		},
		{
			"in an exchange", schedule, func() Removal { r := released(DeadLettered); r.Target = to; return r }, "hold later",
			[]string{"curfew.schedule=later", "messaging.destination.name=orders:new", "curfew.dead_letter.outcome=routed"},
			[]string{"due +9.998s"},
			"",
		},
		{
			"lost at its release", schedule, func() Removal { r := released(Unroutable); r.Target = to; return r }, "hold later",
			[]string{"curfew.dead_letter.outcome=unroutable"},
			[]string{"due +9.998s"},
			"the message is lost: unroutable",
		},
		{
			"on request", place, func() Removal { r := released(Ready); r.Held = 0; return r }, "hold q",
			[]string{"curfew.dead_letter.outcome=ready"},
			nil, "",
		},
		{
			"cancelled", schedule, func() Removal { r := released(Dropped); r.Reason = hook.ReasonCancelled; return r }, "hold later",
			[]string{"curfew.dead_letter.reason=cancelled", "curfew.dead_letter.outcome=dropped", "curfew.hold.until=1970-01-01T11:59:59.998Z"},
			nil, "",
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r := tc.removal()
			spans := tapeOf(t, SpanOptions{}, func(s *Spans) { s.removed(tc.of, noon, []Removal{r}) })
			if len(spans) != 1 || spans[0].Name != tc.span {
				t.Fatalf("%d spans, %+v", len(spans), spans)
			}
			s := spans[0]
			belongs(t, s)
			lasts(t, s, r.Enqueued, noon)
			has(t, s, tc.has...)
			if !slices.Equal(s.events, tc.events) || s.Failure != tc.failure {
				t.Errorf("events %q, failure %q; want %q, %q", s.events, s.Failure, tc.events, tc.failure)
			}
			if _, ok := s.attributes["curfew.queue"]; ok == tc.of.Schedule {
				t.Errorf("names a queue: %v", ok)
			}
			if _, ok := s.attributes["curfew.hold.lateness_ms"]; ok && r.Reason == hook.ReasonCancelled {
				t.Error("what was cancelled was late")
			}
		})
	}
}

func TestRedriveSpan(t *testing.T) {
	r := expired(traced)
	r.Reason, r.Outcome, r.Target = hook.ReasonRedriven, DeadLettered, &hook.Target{Exchange: "orders"}
	spans := tapeOfLeft(t, r)
	if len(spans) != 1 || spans[0].Name != "redrive q" || spans[0].Failure != "" {
		t.Fatalf("%+v", spans)
	}
	has(t, spans[0], "messaging.operation.name=redrive", "messaging.operation.type=send", "curfew.dead_letter.exchange=orders",
		"curfew.dead_letter.reason=redriven", "curfew.dead_letter.outcome=routed")
}
