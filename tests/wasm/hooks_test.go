package wasm

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/rabbitmq/amqp091-go"

	wt "github.com/curfewmq/curfew/plugins/wasm/wasmtest"
	"github.com/curfewmq/curfew/sdk/abi"
	"github.com/curfewmq/curfew/tests/process"
)

// A policy that fails, and whose settings refuse messages then, has publishers told so.
func TestReject(t *testing.T) {
	t.Parallel()
	m := wt.New()
	m.Batch(8)
	m.Each(abi.OnEnqueue, wt.Later(wt.Unreachable))
	b := start(t, "")
	b.Excuse(complaints[0])
	b.ask(201, "PUT", "wasm/policies/x", fields{"module": m.Bytes(), "on_error": "reject"})
	b.declare("jobs", amqp091.Table{"x-expiry-strategy": "wasm/x"})
	c, err := b.ch.PublishWithDeferredConfirm("", "jobs", false, false, amqp091.Publishing{})
	must(t, err)
	if acked, err := c.WaitContext(t.Context()); acked || err != nil {
		t.Errorf("acked: %t, %v", acked, err)
	}
	if n := b.waiting("jobs"); n != 0 {
		t.Errorf("%d messages wait", n)
	}
}

// A message that comes back gets the deadline that the policy has for it then, and its state is what the policy made it.
func TestRequeue(t *testing.T) {
	t.Parallel()
	const first, step = time.Hour, 24 * time.Hour
	m := wt.New()
	m.Batch(8)
	keepState := func(state ...[]byte) []byte {
		code := []byte{}
		for _, part := range [][]byte{wt.LocalGet(wt.Verdict), wt.I32(abi.SetState), wt.I32Store(abi.VerdictFlags), wt.LocalGet(wt.Verdict)} {
			code = append(code, part...)
		}
		for _, part := range state {
			code = append(code, part...)
		}
		return append(code, wt.I64Store(abi.VerdictState)...)
	}
	m.Each(abi.OnEnqueue, wt.Keep(wt.LocalGet(wt.Now), wt.I64(first.Milliseconds()), wt.I64Add), keepState(wt.I64(step.Milliseconds())))
	m.Each(abi.OnRequeue, wt.Keep(wt.LocalGet(wt.Now), wt.LocalGet(wt.Record), wt.I64Load(abi.RecordState), wt.I64Add),
		keepState(wt.LocalGet(wt.Record), wt.I64Load(abi.RecordState), wt.I64(2), wt.I64Mul))
	b := start(t, "")
	b.ask(201, "PUT", "wasm/policies/lease", fields{"module": m.Bytes()})
	b.declare("jobs", amqp091.Table{"x-expiry-strategy": "wasm/lease"})
	began := time.Now()
	b.publish("jobs", 0, 1)
	b.checkDeadline("jobs", began, first)
	for _, want := range []time.Duration{step, 2 * step, 4 * step} {
		began = time.Now()
		d, ok, err := b.ch.Get("jobs", false)
		must(t, err)
		if !ok {
			t.Fatal("the message is not there")
		}
		must(t, d.Nack(false, true))
		b.checkDeadline("jobs", began, want)
	}
}

// checkDeadline wants a queue's next deadline to be so long after some time, or somewhat later.
func (b *broker) checkDeadline(queue string, began time.Time, want time.Duration) {
	b.t.Helper()
	var got time.Duration
	if !process.Poll(func() bool {
		var q struct {
			Deadline int64 `json:"next_deadline"`
		}
		must(b.t, json.Unmarshal(b.ask(200, "GET", "queues/%2F/"+queue, nil), &q))
		got = time.UnixMilli(q.Deadline).Sub(began)
		return got >= want-clockSlack && got < want+process.Patience
	}) {
		b.t.Errorf("the next deadline is %s away, want %s", got, want)
	}
}

// A policy says how long a queue may be unused.
func TestIdle(t *testing.T) {
	t.Parallel()
	const lease = 300
	m := wt.New()
	m.Single()
	m.Has(abi.OnIdle.String(),
		wt.LocalGet(1), wt.I64(lease), wt.I64GeS, wt.If(wt.I64(abi.IdleDelete), wt.Return),
		wt.LocalGet(0), wt.I64(lease), wt.I64Add)
	b := start(t, "")
	b.ask(201, "PUT", "wasm/policies/lease", fields{"module": m.Bytes()})
	began := time.Now()
	b.declare("replies", amqp091.Table{"x-expiry-strategy": "wasm/lease"})
	b.declare("others", nil)
	there := func() bool {
		return strings.Contains(string(b.ask(200, "GET", "queues?columns=name", nil)), `"replies"`)
	}
	if !process.Poll(func() bool { return !there() }) {
		t.Error("the queue is still there")
	}
	if lived := time.Since(began); lived < lease*time.Millisecond {
		t.Errorf("the queue is gone after %s", lived)
	}
}
