package telemetry

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/rabbitmq/amqp091-go"

	wt "github.com/curfewmq/curfew/plugins/wasm/wasmtest"
	"github.com/curfewmq/curfew/sdk/abi"
	"github.com/curfewmq/curfew/tests/process"
)

// startBusy starts a broker that listens everywhere, sends spans, and has done all that its metrics count.
func startBusy(t *testing.T) *broker {
	t.Helper()
	cert, key, _ := process.Certificate(t)
	c := listenGRPC(t)
	b := start(t, toGRPC(c, "")+fmt.Sprintf("listen: {metrics: \"127.0.0.1:0\", amqps: \"127.0.0.1:0\", management-tls: \"127.0.0.1:0\"}\ntls: {cert: %q, key: %q}\n", cert, key))
	b.showcase()
	b.loseLetters()
	b.hold()
	b.lease()
	b.refuse()
	b.askPolicies()
	b.redrive()
	b.cancel()
	b.settleDown(c)
	return b
}

// loseLetters has messages go for each reason and outcome.
func (b *broker) loseLetters() {
	b.t.Helper()
	must(b.t, b.ch.ExchangeDeclare("unbound", "fanout", true, false, false, false, nil))
	b.declare("unroutable", amqp091.Table{"x-message-ttl": 1, "x-dead-letter-exchange": "unbound"})
	b.declare("no-exchange", amqp091.Table{"x-message-ttl": 1, "x-dead-letter-exchange": "nowhere"})
	b.declare("rejecting", nil)
	b.declare("short", amqp091.Table{"x-max-length": 1})
	b.declare("unlucky", amqp091.Table{"x-queue-type": "quorum", "x-delivery-limit": 0, "x-delivery-lease": 1})
	for _, queue := range []string{"unroutable", "no-exchange", "rejecting", "short", "short", "unlucky"} {
		b.publish(queue, nil, "")
	}
	must(b.t, b.consume("rejecting").Reject(false))
	b.consume("unlucky") // which fails when its lease ends
}

// hold has messages held by a queue and by an exchange: released, cancelled, and still held.
func (b *broker) hold() {
	b.t.Helper()
	b.declare("holding", nil)
	must(b.t, b.ch.ExchangeDeclare("later", "x-delayed-message", true, false, false, false, amqp091.Table{"x-delayed-type": "fanout"}))
	must(b.t, b.ch.QueueBind("holding", "", "later", false, nil))
	for _, ms := range []int{1, 3_600_000} {
		b.publish("holding", amqp091.Table{"x-deliver-after": ms}, "")
		b.send("later", "", amqp091.Publishing{Headers: amqp091.Table{"x-delay": ms}})
	}
	b.send("later", "", amqp091.Publishing{Headers: amqp091.Table{"x-delay": 60_000, "x-schedule-id": "a"}})
	b.send("later", "", amqp091.Publishing{Headers: amqp091.Table{"x-schedule-id": "a", "x-schedule-cancel": true}})
}

// lease has leases of queues and of deliveries, which end or last.
func (b *broker) lease() {
	b.t.Helper()
	b.declare("brief", amqp091.Table{"x-expires": 1})
	b.declare("lasting", amqp091.Table{"x-expires": 3_600_000})
	b.declare("leased", amqp091.Table{"x-delivery-lease": 1})
	b.publish("leased", nil, "")
	b.consume("leased")
}

// refuse has a queue refuse a message, and a plugin filter one.
func (b *broker) refuse() {
	b.t.Helper()
	b.declare("full", amqp091.Table{"x-max-length": 1, "x-overflow": "reject-publish"})
	b.publish("full", nil, "")
	confirm, err := b.ch.PublishWithDeferredConfirm("", "full", false, false, amqp091.Publishing{})
	must(b.t, err)
	if acked, err := confirm.WaitContext(b.t.Context()); acked || err != nil {
		b.t.Fatalf("a full queue took a message: %v", err)
	}
	must(b.t, b.ch.ExchangeDeclare("once", "x-message-deduplication", true, false, false, false, amqp091.Table{"x-cache-size": 10}))
	for range 2 {
		b.send("once", "", amqp091.Publishing{Headers: amqp091.Table{"x-deduplication-header": "a"}})
	}
}

// askPolicies has a policy that works, one that shadows it, and one that fails.
func (b *broker) askPolicies() {
	b.t.Helper()
	module, err := os.ReadFile(filepath.Join(process.Root(b.t), "wasm-examples", "size-ttl", "size.wasm"))
	must(b.t, err)
	config := map[string]any{"base-ms": 40, "least-ms": 40}
	b.ask(201, "PUT", "wasm/policies/size", map[string]any{"module": module, "config": config})
	b.ask(201, "PUT", "wasm/policies/shade", map[string]any{"module": module, "config": config, "shadow": "deadline"})
	b.ask(201, "PUT", "wasm/policies/endless", map[string]any{"module": wt.Hostiles()[0].Module})
	b.ask(201, "PUT", "wasm/policies/counts", map[string]any{"module": counting(), "grants": []string{"metrics"}})
	b.Excuse("a policy failed; its on-error decides about its messages")
	b.Excuse("a policy fails too often and is not called for a while")
	for queue, strategy := range map[string]string{"by-size": "wasm/size", "shaded": "deadline", "by-nobody": "wasm/endless", "counted": "wasm/counts"} {
		b.declare(queue, amqp091.Table{"x-expiry-strategy": strategy, "x-message-ttl": 3_600_000})
		b.publish(queue, nil, "")
	}
	b.declare("in-order", amqp091.Table{"x-expiry-strategy": "rabbitmq", "x-message-ttl": 1})
	b.publish("in-order", nil, "")
}

// counting returns a module that counts the messages it is asked about.
func counting() []byte {
	m := wt.New()
	count := m.Host("counter_add")
	m.Batch(8)
	m.Each(abi.OnEnqueue, m.Text(16, "seen"), wt.I64(1), wt.Call(count))
	return m.Bytes()
}

// redrive moves what waits.
func (b *broker) redrive() {
	b.t.Helper()
	b.ask(202, "POST", "queues/%2F/waiting/redrive", map[string]any{"to": map[string]any{"queue": "rejecting"}})
}

// cancel drops what a queue holds.
func (b *broker) cancel() {
	b.t.Helper()
	b.declare("cancelled", nil)
	b.publish("cancelled", amqp091.Table{"x-deliver-after": 3_600_000}, "")
	b.ask(200, "DELETE", "queues/%2F/cancelled/held", nil)
}

// settleDown waits until what takes time has happened.
func (b *broker) settleDown(c *collector) {
	b.t.Helper()
	c.awaitNamed(b.t, "expire by-size")
	var got map[string]float64
	done := process.Poll(func() bool {
		_, page := fetch(b.t, b.Metrics, "/metrics")
		got = series(b.t, page)
		return got[`curfew_redriven_total{vhost="/"}`] > 0 && got[`curfew_queues_expired_total{vhost="/"}`] > 0 && got["curfew_delivery_leases_ended_total"] > 0 &&
			got[`curfew_messages_released_total{outcome="ready",vhost="/"}`] > 0 && got[`curfew_messages_released_total{outcome="routed",vhost="/"}`] > 0 &&
			got[`curfew_messages_dropped_total{outcome="unroutable",reason="expired",strategy="deadline",vhost="/"}`] > 0 &&
			got[`curfew_messages_dropped_total{outcome="dropped",reason="delivery_limit",strategy="deadline",vhost="/"}`] > 0 &&
			got[`curfew_messages_expired_total{strategy="rabbitmq",vhost="/"}`] > 0
	})
	if !done {
		b.t.Errorf("not everything has happened after %v: %v", process.Patience, got)
	}
}
