package session

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/curfewmq/curfew/core/amqp"
	"github.com/curfewmq/curfew/core/auth"
	"github.com/curfewmq/curfew/core/clock"
	"github.com/curfewmq/curfew/core/queue"
	"github.com/curfewmq/curfew/core/telemetry"
)

// tape is a sink that records spans.
type tape struct {
	mu    sync.Mutex // guards lines
	lines []string
}

// noted are the attributes that tape records.
var noted = []string{"messaging.rabbitmq.destination.routing_key", "curfew.publish.queues", "curfew.delivery.redelivered", "curfew.delivery.consumer_tag"}

func (t *tape) Take(s *telemetry.Span) bool {
	var b strings.Builder
	b.WriteString(s.Name)
	all := s.Attributes
	if s.Template != nil {
		all = slices.Concat(s.Template.Attributes, all)
	}
	for _, a := range all {
		if slices.Contains(noted, string(a.Key)) {
			fmt.Fprintf(&b, " %v", a.Value.AsInterface())
		}
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.lines = append(t.lines, b.String()+" in "+s.Trace.String())
	return true
}

// tracing is a server with tracing on, and its spans.
type tracing struct {
	t     *testing.T
	tape  tape
	spans *telemetry.Spans
}

func newTracing(t *testing.T, ratio float64) *tracing {
	t.Helper()
	tr := &tracing{t: t}
	tr.spans = telemetry.NewSpans(telemetry.SpanOptions{Sink: &tr.tape, Sampling: telemetry.Sampling{Ratio: ratio}})
	return tr
}

func (tr *tracing) options(o *Options) {
	o.Telemetry = telemetry.New(telemetry.Options{Events: 1, Spans: tr.spans})
}

// want compares the recorded spans.
func (tr *tracing) want(lines ...string) {
	tr.t.Helper()
	if !slices.Equal(tr.tape.lines, lines) {
		tr.t.Errorf("got the spans\n%s\nwant\n%s", strings.Join(tr.tape.lines, "\n"), strings.Join(lines, "\n"))
	}
}

// parentOf returns the context in headers and its trace.
func parentOf(tb testing.TB, p *amqp.Properties) (parent, id string) {
	tb.Helper()
	v, _ := p.Headers.Lookup("traceparent")
	parent, _ = v.(string)
	fields := strings.Split(parent, "-")
	if len(fields) != 4 {
		tb.Fatalf("got the headers %v, want a traceparent", p.Headers)
	}
	return parent, fields[1]
}

const (
	theirTrace = "0af7651916cd43dd8448eb211c80319c"
	sampled    = "00-" + theirTrace + "-b7ad6b7169203331-01"
	unsampled  = "00-" + theirTrace + "-b7ad6b7169203331-00"
)

// A message without a context gets one, and is traced from then on.
func TestMessagesWithoutAContextGetOne(t *testing.T) {
	tr := newTracing(t, 1)
	p := newProbe(t, tr.options).open().channel(1)
	p.queue(1, "q")
	var ids []string
	for _, props := range []amqp.Properties{{}, withHeaders("k", "v"), withHeaders("k", "v"), withHeaders("BCC", amqp.Array{"other"}, "k", "v")} {
		p.publish(1, published{key: "q", body: "m", props: props})
		_, got, body := p.got(1, "q")
		_, id := parentOf(t, &got)
		if v, _ := got.Headers.Lookup("k"); body != "m" || props.Headers != nil && v != "v" || len(got.Headers) > 2 {
			t.Errorf("got %q with the headers %v", body, got.Headers)
		}
		ids = append(ids, id)
	}
	if all := slices.Compact(slices.Sorted(slices.Values(ids))); len(all) != len(ids) {
		t.Errorf("got the traces %v, want each message in one of its own", ids)
	}
	var want []string
	for _, id := range ids {
		want = append(want, "publish q q 1 in "+id, "receive q q false in "+id)
	}
	tr.want(want...)
}

// A message whose headers fill a frame is left unchanged: with a context, it would not fit into its consumers' frames.
func TestNoRoomForAContext(t *testing.T) {
	tr := newTracing(t, 1)
	p := newProbe(t, tr.options).login()
	p.send(0, &amqp.ConnectionTuneOK{ChannelMax: 1, FrameMax: amqp.FrameMinSize}, &amqp.ConnectionOpen{VirtualHost: "/"})
	expect[*amqp.ConnectionOpenOK](p, 0)
	p.channel(1).queue(1, "q")
	none := len(withHeaders("k", "").Append(nil))
	for _, tc := range []struct {
		spare int // bytes that are left in the frame
		grows bool
	}{{spare: 72, grows: true}, {spare: 71}, {spare: 0}} {
		props := withHeaders("k", strings.Repeat("v", amqp.FrameMinSize-amqp.FrameOverhead-contentHeadSize-none-tc.spare))
		p.publish(1, published{key: "q", body: "m", props: props})
		if _, got, _ := p.got(1, "q"); (len(got.Headers) == 2) != tc.grows {
			t.Errorf("%d bytes are left: got %d headers", tc.spare, len(got.Headers))
		}
	}
}

// The publisher's own sampling decision applies, and its context stays as it is.
func TestParentSampling(t *testing.T) {
	for _, tc := range []struct {
		parent string
		spans  []string
	}{
		{sampled, []string{"publish q q 1 in " + theirTrace, "deliver q q false c in " + theirTrace}},
		{unsampled, nil},
	} {
		tr := newTracing(t, 1)
		p := newProbe(t, tr.options).open().channel(1)
		p.queue(1, "q")
		p.consume(1, "q", "c")
		props := withHeaders("traceparent", tc.parent, "tracestate", "a=1", "baggage", "b=2")
		p.publish(1, published{key: "q", body: "m", props: props})
		expect[*amqp.BasicDeliver](p, 1)
		if got, _ := p.content(1); string(got.Append(nil)) != string(props.Append(nil)) {
			t.Errorf("%s: got the properties %+v", tc.parent, got)
		}
		tr.want(tc.spans...)
	}
}

// With tracing off, messages stay as they are, and so do those that are not sampled.
func TestNotTraced(t *testing.T) {
	tr := newTracing(t, 0)
	for _, change := range [][]func(*Options){nil, {tr.options}} {
		p := newProbe(t, change...).open().channel(1)
		p.queue(1, "q")
		p.publish(1, published{key: "q", body: "m", props: withHeaders("k", "v")})
		if _, got, _ := p.got(1, "q"); len(got.Headers) != 1 {
			t.Errorf("got the headers %v", got.Headers)
		}
	}
	tr.want()
}

// A message that was traced before a restart may be delivered after tracing was switched off.
func TestTracedFromBefore(t *testing.T) {
	p := newProbe(t).open().channel(1)
	p.queue(1, "q")
	p.consume(1, "q", "c")
	v, _ := p.conn.srv.VHosts("/")
	b := queue.NewBatch()
	b.Messages = append(b.Messages, queue.Message{Routing: &queue.RoutingInfo{Key: "q"}, Props: []byte{0, 0}, Body: []byte("m"), Flags: queue.Traced})
	v.Mailbox("q").Publish(b)
	p.feed(nil)
	p.delivers(1, "c1:m")
}

// An unroutable message has a publish span, too, and is returned with its context.
func TestTracesOfUnroutableMessages(t *testing.T) {
	tr := newTracing(t, 1)
	p := newProbe(t, tr.options).open().channel(1)
	p.publish(1, published{key: "nowhere", mandatory: true, body: "back"})
	expect[*amqp.BasicReturn](p, 1)
	props, _ := p.content(1)
	_, id := parentOf(t, &props)
	tr.want("publish nowhere nowhere 0 in " + id)
}

// The spans of a transaction's messages are recorded when it is committed.
func TestTracesOfTransactions(t *testing.T) {
	tr := newTracing(t, 0)
	p := newProbe(t, tr.options).open().channel(1)
	p.queue(1, "q")
	do[*amqp.TxSelectOK](p, 1, &amqp.TxSelect{})
	props := withHeaders("traceparent", sampled)
	p.publish(1, published{key: "q", body: "never", props: props})
	p.rollback(1)
	p.publish(1, published{key: "nowhere", body: "lost", props: props}, published{key: "q", body: "m", props: props}, published{key: "q", body: "untraced"})
	p.commit(1)
	p.holds(1, "q", 2)
	tr.want("publish nowhere nowhere 0 in "+theirTrace, "publish q q 1 in "+theirTrace)
}

// Readers of traces must not learn the address of replies: anyone that knows it can send replies.
func TestTracesMaskReplyAddresses(t *testing.T) {
	tr := newTracing(t, 0)
	s := testServer(t, tr.options)
	p, server := probeOf(t, s, Peer{}).open().channel(1), probeOf(t, s, Peer{}).open().channel(1)
	p.queue(1, "requests")
	p.consumeReplies(1, "r")
	address := p.request(1)
	server.publish(1, published{key: address, body: "one", props: withHeaders("traceparent", sampled)})
	p.feed(nil)
	p.delivered(1, "one")
	tr.want(
		"publish "+replyTo+" "+replyTo+" 1 in "+theirTrace,
		"deliver "+replyTo+" "+replyTo+" false r in "+theirTrace,
	)
}

// Messages from the management API are traced as those from AMQP.
func TestTracesOfDirect(t *testing.T) {
	tr := newTracing(t, 1)
	s := testServer(t, tr.options)
	v, _ := s.VHosts("/")
	d := s.Direct(auth.User{Name: auth.Guest}, v, clock.New())
	t.Cleanup(d.Close)
	call[*amqp.QueueDeclareOK](t, d, &amqp.QueueDeclare{Queue: "q"})
	d.Publish(&amqp.BasicPublish{RoutingKey: "q"}, []byte{0, 0}, []byte("m"))
	_, r := call[*amqp.BasicGetOK](t, d, &amqp.BasicGet{Queue: "q", NoAck: true})
	props, err := amqp.ParseProperties(r.Props)
	if err != nil {
		t.Fatal(err)
	}
	_, id := parentOf(t, &props)
	tr.want("publish q q 1 in "+id, "receive q q false in "+id)
}
