package telemetry

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/rabbitmq/amqp091-go"

	"github.com/curfewmq/curfew/tests/process"
	"github.com/curfewmq/curfew/tests/tools"
)

// toHTTP is a configuration that sends spans to a collector which speaks HTTP.
func toHTTP(c *collector, more string) string {
	return "telemetry:\n  otlp: {endpoint: \"" + c.address + "\", protocol: http}\n  traces: {exporter: otlp" + more + "}\n  metrics: {exporter: off}\n"
}

// Nobody is sampled, and every expiry is seen all the same.
func TestExpiriesAlways(t *testing.T) {
	t.Parallel()
	c := listenHTTP(t)
	b := start(t, toHTTP(c, ", sample: 0, expiries: always"))
	b.declare("q", amqp091.Table{"x-max-length": 1})
	m := sentWith(t, 0)
	b.publish("q", m.headers, "0")
	expire := c.await(t, m.trace, "expire q")[0]
	expire.follows(t, m)

	b.publish("q", nil, "0")
	isRoot := func(s *span) bool { return s.GetName() == "expire q" && s.parent == "" }
	if !process.Poll(func() bool { return len(c.find(isRoot)) == 1 }) {
		t.Error("the message without a context has left no span")
	}
	b.declare("lease", amqp091.Table{"x-expires": 20})
	c.awaitNamed(t, "queue_expire lease")

	b.publish("q", nil, "") // is kept, so that the next one is dropped
	b.publish("q", nil, "")
	followed := sent(t)
	b.publish("q", followed.headers, "0")
	c.await(t, followed.trace, "publish q", "expire q")
	others := c.find(func(s *span) bool {
		return s.trace != followed.trace && strings.HasPrefix(s.GetName(), "publish") || strings.HasPrefix(s.GetName(), "drop")
	})
	if len(others) != 0 {
		t.Errorf("%s and %d others of messages that are not traced", others[0].GetName(), len(others)-1)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.headers.Get("X-Tenant") != "a b" || c.resource["deployment.environment.name"] != "test" {
		t.Errorf("headers %v, resource %v", c.headers, c.resource)
	}
}

// That a message is traced survives a restart with it.
func TestRestart(t *testing.T) {
	t.Parallel()
	c := listenGRPC(t)
	dir := t.TempDir()
	b := start(t, toGRPC(c, ""), "--data", dir)
	b.declare("kept", nil)
	b.declare("due", amqp091.Table{"x-message-ttl": 500})
	kept, due, not := sent(t), sent(t), sentWith(t, 0)
	b.publish("kept", kept.headers, "")
	b.publish("kept", not.headers, "")
	b.publish("due", due.headers, "")
	b.Stop()
	if names := c.names(kept.trace); names != "[publish kept]" {
		t.Errorf("when the broker has stopped the collector has %s", names)
	}

	b = start(t, toGRPC(c, ""), "--data", dir)
	first := b.consume("kept")
	unchanged(t, first, kept)
	must(t, first.Ack(false))
	must(t, b.consume("kept").Ack(false))
	c.await(t, kept.trace, "deliver kept")[0].follows(t, kept)
	expire := c.await(t, due.trace, "expire due")[0]
	expire.follows(t, due)
	expire.events(t, "enqueue", "deadline_set", "due", "decided")
	if names := c.names(not.trace); names != "[]" {
		t.Errorf("of the message that is not traced there are %s", names)
	}
	recovered := func(s *span) bool { return s.GetName() == "recovery" && s.attributes["curfew.recovery.queues"] == "2" }
	if !process.Poll(func() bool { return len(c.find(recovered)) == 1 }) {
		t.Fatal("there is no span of the recovery")
	}
	c.find(recovered)[0].has(t, "curfew.recovery.messages=3")
}

// Without anybody who takes spans the broker works as ever, and stops as ever.
func TestDeadCollector(t *testing.T) {
	t.Parallel()
	const n = 20_000 // more than fit into all buffers on the way
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	nobody := &collector{address: ln.Addr().String()}
	must(t, ln.Close())
	for _, tc := range []struct{ name, yaml string }{
		{"grpc", toGRPC(nobody, "")},
		{"http", toHTTP(&collector{address: "http://" + nobody.address}, "")},
	} {
		t.Run(tc.name, func(t *testing.T) {
			b := start(t, tc.yaml)
			b.declare("q", nil)
			var last *amqp091.DeferredConfirmation
			for range n {
				last, err = b.ch.PublishWithDeferredConfirm("", "q", false, false, amqp091.Publishing{Expiration: "0"})
				must(t, err)
			}
			if acked, err := last.WaitContext(t.Context()); err != nil || !acked {
				t.Errorf("the last message was not taken: %v", err)
			}
			m := sent(t)
			b.publish("q", m.headers, "")
			unchanged(t, b.consume("q"), m)
			if !process.Poll(func() bool {
				return b.counter("curfew_trace_spans_dropped_total")+b.counter("curfew_trace_spans_lost_total") > 0
			}) {
				t.Error("nothing was dropped or lost")
			}
			b.Stop()
		})
	}
}

// A collector that takes nothing is spoken of once, and once when it does again.
func TestRefusingCollector(t *testing.T) {
	t.Parallel()
	c := listenHTTP(t)
	c.refuse(true)
	b := start(t, toHTTP(c, ""))
	b.declare("q", nil)
	b.publish("q", nil, "")
	lost := b.Await("spans are lost: the collector does not take them; this is logged only once until it does")
	if text := fmt.Sprint(lost["error"]); !strings.Contains(text, "400") {
		t.Errorf("the error is %s", text)
	}
	c.refuse(false)
	m := sent(t)
	b.publish("q", m.headers, "")
	b.Await("the collector takes spans again")
	b.publish("q", m.headers, "")
	c.await(t, m.trace, "publish q")
}

// A context that another client library has written, and one that finds it.
func TestPika(t *testing.T) {
	t.Parallel()
	python := tools.Pika(t)
	c := listenGRPC(t)
	b := start(t, toGRPC(c, ""))
	m := sent(t)
	script := exec.Command(python, "-c", `
import pika, sys
url, parent = sys.argv[1:]
c = pika.BlockingConnection(pika.URLParameters(url))
ch = c.channel()
ch.queue_declare("from-pika", durable=True)
ch.basic_publish("", "from-pika", b"x", pika.BasicProperties(headers={"traceparent": parent}))
print(ch.basic_get("from-pika", auto_ack=True)[1].headers["traceparent"])
ch.basic_publish("", "from-pika", b"x")
print(ch.basic_get("from-pika", auto_ack=True)[1].headers["traceparent"])
c.close()
`, b.URL()+"/%2F", fmt.Sprint(m.headers["traceparent"]))
	script.Stderr = os.Stderr
	out, err := script.Output()
	must(t, err)
	parents := strings.Fields(string(out))
	if len(parents) != 2 || parents[0] != m.headers["traceparent"] {
		t.Fatalf("it found %q", out)
	}
	spans := c.await(t, m.trace, "publish from-pika", "receive from-pika")
	spans[0].follows(t, m)
	orphan := received(&amqp091.Delivery{Headers: amqp091.Table{"traceparent": parents[1]}})
	if publish := c.await(t, orphan.trace, "publish from-pika", "receive from-pika")[0]; publish.id != orphan.span {
		t.Errorf("the message says %s, its publishing is %s", orphan.span, publish.id)
	}
}
