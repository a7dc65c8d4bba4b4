package wasm

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rabbitmq/amqp091-go"

	wt "github.com/curfewmq/curfew/plugins/wasm/wasmtest"
	"github.com/curfewmq/curfew/sdk/abi"
	"github.com/curfewmq/curfew/tests/process"
)

// step is how long a message of one byte is held, one of two bytes twice as long, and so on.
const step = 300 * time.Millisecond

// holding is a module that holds messages by their size: as they enter, at the head, or when they come back.
func holding(at abi.Hook) []byte {
	b := wt.New()
	hold := b.Host("hold")
	b.Batch(64)
	until := slices.Concat(wt.LocalGet(wt.Now), wt.LocalGet(wt.Record), wt.I32Load(abi.RecordSizeOf), wt.I64Extend,
		wt.I64(step.Milliseconds()), wt.I64Mul, wt.I64Add)
	holds := slices.Concat(wt.LocalGet(wt.Index), until, wt.Call(hold))
	if at != abi.OnEnqueue {
		b.Each(abi.OnEnqueue, wt.LocalGet(wt.Verdict), wt.I32(abi.AskAtHead), wt.I32Store(abi.VerdictFlags))
	}
	b.Each(at, holds)
	return b.Bytes()
}

// send publishes a message of each size and returns when.
func (b *broker) send(queue string, sizes ...int) time.Time {
	b.t.Helper()
	began := time.Now()
	for _, n := range sizes {
		c, err := b.ch.PublishWithDeferredConfirm("", queue, true, false, amqp091.Publishing{
			DeliveryMode: amqp091.Persistent, Body: make([]byte, n),
		})
		must(b.t, err)
		acked, err := c.WaitContext(b.t.Context())
		must(b.t, err)
		if !acked {
			b.t.Fatalf("message %d was not taken", n)
		}
	}
	return began
}

// receive wants messages of these sizes, in their order, none of them before its time.
func (b *broker) receive(from <-chan amqp091.Delivery, began time.Time, wait func(size int) time.Duration, sizes ...int) {
	b.t.Helper()
	for _, want := range sizes {
		d, open, inTime := process.Receive(from)
		if !open || !inTime {
			b.t.Fatalf("message %d does not arrive", want)
		}
		if len(d.Body) != want {
			b.t.Errorf("got message %d, want %d", len(d.Body), want)
		}
		if waited := time.Since(began); waited < wait(want)-clockSlack {
			b.t.Errorf("message %d arrives after %s, want %s", want, waited, wait(want))
		}
		must(b.t, d.Ack(false))
	}
}

func steps(size int) time.Duration { return time.Duration(size) * step }

func seconds(size int) time.Duration { return time.Duration(size) * time.Second }

// Messages that a policy holds as they enter are passed by others, and delivered when their time has come; another version of the
// policy does not change that.
func TestHoldWhileTheyEnter(t *testing.T) {
	t.Parallel()
	b := start(t, "")
	b.ask(201, "PUT", "wasm/policies/x", fields{"module": holding(abi.OnEnqueue), "grants": []string{"hold"}})
	b.declare("jobs", amqp091.Table{"x-expiry-strategy": "wasm/x"})
	began := b.send("jobs", 30, 0, 20, 10) // a machine may need seconds for what follows
	b.ask(204, "PUT", "wasm/policies/x", fields{"module": ttl(), "config": fields{"ttl-ms": 60_000}})
	from, err := b.ch.Consume("jobs", "", false, false, false, false, nil)
	must(t, err)
	b.receive(from, began, steps, 0, 10, 20, 30)
	if i := b.info("x"); i.LastError != "" {
		t.Error(i.LastError)
	}
}

// A policy holds a message at the head, for a second at least, and others pass it.
func TestHoldAtTheHead(t *testing.T) {
	t.Parallel()
	b := start(t, "")
	b.ask(201, "PUT", "wasm/policies/x", fields{"module": holding(abi.OnHead), "grants": []string{"hold"}})
	b.declare("jobs", amqp091.Table{"x-expiry-strategy": "wasm/x"})
	began := b.send("jobs", 1, 0)
	from, err := b.ch.Consume("jobs", "", false, false, false, false, nil)
	must(t, err)
	b.receive(from, began, seconds, 0)
	b.ask(204, "PUT", "wasm/policies/x", fields{"module": ttl(), "config": fields{"ttl-ms": 60_000}}) // which is not asked at the head
	b.receive(from, began, seconds, 1)
}

// A policy holds messages that come back: a pause between tries.
func TestHoldWhenTheyComeBack(t *testing.T) {
	t.Parallel()
	b := start(t, "")
	b.ask(201, "PUT", "wasm/policies/x", fields{"module": holding(abi.OnRequeue), "grants": []string{"hold"}})
	b.declare("jobs", amqp091.Table{"x-expiry-strategy": "wasm/x"})
	b.send("jobs", 2)
	from, err := b.ch.Consume("jobs", "", false, false, false, false, nil)
	must(t, err)
	d, open, inTime := process.Receive(from)
	if !open || !inTime {
		t.Fatal("the message does not arrive")
	}
	began := time.Now()
	must(t, d.Nack(false, true))
	b.receive(from, began, steps, 2)
}

// The TTL of a message that the policy only holds counts from the end of its hold.
func TestHoldAndTTL(t *testing.T) {
	t.Parallel()
	const life = 150 * time.Millisecond
	b := start(t, "")
	b.ask(201, "PUT", "wasm/policies/x", fields{"module": holding(abi.OnEnqueue), "grants": []string{"hold"}})
	b.declare("jobs", amqp091.Table{"x-expiry-strategy": "wasm/x", "x-message-ttl": life.Milliseconds()})
	began := b.send("jobs", 8, 1)
	from, err := b.ch.Consume("dead", "", false, false, false, false, nil)
	must(t, err)
	b.receive(from, began, func(size int) time.Duration { return steps(size) + life }, 1, 8)
}

// Holds survive a kill, and the module that set them is not needed.
func TestHoldsSurvive(t *testing.T) {
	t.Parallel()
	yaml := fmt.Sprintf("data: {dir: %q}\n", t.TempDir())
	b := start(t, yaml)
	b.ask(201, "PUT", "wasm/policies/x", fields{"module": holding(abi.OnEnqueue), "grants": []string{"hold"}})
	b.declare("jobs", amqp091.Table{"x-expiry-strategy": "wasm/x"})
	began := b.send("jobs", 35, 0, 30) // a restart may take seconds
	b.ask(204, "DELETE", "wasm/policies/x?force=true", nil)
	b.Kill()
	b = start(t, yaml)
	from, err := b.ch.Consume("jobs", "", false, false, false, false, nil)
	must(t, err)
	b.receive(from, began, steps, 0, 30, 35)
}

// What a policy may not do, and what makes no sense, is refused when it is loaded.
func TestHoldsThatAreRefused(t *testing.T) {
	t.Parallel()
	b := start(t, "plugins: {delay: {max: 1h}}\n")
	forTwoHours := wt.New()
	hold := forTwoHours.Host("hold")
	forTwoHours.Batch(64)
	forTwoHours.Each(abi.OnEnqueue, wt.LocalGet(wt.Index), wt.LocalGet(wt.Now), wt.I64(7_200_000), wt.I64Add, wt.Call(hold))
	for _, tc := range []struct {
		what, want string
		load       fields
	}{
		{"without the grant", "the module imports policy_v1.hold, which needs the grant hold; granted: nothing", fields{"module": holding(abi.OnEnqueue)}},
		{
			"longer than plugins.delay.max", "hold until 1767578400000 is no time in milliseconds since 1970, or too late; accepted are -1, 0 and 100000000000 to 1767574800000",
			fields{"module": forTwoHours.Bytes(), "grants": []string{"hold"}},
		},
	} {
		if got := string(b.ask(400, "PUT", "wasm/policies/x", tc.load)); !strings.Contains(got, tc.want) {
			t.Errorf("%s: got %s, want it to say %s", tc.what, got, tc.want)
		}
	}
}
