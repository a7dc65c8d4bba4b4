package telemetry

import (
	"slices"
	"testing"
	"time"

	"github.com/curfewmq/curfew/core/amqp"
	"github.com/curfewmq/curfew/sdk/hook"
)

var place = &QueueRef{VHost: "/", Queue: "q", Strategy: "deadline"}

// expired is a message that entered ten seconds before noon and was due one second before noon.
func expired(headers amqp.RawTable) Removal {
	m := message(headers)
	return Removal{
		Exchange: m.Exchange, Key: m.Key, Props: m.Props, Size: m.Size, Traced: true, Reason: hook.ReasonExpired,
		Enqueued: noon.Add(-10 * time.Second), Deadline: noon.Add(-time.Second),
	}
}

func tapeOfLeft(t *testing.T, ls ...Removal) []*taped {
	t.Helper()
	return tapeOf(t, SpanOptions{}, func(s *Spans) { s.removed(place, noon, ls) })
}

func TestExpired(t *testing.T) {
	l := expired(traced)
	l.Digest = 0xfe
	spans := tapeOfLeft(t, l)
	if len(spans) != 1 || spans[0].Name != "expire q" {
		t.Fatalf("%d spans", len(spans))
	}
	s := spans[0]
	belongs(t, s)
	lasts(t, s, l.Enqueued, noon)
	has(t, s, "messaging.operation.name=expire", "messaging.destination.name=orders:new:q", "messaging.message.id=id-1",
		"curfew.queue=q", "curfew.expiry.strategy=deadline", "curfew.expiry.deadline=1970-01-01T11:59:59Z",
		"curfew.expiry.lateness_ms=1000", "curfew.dead_letter.reason=expired", "curfew.dead_letter.outcome=dropped",
		"curfew.policy.digest=sha256:00000000000000fe")
	want := []string{
		"enqueue +0s",
		"deadline_set +0s curfew.expiry.strategy=deadline curfew.expiry.deadline=1970-01-01T11:59:59Z",
		"due +9s",
		"decided +10s curfew.dead_letter.outcome=dropped",
	}
	if !slices.Equal(s.events, want) {
		t.Errorf("events %q\nwant   %q", s.events, want)
	}
}

func TestExpiredAndDeadLettered(t *testing.T) {
	l := expired(traced)
	l.Target, l.Outcome = &hook.Target{Exchange: "dlx", Key: "late", HasKey: true}, DeadLettered
	spans := tapeOfLeft(t, l)
	if len(spans) != 2 || spans[0].Name != "dead_letter q" || spans[1].Name != "expire q" {
		t.Fatalf("%d spans", len(spans))
	}
	letter, expire := spans[0], spans[1]
	belongs(t, expire)
	if letter.Trace != expire.Trace || letter.Parent != expire.ID || letter.Remote || letter.Link.String() != spanHex || !letter.LinkFlags.IsSampled() {
		t.Errorf("the dead letter is in %v, a child of %v, linked to %v", letter.Trace, letter.Parent, letter.Link)
	}
	lasts(t, letter, noon, noon)
	has(t, letter, "curfew.dead_letter.reason=expired", "curfew.dead_letter.outcome=dead_lettered",
		"curfew.dead_letter.exchange=dlx", "curfew.dead_letter.routing_key=late", "messaging.operation.type=send")
	if letter.Failure != "" {
		t.Error(letter.Failure)
	}
}

func TestLeftForOtherReasons(t *testing.T) {
	for _, tc := range []struct {
		name    string
		reason  hook.Reason
		target  *hook.Target
		outcome Outcome
		span    string
		failure string
		has     []string
	}{
		{
			name: "dropped", reason: hook.ReasonRejected, span: "drop q",
			has: []string{"curfew.dead_letter.reason=rejected", "curfew.dead_letter.outcome=dropped"},
		},
		{
			name: "dead-lettered", reason: hook.ReasonMaxLen, target: &hook.Target{}, outcome: DeadLettered, span: "dead_letter q",
			has: []string{"curfew.dead_letter.reason=maxlen", "curfew.dead_letter.exchange=amq.default"},
		},
		{
			name: "cycle", reason: hook.ReasonDeliveryLimit, target: &hook.Target{Exchange: "dlx"}, outcome: Cycle, span: "dead_letter q",
			failure: "the message is lost: cycle",
			has:     []string{"curfew.dead_letter.reason=delivery_limit", "curfew.dead_letter.outcome=cycle", "error.type=cycle"},
		},
		{
			name: "reason that is none", reason: hook.Reasons, span: "drop q",
			has: []string{"curfew.dead_letter.reason="},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			l := expired(traced)
			l.Reason, l.Target, l.Outcome = tc.reason, tc.target, tc.outcome
			spans := tapeOfLeft(t, l)
			if len(spans) != 1 || spans[0].Name != tc.span || spans[0].Failure != tc.failure {
				t.Fatalf("%d spans, the first is %s (%q)", len(spans), spans[0].Name, spans[0].Failure)
			}
			belongs(t, spans[0])
			has(t, spans[0], tc.has...)
			if kind, there := spans[0].attributes["error.type"]; there != (tc.failure != "") {
				t.Errorf("the kind of its error is %q", kind)
			}
		})
	}
}

func TestOnlyWhatIsTracedHasSpans(t *testing.T) {
	untraced, rejected := expired(nil), expired(nil)
	untraced.Traced, rejected.Traced, rejected.Reason = false, false, hook.ReasonRejected
	if n := len(tapeOfLeft(t, untraced, rejected)); n != 0 {
		t.Errorf("%d spans of messages that are not traced", n)
	}
	spans := tapeOf(t, SpanOptions{AlwaysExpiries: true}, func(s *Spans) { s.removed(place, noon, []Removal{untraced, rejected}) })
	if len(spans) != 1 || spans[0].Name != "expire q" {
		t.Fatalf("%d spans, want that of the expiry", len(spans))
	}
	if s := spans[0]; s.Parent.IsValid() || s.Link.IsValid() || !s.Trace.IsValid() {
		t.Errorf("trace %v, parent %v, link %v", s.Trace, s.Parent, s.Link)
	}
}

// A policy may decide that a message has expired without a deadline, or with a deadline before it entered.
func TestExpiredWithoutDeadline(t *testing.T) {
	for _, tc := range []struct {
		name               string
		enqueued, deadline hook.Instant
		events             int
	}{
		{"no deadline", noon - 5, 0, 2},
		{"nothing known", 0, 0, 2},
		{"deadline before it entered", noon - 5, noon - 10, 4},
		{"entered after now", noon + 5, noon, 4},
	} {
		t.Run(tc.name, func(t *testing.T) {
			l := expired(traced)
			l.Enqueued, l.Deadline = tc.enqueued, tc.deadline
			s := tapeOfLeft(t, l)[0]
			if len(s.events) != tc.events || s.Ended < s.Began {
				t.Errorf("events %q, from %v to %v", s.events, s.Began, s.Ended)
			}
		})
	}
}

func TestQueueExpired(t *testing.T) {
	end := QueueEnd{LastUse: noon.Add(-time.Minute), Lease: noon.Add(-time.Millisecond), Messages: 3, DeadLettered: 2}
	tell := func(s *Spans) { s.queueExpired(place, noon, &end) }
	s := one(t, tell)
	lasts(t, s, end.LastUse, noon)
	if s.Name != "queue_expire q" || s.Parent.IsValid() {
		t.Errorf("%s, parent %v", s.Name, s.Parent)
	}
	has(t, s, "curfew.queue=q", "curfew.vhost=/", "curfew.queue.idle_ms=60000", "curfew.queue.messages=3", "curfew.queue.dead_lettered=2",
		"curfew.expiry.strategy=deadline", "curfew.expiry.lateness_ms=1")
	if want := []string{"last_use +0s", "due +59.999s", "decided +1m0s"}; !slices.Equal(s.events, want) {
		t.Errorf("events %q, want %q", s.events, want)
	}
	for _, tc := range []struct {
		o    SpanOptions
		want int
	}{
		{SpanOptions{}, 0},
		{SpanOptions{AlwaysExpiries: true}, 1},
	} {
		if n := len(tapeOf(t, tc.o, tell)); n != tc.want {
			t.Errorf("%+v: %d spans, want %d", tc.o, n, tc.want)
		}
	}
}
