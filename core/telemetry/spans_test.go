package telemetry

import (
	"bytes"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"

	"github.com/curfewmq/curfew/core/amqp"
	"github.com/curfewmq/curfew/sdk/hook"
	"github.com/curfewmq/curfew/sdk/hook/guest"
)

// tape is a sink that records spans.
type tape struct {
	spans []*taped
	full  bool // it refuses all spans
}

var _ Sink = (*tape)(nil)

type taped struct {
	Span
	attributes map[string]string
	events     []string
}

func (t *tape) Take(p *Span) bool {
	if t.full {
		return false
	}
	s := &taped{Span: *p, attributes: readable(p.Attributes)}
	if p.Template != nil {
		maps.Copy(s.attributes, readable(p.Template.Attributes))
	}
	s.Name, s.Template, s.Attributes, s.Events = strings.Clone(p.Name), nil, nil, nil
	for _, h := range p.Events {
		s.events = append(s.events, fmt.Sprintf("%s +%v%s", h.Name, h.At.Sub(p.Began), attributesOf(h.Attributes)))
	}
	t.spans = append(t.spans, s)
	return true
}

func readable(as []attribute.KeyValue) map[string]string {
	m := map[string]string{}
	for _, a := range as {
		m[strings.Clone(string(a.Key))] = strings.Clone(a.Value.String())
	}
	return m
}

func attributesOf(as []attribute.KeyValue) string {
	var b strings.Builder
	for _, a := range as {
		fmt.Fprintf(&b, " %s=%s", a.Key, a.Value.String())
	}
	return b.String()
}

const noon = hook.Instant(12 * time.Hour)

// tapeOf returns the spans that tell causes.
func tapeOf(t *testing.T, o SpanOptions, tell func(s *Spans)) []*taped {
	t.Helper()
	to := &tape{}
	o.Sink, o.Clock = to, func() hook.Instant { return noon }
	s := NewSpans(o)
	tell(s)
	if s.Dropped() != 0 || s.Made() != uint64(len(to.spans)) {
		t.Errorf("%d spans made, %d dropped; %d arrived", s.Made(), s.Dropped(), len(to.spans))
	}
	return to.spans
}

// one is tapeOf for a single span.
func one(t *testing.T, tell func(s *Spans)) *taped {
	t.Helper()
	spans := tapeOf(t, SpanOptions{Sampling: Sampling{Ratio: 1}}, tell)
	if len(spans) != 1 {
		t.Fatalf("%d spans, want 1", len(spans))
	}
	return spans[0]
}

var traced = table(amqp.Field{Key: "traceparent", Value: sampled}, amqp.Field{Key: "tracestate", Value: "a=1"})

func message(headers amqp.RawTable) *Message {
	return &Message{VHost: "/", Exchange: []byte("orders"), Key: []byte("new"), Props: propsOf(headers), Size: 7}
}

// belongs checks that a span is a child of the context in the message, and not also linked to it: viewers would draw both.
func belongs(t *testing.T, s *taped) {
	t.Helper()
	if s.Trace.String() != traceHex || s.Parent.String() != spanHex || !s.Remote || s.State != "a=1" {
		t.Errorf("%s: it is in trace %v, a child of %v (remote: %v), state %q", s.Name, s.Trace, s.Parent, s.Remote, s.State)
	}
	if s.Link.IsValid() {
		t.Errorf("%s: it is linked to %v, flags %v", s.Name, s.Link, s.LinkFlags)
	}
}

// has checks a span's attributes: want is "name=value" by the line.
func has(t *testing.T, s *taped, want ...string) {
	t.Helper()
	for _, w := range want {
		name, value, _ := strings.Cut(w, "=")
		if got, ok := s.attributes[name]; !ok || got != value {
			t.Errorf("%s: %s = %q (there: %v), want %q", s.Name, name, got, ok, value)
		}
	}
}

func lasts(t *testing.T, s *taped, began, ended hook.Instant) {
	t.Helper()
	if s.Began != began || s.Ended != ended {
		t.Errorf("%s: from %v to %v, want %v to %v", s.Name, s.Began.Time(), s.Ended.Time(), began.Time(), ended.Time())
	}
}

func TestJudge(t *testing.T) {
	headers := func(parent string) amqp.RawTable { return table(amqp.Field{Key: "traceparent", Value: parent}) }
	for _, tc := range []struct {
		name     string
		sampling Sampling
		headers  amqp.RawTable
		want     ParentSampling
	}{
		{"no headers", Sampling{Ratio: 1}, nil, NoParent},
		{"garbage", Sampling{Ratio: 1}, headers("00-garbage"), NoParent},
		{"sampled", Sampling{}, headers(sampled), ParentSampled},
		{"not sampled", Sampling{Ratio: 1}, headers(ignored), ParentNotSampled},
		{"all, whatever they say", Sampling{Ratio: 1, ByRatio: true}, headers(ignored), ParentSampled},
		{"none, whatever they say", Sampling{ByRatio: true}, headers(sampled), ParentNotSampled},
		{"low number", Sampling{Ratio: 0.5, ByRatio: true}, headers("00-0af7651916cd43dd0448eb211c80319c-" + spanHex + "-00"), ParentSampled},
		{"high number", Sampling{Ratio: 0.5, ByRatio: true}, headers("00-0af7651916cd43ddf448eb211c80319c-" + spanHex + "-01"), ParentNotSampled},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := NewSpans(SpanOptions{Sampling: tc.sampling})
			if got := s.ParentSamplingOf(tc.headers); got != tc.want {
				t.Errorf("%v, want %v", got, tc.want)
			}
		})
	}
}

func TestDraw(t *testing.T) {
	const tries = 100_000
	for _, tc := range []struct {
		ratio     float64
		low, high int
	}{
		{0, 0, 0},
		{0.01, 700, 1300}, // ten standard deviations
		{1, tries, tries},
	} {
		s := NewSpans(SpanOptions{Sampling: Sampling{Ratio: tc.ratio}})
		n := 0
		for range tries {
			if s.SampleRoot() {
				n++
			}
		}
		if n < tc.low || n > tc.high {
			t.Errorf("ratio %v: %d of %d were drawn", tc.ratio, n, tries)
		}
	}
}

func TestInject(t *testing.T) {
	for _, tc := range []struct {
		name    string
		headers amqp.RawTable
		want    []string // headers that are there afterwards
	}{
		{"without headers", nil, []string{"traceparent"}},
		{"with headers", table(amqp.Field{Key: "a", Value: true}, amqp.Field{Key: "baggage", Value: "b=1"}), []string{"a", "baggage", "traceparent"}},
		{"with what is no context", table(amqp.Field{Key: "traceparent", Value: 1.5}, amqp.Field{Key: "tracestate", Value: "a=1"}, amqp.Field{Key: "a", Value: true}), []string{"a", "traceparent"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := &Spans{}
			before := propsOf(tc.headers)
			kept := bytes.Clone(before)
			props := inject(s, before)
			p, err := amqp.ParseProperties(props)
			if err != nil {
				t.Fatal(err)
			}
			if p.MessageID != "id-1" || p.CorrelationID != "talk-1" || p.Expiration != "100" || !bytes.Equal(before, kept) {
				t.Errorf("other properties have changed: %+v", p)
			}
			var names []string
			for _, f := range p.Headers {
				names = append(names, f.Key)
			}
			if !slices.Equal(names, tc.want) {
				t.Errorf("headers %v, want %v", names, tc.want)
			}
		})
	}
}

func indexOf(props []byte) amqp.PropIndex {
	x, err := amqp.ScanProps(props)
	if err != nil {
		panic(err)
	}
	return x
}

// inject calls Inject for properties without an index.
func inject(s *Spans, props []byte) []byte {
	injected, _ := s.Inject(props, indexOf(props))
	return injected
}

// Properties share memory: none overwrites another, whatever their sizes, even if bytes are appended.
func TestInjectedPropertiesAreApart(t *testing.T) {
	s := NewSpans(SpanOptions{Sampling: Sampling{Ratio: 0.5}})
	var all, copies [][]byte
	for i := range 500 {
		p := amqp.Properties{MessageID: strings.Repeat("x", i%250)}
		p.Set(amqp.PropMessageID)
		props := inject(s, p.Append(nil))
		all, copies = append(all, props), append(copies, bytes.Clone(props))
	}
	seen := map[spanContext]bool{}
	for i, props := range all {
		_ = append(props, strings.Repeat("y", 200)...)
		x := indexOf(copies[i])
		c := contextOf(x.Headers(copies[i]))
		if id, _ := x.MessageID(copies[i]); len(id) != i%250 || !c.valid() || seen[c] {
			t.Fatalf("message %d: an id of %d bytes, context %+v", i, len(id), c)
		}
		seen[c] = true
	}
	for i, props := range all {
		if !bytes.Equal(props, copies[i]) {
			t.Fatalf("message %d has the properties %q, had %q", i, props, copies[i])
		}
	}
}

func TestPublished(t *testing.T) {
	s := one(t, func(s *Spans) { s.Published(message(traced), "app", 2) })
	belongs(t, s)
	lasts(t, s, noon, noon)
	if s.Name != "publish orders:new" || s.Kind != trace.SpanKindServer {
		t.Errorf("%s, %v", s.Name, s.Kind)
	}
	has(t, s, "messaging.system=rabbitmq", "messaging.operation.name=publish", "messaging.operation.type=send",
		"messaging.destination.name=orders:new", "messaging.rabbitmq.destination.routing_key=new", "messaging.message.id=id-1",
		"messaging.message.conversation_id=talk-1", "messaging.message.body.size=7", "messaging.client.id=app",
		"curfew.vhost=/", "curfew.publish.queues=2")
}

// A message without a context gets one that names its publish span, the first of the trace.
func TestInjectedContextNamesThePublishing(t *testing.T) {
	var props []byte
	s := one(t, func(s *Spans) {
		m := message(nil)
		m.Props, m.Injected = inject(s, m.Props), true
		props = m.Props
		s.Published(m, "app", 1)
	})
	x, err := amqp.ScanProps(props)
	if err != nil {
		t.Fatal(err)
	}
	c := contextOf(x.Headers(props))
	if s.Trace != c.trace || s.ID != c.span {
		t.Errorf("the span is %v %v, the message says %v %v", s.Trace, s.ID, c.trace, c.span)
	}
	if s.Parent.IsValid() || s.Remote || s.Link.IsValid() || s.Kind != trace.SpanKindProducer {
		t.Errorf("parent %v, link %v, %v", s.Parent, s.Link, s.Kind)
	}
}

func TestDelivered(t *testing.T) {
	s := one(t, func(s *Spans) { s.Delivered(message(traced), "new-orders", noon-5, "worker", "ctag", true) })
	belongs(t, s)
	lasts(t, s, noon-5, noon)
	if s.Name != "deliver new-orders" || s.Kind != trace.SpanKindProducer {
		t.Errorf("%s, %v", s.Name, s.Kind)
	}
	has(t, s, "messaging.operation.name=deliver", "messaging.destination.name=orders:new:new-orders", "curfew.queue=new-orders",
		"messaging.client.id=worker", "curfew.delivery.consumer_tag=ctag", "curfew.delivery.redelivered=true")
}

func TestDecided(t *testing.T) {
	attributes := []string{"colour", "red"}
	target := &hook.Target{Exchange: "dlx", Key: "k", HasKey: true}
	s := one(t, func(s *Spans) {
		s.Decided(&QueueRef{VHost: "/", Queue: "q"}, noon, message(traced), &guest.Decision{
			Policy: "size-ttl", Digest: "sha256:00", Hook: "on_enqueue", Took: time.Millisecond, Batch: 3, Fuel: 99,
			Verdict: hook.Verdict{Action: hook.Route, Reason: hook.ReasonExpired, Target: target}, Failure: "no \xff fuel", Attributes: attributes,
		})
		attributes[1], target.Key = "overwritten", "overwritten" // who decided may use them again
	})
	belongs(t, s)
	lasts(t, s, noon, noon+hook.Instant(time.Millisecond))
	if s.Name != "policy size-ttl" || s.Failure != "no � fuel" {
		t.Errorf("%s, failure %q", s.Name, s.Failure)
	}
	has(t, s, "curfew.policy.name=size-ttl", "curfew.policy.digest=sha256:00", "curfew.policy.hook=on_enqueue", "curfew.policy.fuel=99",
		"curfew.policy.batch=3", "curfew.policy.verdict=route", "curfew.dead_letter.reason=expired", "curfew.dead_letter.exchange=dlx",
		"curfew.dead_letter.routing_key=k", "curfew.policy.attribute.colour=red")
}

func TestDecidedToHold(t *testing.T) {
	for action, want := range map[hook.Action]bool{hook.Keep: true, hook.Drop: false} {
		s := one(t, func(s *Spans) {
			d := guest.Decision{Verdict: hook.Verdict{Action: action, Hold: noon.AddMillis(1500)}}
			s.Decided(&QueueRef{VHost: "/", Queue: "q"}, noon, message(traced), &d)
		})
		if until, ok := s.attributes["curfew.policy.hold"]; ok != want || ok && until != instant(noon.AddMillis(1500)) {
			t.Errorf("action %d: got %q, %t, want %t", action, until, ok, want)
		}
	}
}

func TestRecovered(t *testing.T) {
	s := one(t, func(s *Spans) {
		s.Recovered(&Recovery{Began: 5, Ended: 9, Bytes: 1, Entries: 2, Messages: 3, Queues: 4})
	})
	lasts(t, s, 5, 9)
	has(t, s, "curfew.recovery.bytes=1", "curfew.recovery.entries=2", "curfew.recovery.messages=3", "curfew.recovery.queues=4")
}

// Clients' names must not prevent a batch from being sent: all texts have to be UTF-8.
func TestNamesAreMadeValid(t *testing.T) {
	s := one(t, func(s *Spans) {
		s.Published(&Message{VHost: "\xff", Exchange: []byte("e\xff"), Key: []byte("\xfe"), Props: []byte{0, 0}}, "\xff", 0)
	})
	if s.Name != "publish e�:�" {
		t.Errorf("%q", s.Name)
	}
	for name, value := range s.attributes {
		if strings.ToValidUTF8(value, "") != value {
			t.Errorf("%s = %q", name, value)
		}
	}
}

// If a sink is full, spans are lost and counted, with no other effect.
func TestFullSink(t *testing.T) {
	to := &tape{full: true}
	s := NewSpans(SpanOptions{Sink: to, Sampling: Sampling{Ratio: 1}})
	r := New(Options{Events: 8, Spans: s})
	m := message(traced)
	left := []Removal{{Exchange: m.Exchange, Key: m.Key, Props: m.Props, Reason: hook.ReasonExpired, Traced: true}}
	for range 3 {
		r.Removed(&QueueRef{Queue: "q"}, noon, left)
	}
	s.Published(m, "", 1)
	s.Delivered(m, "q", noon, "", "", false)
	if s.Made() != 5 || s.Dropped() != 5 {
		t.Errorf("%d made, %d dropped; want 5", s.Made(), s.Dropped())
	}
	to.full = false
	s.Published(m, "", 1)
	if len(to.spans) != 1 || s.Dropped() != 5 {
		t.Errorf("%d arrived, %d dropped; want 1 and 5", len(to.spans), s.Dropped())
	}
}

// nowhere is a sink that takes everything.
type nowhere struct{}

func (nowhere) Take(*Span) bool { return true }

// Tracing a message produces no garbage, except for its tracestate.
func TestSpansCostNoMemory(t *testing.T) {
	if lossyPools {
		t.Skip("the race detector has sync.Pool drop what it is given")
	}
	s := NewSpans(SpanOptions{Sink: nowhere{}})
	m := message(table(amqp.Field{Key: "traceparent", Value: sampled}))
	if n := testing.AllocsPerRun(100, func() {
		s.Published(m, "app", 1)
		s.Delivered(m, "q", noon, "app", "tag", false)
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func TestUntracedMessagesCostNoMemory(t *testing.T) {
	s := NewSpans(SpanOptions{Sampling: Sampling{Ratio: 0.5}})
	r := New(Options{Events: 0, Spans: s})
	headers, garbage := traced, table(amqp.Field{Key: "traceparent", Value: "garbage"})
	place := &QueueRef{VHost: "/", Queue: "q", Strategy: "deadline"}
	left := []Removal{{Reason: hook.ReasonRejected}, {Reason: hook.ReasonMaxLen}}
	for _, tc := range []struct {
		name string
		do   func()
	}{
		{"judge", func() { s.ParentSamplingOf(headers); s.ParentSamplingOf(garbage); s.ParentSamplingOf(nil) }},
		{"draw", func() { s.SampleRoot() }},
		{"left", func() { s.removed(place, noon, left) }},
		{"nobody listens", func() { (*Recorder)(nil).Removed(place, noon, left); _ = (*Recorder)(nil).Spans() }},
		{"off", func() { _ = r.Spans() }},
	} {
		if n := testing.AllocsPerRun(100, tc.do); n != 0 {
			t.Errorf("%s: %v allocations", tc.name, n)
		}
	}
}
