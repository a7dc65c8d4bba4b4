package telemetry

import (
	"context"
	"crypto/rand"
	"fmt"
	"maps"
	"testing"

	"github.com/rabbitmq/amqp091-go"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	"github.com/curfewmq/curfew/tests/process"
)

// broker is a broker with an open channel that is in confirm mode.
type broker struct {
	*process.Process
	t  *testing.T
	ch *amqp091.Channel
}

func start(t *testing.T, yaml string, args ...string) *broker {
	t.Helper()
	b := &broker{Process: process.Start(t, yaml, args...), t: t}
	b.open()
	return b
}

// in is the broker as a part of the test sees it.
func (b broker) in(t *testing.T) *broker {
	t.Helper()
	b.t = t
	return &b
}

// open connects.
func (b *broker) open() {
	b.t.Helper()
	conn, err := process.Dial(b.URL())
	must(b.t, err)
	b.t.Cleanup(func() { _ = conn.Close() }) // the broker may have gone before
	b.ch, err = conn.Channel()
	must(b.t, err)
	must(b.t, b.ch.Confirm(false))
	must(b.t, b.ch.Qos(1, 0, false))
}

// toGRPC is a configuration that sends spans to a collector.
func toGRPC(c *collector, more string) string {
	return "telemetry:\n  otlp: {endpoint: \"" + c.address + "\", insecure: true}\n  traces: {exporter: otlp" + more + "}\n  metrics: {exporter: off}\n"
}

// origin is the context of a message: the span of who published it.
type origin struct {
	trace, span string // hexadecimal digits
	headers     amqp091.Table
}

// sent makes the context of a new trace that is sampled, and lets OpenTelemetry's propagator write it into headers.
func sent(t *testing.T) *origin {
	t.Helper()
	return sentWith(t, trace.FlagsSampled)
}

func sentWith(t *testing.T, flags trace.TraceFlags) *origin {
	t.Helper()
	var c trace.SpanContextConfig
	_, _ = rand.Read(c.TraceID[:])
	_, _ = rand.Read(c.SpanID[:])
	c.TraceFlags = flags
	state, err := trace.ParseTraceState("vendor=1")
	must(t, err)
	c.TraceState = state
	headers := amqp091.Table{"baggage": "user=alice"}
	ctx := trace.ContextWithSpanContext(t.Context(), trace.NewSpanContext(c))
	propagation.TraceContext{}.Inject(ctx, carrier(headers))
	return &origin{trace: c.TraceID.String(), span: c.SpanID.String(), headers: headers}
}

// carrier are headers as propagators see them.
type carrier amqp091.Table

func (c carrier) Get(key string) string { s, _ := c[key].(string); return s }
func (c carrier) Set(key, value string) { c[key] = value }
func (c carrier) Keys() []string        { return nil }

// received reads the context that a delivery carries.
func received(d *amqp091.Delivery) *origin {
	ctx := propagation.TraceContext{}.Extract(context.Background(), carrier(d.Headers))
	c := trace.SpanContextFromContext(ctx)
	return &origin{trace: c.TraceID().String(), span: c.SpanID().String(), headers: d.Headers}
}

// declare declares a durable queue.
func (b *broker) declare(name string, args amqp091.Table) {
	b.t.Helper()
	_, err := b.ch.QueueDeclare(name, true, false, false, false, args)
	must(b.t, err)
}

// letters are the arguments of a queue whose dead letters go to another.
func letters(to string, more amqp091.Table) amqp091.Table {
	args := amqp091.Table{"x-dead-letter-exchange": "", "x-dead-letter-routing-key": to}
	maps.Copy(args, more)
	return args
}

// publish publishes a message to a queue and waits until the broker has it.
func (b *broker) publish(queue string, headers amqp091.Table, expiration string) {
	b.t.Helper()
	b.send("", queue, amqp091.Publishing{
		Headers: headers, Expiration: expiration, DeliveryMode: amqp091.Persistent, MessageId: "m-1", CorrelationId: "c-1", Body: []byte("hello"),
	})
}

func (b *broker) send(exchange, key string, m amqp091.Publishing) {
	b.t.Helper()
	confirm, err := b.ch.PublishWithDeferredConfirm(exchange, key, false, false, m)
	must(b.t, err)
	if acked, err := confirm.WaitContext(b.t.Context()); err != nil || !acked {
		b.t.Fatalf("the message was not taken: %v", err)
	}
}

// consume returns the next message of a queue, unacknowledged.
func (b *broker) consume(queue string) *amqp091.Delivery {
	b.t.Helper()
	tag := "reader-of-" + queue
	deliveries, err := b.ch.Consume(queue, tag, false, false, false, false, nil)
	must(b.t, err)
	d, open, inTime := process.Receive(deliveries)
	if !open || !inTime {
		b.t.Fatalf("nothing came from %s", queue)
	}
	must(b.t, b.ch.Cancel(tag, false))
	return &d
}

// ask makes a request to the management API and wants a status.
func (b *broker) ask(status int, method, path string, body any) {
	b.t.Helper()
	b.Ask(b.t, status, method, path, body)
}

// counter reads a counter without labels from /metrics, 0 if it is not there.
func (b *broker) counter(name string) float64 {
	b.t.Helper()
	_, page := fetch(b.t, b.Management, "/metrics")
	return series(b.t, page)[name]
}

// unchanged checks that a delivery carries exactly what its publisher wrote.
func unchanged(t *testing.T, d *amqp091.Delivery, m *origin) {
	t.Helper()
	for _, name := range []string{"traceparent", "tracestate", "baggage"} {
		if got, want := fmt.Sprint(d.Headers[name]), fmt.Sprint(m.headers[name]); got != want {
			t.Errorf("the header %s came as %q, and was sent as %q", name, got, want)
		}
	}
}
