package wasm

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

// failed is what the log says of a policy that fails.
const failed = "a policy failed; its on-error decides about its messages"

// After a single trap no instance is made for a while. What came meanwhile was not asked about until the breaker had opened and
// closed: it had no deadline, for ever.
func TestOneTrapKeepsNoOtherMessageFromItsDeadline(t *testing.T) {
	t.Parallel()
	b := start(t, "")
	b.Excuse(failed)
	b.ask(201, "PUT", "wasm/policies/x", fields{"module": wt.Picky(), "on_error": "keep"})
	b.declare("jobs", amqp091.Table{"x-expiry-strategy": "wasm/x"})
	must(t, b.ch.PublishWithContext(t.Context(), "", "jobs", false, false, amqp091.Publishing{Body: []byte("trap")}))
	b.publish("jobs", 0, 10)
	if !process.Poll(func() bool { return b.waiting("dead") == 10 }) {
		t.Errorf("%d of 10 messages have expired: %+v", b.waiting("dead"), b.info("x"))
	}
	if i := b.info("x"); i.Breaker != "closed" || i.Undecided != 1 || i.AskedAgain < 1 {
		t.Errorf("breaker %s, %d undecided, %d asked again; want closed, 1, 1 at least", i.Breaker, i.Undecided, i.AskedAgain)
	}
}

// A restart finds which messages the policy could not decide about.
func TestARestartAsksAgain(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := filepath.Join(dir, "x.wasm")
	use := func(module []byte) string {
		must(t, os.WriteFile(file, module, 0o600))
		return fmt.Sprintf("plugins:\n  wasm:\n    modules:\n      x: {path: %q, on-error: keep}\n", file)
	}
	bad := wt.New()
	bad.Batch(64)
	bad.Each(abi.OnEnqueue, wt.Later(wt.Unreachable))
	data := filepath.Join(dir, "data")
	b := start(t, use(bad.Bytes()), "--data", data)
	for _, msg := range []string{failed, "a policy fails too often and is not called for a while"} {
		b.Excuse(msg)
	}
	b.declare("jobs", amqp091.Table{"x-expiry-strategy": "wasm/x"})
	b.publish("jobs", 0, 10)
	if i := b.info("x"); i.Undecided != 10 {
		t.Errorf("%d undecided, want 10", i.Undecided)
	}
	b.Kill()

	b = start(t, use(ttl()), "--data", data)
	if !process.Poll(func() bool { return b.waiting("dead") == 10 }) {
		t.Errorf("%d of 10 messages have expired: %+v", b.waiting("dead"), b.info("x"))
	}
	if i := b.info("x"); i.Undecided != 0 || i.AskedAgain != 10 {
		t.Errorf("%d undecided, %d asked again; want 0 and 10", i.Undecided, i.AskedAgain)
	}
}
