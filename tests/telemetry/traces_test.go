package telemetry

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/rabbitmq/amqp091-go"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"

	"github.com/curfewmq/curfew/tests/process"
)

// What happens to messages that a client put into traces of its own, each in a queue that is named after the test.
func TestTraces(t *testing.T) {
	t.Parallel()
	c := listenGRPC(t)
	b := start(t, toGRPC(c, ""))
	b.declare("letters", nil)
	for _, tc := range []struct {
		name string
		run  func(s scene)
	}{
		{"delivered", testDelivered},
		{"fetched", testFetched},
		{"expired", testExpired},
		{"letter", testDeadLettered},
		{"ttl-0", testExpiredAtOnce},
		{"rejected", testRejected},
		{"at-least-once", testAtLeastOnce},
		{"limit", testDeliveryLimit},
		{"lost", testLost},
		{"overflow", testOverflow},
		{"cycle", testCycle},
		{"queue", testQueueExpired},
		{"wasm", testPolicy},
		{"orphan", testOrphan},
		{"tx", testTransaction},
		{"flags-00", testNotSampled},
		{"garbage", testGarbage},
	} {
		t.Run(tc.name, func(t *testing.T) { tc.run(scene{t, c, b.in(t)}) })
	}
	if c.resource["service.name"] != "curfew" || c.resource["service.version"] == "" || c.resource["service.instance.id"] == "" {
		t.Errorf("the broker calls itself %v", c.resource)
	}
}

// scene is what a part of TestTraces plays on.
type scene struct {
	t *testing.T
	c *collector
	b *broker
}

func testDelivered(s scene) {
	t, c, b := s.t, s.c, s.b
	m := sent(t)
	must(t, b.ch.ExchangeDeclare("orders", "topic", true, false, false, false, nil))
	b.declare("delivered", nil)
	must(t, b.ch.QueueBind("delivered", "new.#", "orders", false, nil))
	b.send("orders", "new.eu", amqp091.Publishing{Headers: m.headers, MessageId: "m-1", CorrelationId: "c-1", Body: []byte("hello")})
	d := b.consume("delivered")
	unchanged(t, d, m)
	must(t, d.Ack(false))

	spans := c.await(t, m.trace, "publish orders:new.eu", "deliver delivered")
	publish, deliver := spans[0], spans[1]
	publish.follows(t, m)
	if publish.GetKind() != tracepb.Span_SPAN_KIND_SERVER || publish.scope != "github.com/curfewmq/curfew" {
		t.Errorf("publish: %v by %s", publish.GetKind(), publish.scope)
	}
	const schemas = "https://opentelemetry.io/schemas/1."
	if !strings.HasPrefix(publish.schema, schemas) || !strings.HasPrefix(publish.resourceSchema, schemas) {
		t.Errorf("the schema of spans is %q, that of the resource %q", publish.schema, publish.resourceSchema)
	}
	publish.has(t, "messaging.system=rabbitmq", "messaging.operation.name=publish", "messaging.operation.type=send",
		"messaging.destination.name=orders:new.eu", "messaging.rabbitmq.destination.routing_key=new.eu", "messaging.message.id=m-1",
		"messaging.message.conversation_id=c-1", "messaging.message.body.size=5", "curfew.vhost=/", "curfew.publish.queues=1")
	if publish.attributes["messaging.client.id"] == "" {
		t.Error("publish: no client")
	}
	deliver.follows(t, m)
	deliver.has(t, "messaging.operation.name=deliver", "messaging.destination.name=orders:new.eu:delivered", "curfew.queue=delivered",
		"messaging.message.id=m-1", "messaging.message.body.size=5", "curfew.delivery.consumer_tag=reader-of-delivered", "curfew.delivery.redelivered=false")
	if deliver.attributes["messaging.client.id"] != publish.attributes["messaging.client.id"] {
		t.Errorf("publisher %s, consumer %s", publish.attributes["messaging.client.id"], deliver.attributes["messaging.client.id"])
	}
}

func testFetched(s scene) {
	t, c, b := s.t, s.c, s.b
	m := sent(t)
	b.declare("fetched", nil)
	b.publish("fetched", m.headers, "")
	for range 2 { // the first is given back
		d, ok, err := b.ch.Get("fetched", false)
		must(t, err)
		if !ok {
			t.Fatal("the queue is empty")
		}
		unchanged(t, &d, m)
		must(t, d.Reject(!d.Redelivered))
	}
	spans := c.await(t, m.trace, "publish fetched", "receive fetched", "receive fetched", "drop fetched")
	if spans[1].GetKind() != tracepb.Span_SPAN_KIND_SERVER {
		t.Errorf("receive: %v", spans[1].GetKind())
	}
	spans[1].has(t, "curfew.delivery.redelivered=false", "messaging.operation.type=receive", "messaging.operation.name=receive", "messaging.destination.name=fetched")
	spans[2].has(t, "curfew.delivery.redelivered=true")
}

func testExpired(s scene) {
	t, c, b := s.t, s.c, s.b
	const ttl = 30 * time.Millisecond
	m := sent(t)
	b.declare("expired", amqp091.Table{"x-message-ttl": ttl.Milliseconds()})
	b.publish("expired", m.headers, "")
	expire := c.await(t, m.trace, "publish expired", "expire expired")[1]
	expire.follows(t, m)
	expire.has(t, "messaging.operation.name=expire", "messaging.destination.name=expired", "messaging.message.id=m-1",
		"messaging.message.body.size=5", "curfew.queue=expired", "curfew.vhost=/", "curfew.expiry.strategy=deadline",
		"curfew.dead_letter.reason=expired", "curfew.dead_letter.outcome=dropped")
	expire.events(t, "enqueue", "deadline_set", "due", "decided")
	if expire.duration() < ttl {
		t.Errorf("it expired after %s, its time to live is %s", expire.duration(), ttl)
	}
	deadline, err := time.Parse(time.RFC3339Nano, expire.attributes["curfew.expiry.deadline"])
	must(t, err)
	if due := expire.GetEvents()[2].GetTimeUnixNano(); uint64(deadline.UnixNano()) != due {
		t.Errorf("the deadline is %v, it was due at %v", deadline, due)
	}
	if expire.attributes["curfew.expiry.lateness_ms"] == "" {
		t.Error("how late it was is not said")
	}
}

// A dead letter's next consumer continues its publisher's trace.
func testDeadLettered(s scene) {
	t, c, b := s.t, s.c, s.b
	m := sent(t)
	b.declare("letter", letters("letters", nil))
	b.publish("letter", m.headers, "20")
	d := b.consume("letters")
	unchanged(t, d, m)
	must(t, d.Ack(false))

	spans := c.await(t, m.trace, "expire letter", "dead_letter letter", "deliver letters")
	expire, letter, deliver := spans[0], spans[1], spans[2]
	expire.follows(t, m)
	expire.has(t, "curfew.dead_letter.reason=expired", "curfew.dead_letter.outcome=dead_lettered")
	letter.links(t, m)
	if letter.trace != m.trace || letter.parent != expire.id {
		t.Errorf("dead_letter is a child of %s in %s, want %s in %s", letter.parent, letter.trace, expire.id, m.trace)
	}
	letter.has(t, "messaging.operation.name=dead_letter", "curfew.dead_letter.exchange=amq.default", "curfew.dead_letter.routing_key=letters",
		"curfew.dead_letter.outcome=dead_lettered", "curfew.queue=letter")
	deliver.follows(t, m)
	deliver.has(t, "curfew.queue=letters")
}

func testExpiredAtOnce(s scene) {
	t, c, b := s.t, s.c, s.b
	m := sent(t)
	b.declare("ttl-0", nil)
	b.publish("ttl-0", m.headers, "0")
	expire := c.await(t, m.trace, "publish ttl-0", "expire ttl-0")[1]
	expire.follows(t, m)
	expire.has(t, "curfew.dead_letter.reason=expired", "curfew.dead_letter.outcome=dropped")
	expire.events(t, "enqueue", "deadline_set", "due", "decided")
}

func testRejected(s scene) {
	t, c, b := s.t, s.c, s.b
	dropped, lettered := sent(t), sent(t)
	b.declare("rejected", nil)
	b.publish("rejected", dropped.headers, "")
	must(t, b.consume("rejected").Reject(false))
	drop := c.await(t, dropped.trace, "drop rejected")[0]
	drop.follows(t, dropped)
	drop.has(t, "messaging.operation.name=drop", "curfew.dead_letter.reason=rejected", "curfew.dead_letter.outcome=dropped", "curfew.queue=rejected")

	b.declare("rejected-letter", letters("letters", nil))
	b.publish("rejected-letter", lettered.headers, "")
	must(t, b.consume("rejected-letter").Nack(false, false))
	letter := c.await(t, lettered.trace, "dead_letter rejected-letter")[0]
	letter.follows(t, lettered)
	letter.has(t, "curfew.dead_letter.reason=rejected", "curfew.dead_letter.outcome=dead_lettered", "curfew.dead_letter.routing_key=letters")
	must(t, b.consume("letters").Ack(false))
}

func testAtLeastOnce(s scene) {
	t, c, b := s.t, s.c, s.b
	m := sent(t)
	b.declare("at-least-once", letters("letters", amqp091.Table{
		"x-queue-type": "quorum", "x-dead-letter-strategy": "at-least-once", "x-overflow": "reject-publish",
	}))
	b.publish("at-least-once", m.headers, "20")
	d := b.consume("letters")
	unchanged(t, d, m)
	must(t, d.Ack(false))
	spans := c.await(t, m.trace, "expire at-least-once", "dead_letter at-least-once", "deliver letters")
	spans[0].follows(t, m)
	spans[0].has(t, "curfew.dead_letter.outcome=dead_lettered")
	if names := c.names(m.trace); strings.Count(names, "dead_letter ") != 1 {
		t.Errorf("there are %s", names)
	}
}

// A consumer that goes without saying anything counts.
func testDeliveryLimit(s scene) {
	t, c, b := s.t, s.c, s.b
	m := sent(t)
	b.declare("limit", amqp091.Table{"x-queue-type": "quorum", "x-delivery-limit": 0})
	b.publish("limit", m.headers, "")
	b.open()
	b.consume("limit")
	must(t, b.ch.Close())
	spans := c.await(t, m.trace, "deliver limit", "drop limit")
	spans[1].follows(t, m)
	spans[1].has(t, "curfew.dead_letter.reason=delivery_limit", "curfew.dead_letter.outcome=dropped")
}

// A dead letter that nobody is there for is lost, and its span is an error.
func testLost(s scene) {
	t, c, b := s.t, s.c, s.b
	for outcome, exchange := range map[string]string{"no_exchange": "nowhere", "unroutable": "amq.direct"} {
		m := sent(t)
		name := "lost-" + outcome
		b.declare(name, amqp091.Table{"x-dead-letter-exchange": exchange, "x-message-ttl": 10})
		b.publish(name, m.headers, "")
		spans := c.await(t, m.trace, "expire "+name, "dead_letter "+name)
		spans[0].has(t, "curfew.dead_letter.outcome="+outcome)
		spans[1].has(t, "error.type="+outcome, "curfew.dead_letter.outcome="+outcome, "curfew.dead_letter.exchange="+exchange)
		if spans[1].parent != spans[0].id || spans[1].GetStatus().GetCode() != tracepb.Status_STATUS_CODE_ERROR {
			t.Errorf("child of %s, status %v", spans[1].parent, spans[1].GetStatus())
		}
	}
}

func testOverflow(s scene) {
	t, c, b := s.t, s.c, s.b
	first, second := sent(t), sent(t)
	b.declare("overflow", amqp091.Table{"x-max-length": 1})
	b.publish("overflow", first.headers, "")
	b.publish("overflow", second.headers, "")
	drop := c.await(t, first.trace, "drop overflow")[0]
	drop.follows(t, first)
	drop.has(t, "curfew.dead_letter.reason=maxlen", "curfew.dead_letter.outcome=dropped")
}

// Two queues that dead-letter to each other: coming back to the first is a cycle, and the end of the message.
func testCycle(s scene) {
	t, c, b := s.t, s.c, s.b
	m := sent(t)
	b.declare("cycle", letters("cycle-back", amqp091.Table{"x-message-ttl": 20}))
	b.declare("cycle-back", letters("cycle", amqp091.Table{"x-message-ttl": 20}))
	b.publish("cycle", m.headers, "")
	spans := c.await(t, m.trace, "expire cycle", "expire cycle-back", "dead_letter cycle", "dead_letter cycle-back")
	spans[0].has(t, "curfew.dead_letter.outcome=dead_lettered")
	spans[1].has(t, "curfew.dead_letter.outcome=cycle")
	spans[2].has(t, "curfew.dead_letter.outcome=dead_lettered")
	spans[3].has(t, "curfew.dead_letter.outcome=cycle")
	if spans[3].parent != spans[1].id || spans[3].GetStatus().GetCode() != tracepb.Status_STATUS_CODE_ERROR {
		t.Errorf("a cycle: child of %s, status %v", spans[3].parent, spans[3].GetStatus())
	}
	for _, s := range spans[:2] {
		s.follows(t, m)
	}
}

func testQueueExpired(s scene) {
	t, c, b := s.t, s.c, s.b
	b.declare("queue", amqp091.Table{"x-expires": 30})
	gone := c.awaitNamed(t, "queue_expire queue")
	gone.has(t, "curfew.queue=queue", "curfew.vhost=/", "curfew.queue.messages=0", "messaging.operation.name=queue_expire")
	gone.events(t, "last_use", "due", "decided")
	if gone.parent != "" || gone.duration() < 30*time.Millisecond {
		t.Errorf("child of %q, unused for %s", gone.parent, gone.duration())
	}
}

func testPolicy(s scene) {
	t, c, b := s.t, s.c, s.b
	module, err := os.ReadFile(filepath.Join(process.Root(t), "wasm-examples", "size-ttl", "size.wasm"))
	must(t, err)
	b.ask(201, "PUT", "wasm/policies/size", map[string]any{"module": module, "config": map[string]any{"base-ms": 40, "least-ms": 40}})
	b.declare("wasm", amqp091.Table{"x-expiry-strategy": "wasm/size"})
	m := sent(t)
	b.publish("wasm", m.headers, "")
	spans := c.await(t, m.trace, "policy size", "expire wasm")
	policy, expire := spans[0], spans[1]
	policy.follows(t, m)
	policy.has(t, "curfew.policy.name=size", "curfew.policy.hook=deadline", "curfew.policy.verdict=keep", "curfew.policy.batch=1", "curfew.queue=wasm",
		"messaging.message.id=m-1")
	digest := policy.attributes["curfew.policy.digest"]
	if len(digest) != len("sha256:")+64 || policy.attributes["curfew.policy.fuel"] == "0" {
		t.Errorf("digest %q, fuel %s", digest, policy.attributes["curfew.policy.fuel"])
	}
	expire.follows(t, m)
	expire.has(t, "curfew.expiry.strategy=wasm/size", "curfew.expiry.deadline="+policy.attributes["curfew.expiry.deadline"])
	if short := expire.attributes["curfew.policy.digest"]; len(digest) < 23 || short != digest[:23] {
		t.Errorf("decided by %s, expired by %s", digest, short)
	}
}

// A message that brings no context begins a trace with the broker's span, which its consumer finds in the headers.
func testOrphan(s scene) {
	t, c, b := s.t, s.c, s.b
	for _, tc := range []struct {
		name    string
		headers amqp091.Table
	}{{"without headers", nil}, {"with headers", amqp091.Table{"colour": "red"}}} {
		t.Run(tc.name, func(t *testing.T) {
			b := b.in(t)
			b.declare("orphan", nil)
			b.publish("orphan", tc.headers, "")
			d := b.consume("orphan")
			must(t, d.Ack(false))
			if d.MessageId != "m-1" || d.CorrelationId != "c-1" || len(d.Headers) != len(tc.headers)+1 || d.Headers["colour"] != tc.headers["colour"] {
				t.Errorf("it arrived as %+v", d)
			}
			m := received(d)
			spans := c.await(t, m.trace, "publish orphan", "deliver orphan")
			if spans[0].id != m.span || spans[0].parent != "" || len(spans[0].GetLinks()) != 0 {
				t.Errorf("the message says %s; publish is %s, a child of %q, linked to %v", m.span, spans[0].id, spans[0].parent, spans[0].GetLinks())
			}
			if spans[0].GetKind() != tracepb.Span_SPAN_KIND_PRODUCER {
				t.Errorf("publish: %v", spans[0].GetKind())
			}
			spans[1].follows(t, m)
		})
	}
}

// What a transaction publishes is told when it is committed.
func testTransaction(s scene) {
	t, c, b := s.t, s.c, s.b
	m := sent(t)
	b.declare("tx", nil)
	conn, err := process.Dial(b.URL())
	must(t, err)
	defer conn.Close()
	tx, err := conn.Channel()
	must(t, err)
	must(t, tx.Tx())
	for _, headers := range []amqp091.Table{m.headers, nil} {
		must(t, tx.PublishWithContext(t.Context(), "", "tx", false, false, amqp091.Publishing{Headers: headers}))
	}
	if names := c.names(m.trace); names != "[]" {
		t.Errorf("before the commit there are %s", names)
	}
	must(t, tx.TxCommit())
	must(t, b.consume("tx").Ack(false))
	orphan := b.consume("tx")
	must(t, orphan.Ack(false))
	for _, s := range c.await(t, m.trace, "publish tx", "deliver tx") {
		s.follows(t, m)
	}
	begun := received(orphan)
	if publish := c.await(t, begun.trace, "publish tx", "deliver tx")[0]; publish.id != begun.span {
		t.Errorf("the message says %s, its publishing is %s", begun.span, publish.id)
	}
}

// A publisher that does not sample has no spans made for its messages.
func testNotSampled(s scene) {
	t, c, b := s.t, s.c, s.b
	m, after := sentWith(t, 0), sent(t)
	b.declare("flags-00", amqp091.Table{"x-max-length": 1})
	b.publish("flags-00", m.headers, "")
	unchanged(t, b.consume("flags-00"), m)
	b.publish("flags-00", after.headers, "0")
	c.await(t, after.trace, "publish flags-00", "expire flags-00")
	if names := c.names(m.trace); names != "[]" {
		t.Errorf("there are %s", names)
	}
}

// What is no context is none, and does no harm.
func testGarbage(s scene) {
	t, c, b := s.t, s.c, s.b
	b.declare("garbage", nil)
	for _, parent := range []any{"", "00-zz", int64(7), []byte{0xff}, amqp091.Table{"traceparent": "x"}, []any{"x"}, nil} {
		b.publish("garbage", amqp091.Table{"traceparent": parent, "tracestate": "\xff=", "\xff": "\xfe"}, "")
		d := b.consume("garbage")
		must(t, d.Ack(false))
		m := received(d)
		c.await(t, m.trace, "publish garbage", "deliver garbage")
	}
}
