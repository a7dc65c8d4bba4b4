package wasm

import (
	"testing"

	"github.com/rabbitmq/amqp091-go"

	wt "github.com/curfewmq/curfew/plugins/wasm/wasmtest"
	"github.com/curfewmq/curfew/sdk/abi"
	"github.com/curfewmq/curfew/tests/process"
)

// Messages that came while a bad version was in force, which was rolled back, had no deadline and stayed for ever.
func TestAVersionThatFailsLeavesNothingBehind(t *testing.T) {
	t.Parallel()
	bad := wt.New()
	bad.Batch(64)
	bad.Each(abi.OnEnqueue, wt.Later(wt.Unreachable))
	b := start(t, "")
	for _, msg := range []string{
		"a policy failed; its on-error decides about its messages",
		"a policy fails too often and is not called for a while",
		"a policy fails too often since it was reloaded: the previous version is in force again",
	} {
		b.Excuse(msg)
	}
	b.ask(201, "PUT", "wasm/policies/x", fields{"module": ttl(), "config": fields{"ttl-ms": 2000}})
	b.declare("jobs", amqp091.Table{"x-expiry-strategy": "wasm/x"})
	b.publish("jobs", 0, 10)
	b.ask(204, "PUT", "wasm/policies/x", fields{"module": bad.Bytes()})
	sent := 10
	if !process.Poll(func() bool {
		b.publish("jobs", sent, sent+10)
		sent += 10
		return b.info("x").RolledBack != ""
	}) {
		t.Fatalf("the version was not rolled back: %+v", b.info("x"))
	}
	b.publish("jobs", sent, sent+10)
	sent += 10
	if !process.Poll(func() bool { return b.waiting("dead") == sent }) {
		t.Errorf("of %d messages %d never expire: %+v", sent, b.waiting("jobs"), b.info("x"))
	}
}
