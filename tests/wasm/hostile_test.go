package wasm

import (
	"strings"
	"testing"
	"time"

	"github.com/rabbitmq/amqp091-go"

	wt "github.com/curfewmq/curfew/plugins/wasm/wasmtest"
)

// What the broker says of policies that fail.
var complaints = []string{
	"a policy failed; its on-error decides about its messages",
	"a policy fails too often and is not called for a while",
	"a policy fails too often since it was reloaded: the previous version is in force again",
	"a policy says",
}

// While modules do all the harm they can, their queues' messages expire when they would without them, none is lost or early, and
// nobody else notices.
func TestHostile(t *testing.T) {
	t.Parallel()
	const life, each = 500 * time.Millisecond, 20
	b := start(t, "")
	for _, c := range complaints {
		b.Excuse(c)
	}
	b.declare("bystander", amqp091.Table{"x-message-ttl": life.Milliseconds()})
	n := 0
	for i, m := range wt.Hostiles() {
		name := strings.ReplaceAll(strings.ReplaceAll(m.Name, " ", "-"), ".", "-")
		b.ask(201, "PUT", "wasm/policies/"+name, fields{"module": m.Module})
		b.declare(name, amqp091.Table{"x-expiry-strategy": "wasm/" + name, "x-message-ttl": life.Milliseconds()})
		for range 6 { // calls, so that the breaker opens
			b.publish(name, n, n+each)
			n += each
		}
		b.publish("bystander", n, n+each)
		n += each
		if got := b.info(name); m.Kind != "" && got.Errors[m.Kind] == 0 {
			t.Errorf("%d %s: got %v, want %s", i, name, got.Errors, m.Kind)
		}
	}
	b.checkLetters(b.expired(n), 0, n, life)
	if status, body := b.Health(); status != 200 {
		t.Errorf("health: got %d %s", status, body)
	}
	got := string(b.ask(503, "GET", "health/checks/wasm-policies", nil))
	if !strings.Contains(got, `"wasm/complaint"`) { // the only one whose instance may be asked again at once, and so has failed five times
		t.Errorf("got %s", got)
	}
}
