package wasm

import (
	"strings"
	"testing"

	"github.com/rabbitmq/amqp091-go"

	wt "github.com/curfewmq/curfew/plugins/wasm/wasmtest"
	"github.com/curfewmq/curfew/sdk/abi"
)

// A module that fails when it is tried does not get near a queue: the version that it should replace goes on.
func TestTrial(t *testing.T) {
	t.Parallel()
	bad := wt.New()
	bad.Batch(64)
	bad.Each(abi.OnEnqueue, wt.Unreachable)
	b := start(t, "")
	b.ask(201, "PUT", "wasm/policies/x", fields{"module": ttl(), "config": fields{"ttl-ms": 1000}})
	b.declare("jobs", amqp091.Table{"x-expiry-strategy": "wasm/x"})
	for _, settings := range []fields{{"module": bad.Bytes()}, {"module": bad.Bytes(), "shadow": "wasm/x"}} {
		name := "x"
		if settings["shadow"] != nil {
			name = "y"
		}
		got := string(b.ask(400, "PUT", "wasm/policies/"+name, settings))
		if want := `policy \"` + name + `\": the policy failed: on_enqueue: unreachable in .`; !strings.Contains(got, want) {
			t.Errorf("got %s, want %s", got, want)
		}
	}
	b.publish("jobs", 0, 10)
	b.expired(10)
	if i := b.info("x"); i.RolledBack != "" || i.LastError != "" || i.Messages < 10 {
		t.Errorf("got %+v", i)
	}
}

// Keys that a module does not read are in the answer, and in the list until it reads them.
func TestUnreadKeys(t *testing.T) {
	t.Parallel()
	b := start(t, "")
	b.Excuse("a policy was loaded with a warning")
	got := string(b.ask(201, "PUT", "wasm/policies/x", fields{"module": ttl(), "config": fields{"ttl_ms": 1000}}))
	if want := `{"warnings":["config: ttl_ms was not read while the module was tried; did you mean ttl-ms?"]}`; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	if i := b.info("x"); len(i.UnreadConfig) != 1 || i.UnreadConfig[0] != "ttl_ms" || len(i.Warnings) != 1 {
		t.Errorf("got %+v", i)
	}
	if got := b.ask(204, "PUT", "wasm/policies/x", fields{"module": ttl(), "config": fields{"ttl-ms": 1000}}); len(got) > 0 {
		t.Errorf("got %s", got)
	}
}
