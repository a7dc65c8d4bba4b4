package wasm

import (
	"strings"
	"testing"
	"time"

	wt "github.com/curfewmq/curfew/plugins/wasm/wasmtest"
	"github.com/curfewmq/curfew/sdk/abi"
	"github.com/curfewmq/curfew/sdk/hook"
	"github.com/curfewmq/curfew/sdk/hooktest"
)

// A breaker that opened is tried again after a while, and longer pauses follow.
func TestBreaker(t *testing.T) {
	h := open(t, 1, Env{})
	load(t, h, "x", assemble(func(b *wt.Builder) { // traps for messages of priority 9
		b.Batch(8)
		b.Each(abi.OnEnqueue, wt.LocalGet(wt.Record), wt.I32Load8U(abi.RecordPriority), wt.I32(9), wt.I32Eq, wt.If(wt.Unreachable), wt.Keep(wt.I64(nowMillis)))
	}), Options{})
	hs := h.Attach(queue("x", nil))
	v := h.table.Load().policies["x"].active.Load()
	at := now
	for range tolerated {
		enqueue1(hs, at, hook.Message{Priority: 9})
		at = at.Add(10 * time.Second)
	}
	for _, pause := range []time.Duration{time.Minute, 2 * time.Minute, 4 * time.Minute} {
		at = hook.Instant(v.breaker.until.Load())
		if got := enqueue1(hs, at-1, hook.Message{}); got.Deadline != 0 {
			t.Errorf("it was asked while the breaker was open")
		}
		enqueue1(hs, at, hook.Message{Priority: 9})
		if got := hook.Instant(v.breaker.until.Load()).Sub(at); got != min(2*pause, longestPause) {
			t.Errorf("got a pause of %s, want %s", got, 2*pause)
		}
	}
	at = hook.Instant(v.breaker.until.Load()).Add(lastPause)
	if got := enqueue1(hs, at, hook.Message{}); got.Deadline != now || len(h.Alarms()) > 0 {
		t.Errorf("it works again: got %+v, alarms %v", got, h.Alarms())
	}
}

// Decisions about messages while their policy fails.
func TestOnError(t *testing.T) {
	m := hook.Message{Expiration: hook.LimitOf(400)}
	for _, tc := range []struct {
		onError OnError
		enter   hook.Verdict
	}{
		{Builtin, hook.Verdict{Again: true, Deadline: now.AddMillis(400)}},
		{Keep, hook.Verdict{Again: true}},
		{Reject, hook.Verdict{Action: hook.Refuse, Again: true}},
	} {
		h := open(t, 1, Env{})
		load(t, h, "x", failing(), Options{OnError: tc.onError})
		hs := h.Attach(queue("x", nil))
		for range 3 {
			if got := enqueue1(hs, now, m); got != tc.enter {
				t.Errorf("%s: got %+v, want %+v", tc.onError, got, tc.enter)
			}
		}
	}
}

// If the policy has set a message's time, and cannot be called when that time is over, the message expires when it would without a
// policy, and not before.
func TestFailsWhenDue(t *testing.T) {
	module := assemble(func(b *wt.Builder) { b.Batch(8); b.Each(abi.OnDeadline, wt.Unreachable) })
	queueTTL := map[string]any{"message-ttl": int32(5000)}
	for _, tc := range []struct {
		name     string
		onError  OnError
		settings map[string]any
		age      int64 // milliseconds
		want     hook.Verdict
	}{
		{"before its own time", Builtin, queueTTL, 100, hook.Verdict{Again: true, Deadline: now.AddMillis(1000)}},
		{"shortly before", Builtin, queueTTL, 4900, hook.Verdict{Again: true, Deadline: now.AddMillis(100)}},
		{"at its own time", Builtin, queueTTL, 5000, hook.Verdict{Action: hook.Drop, Reason: hook.ReasonExpired, Deadline: now}},
		{"without one", Builtin, nil, 100_000, hook.Verdict{Again: true, Deadline: now.AddMillis(1000)}},
		{"kept", Keep, queueTTL, 5000, hook.Verdict{Again: true, Deadline: now.AddMillis(1000)}},
	} {
		h := open(t, 1, Env{})
		load(t, h, "x", module, Options{OnError: tc.onError})
		hs := h.Attach(queue("x", tc.settings))
		m := hook.Message{Enqueued: now.AddMillis(-tc.age), Deadline: now, Why: hook.WhyDue}
		if got := head1(hs, now, m); got != tc.want {
			t.Errorf("%s: got %+v, want %+v", tc.name, got, tc.want)
		}
	}
}

// Instances lost to traps are replaced after a pause, and no sooner.
func TestPoolRecovers(t *testing.T) {
	h := open(t, 2, Env{})
	load(t, h, "x", assemble(func(b *wt.Builder) {
		b.Batch(8)
		b.Each(abi.OnEnqueue, wt.LocalGet(wt.Record), wt.I32Load8U(abi.RecordPriority), wt.I32(9), wt.I32Eq, wt.If(wt.Unreachable), wt.Keep(wt.I64(nowMillis)))
	}), Options{})
	hs := h.Attach(queue("x", nil))
	enqueue1(hs, now, hook.Message{Priority: 9})
	if got := enqueue1(hs, now.Add(firstPause)-1, hook.Message{}); got.Deadline != 0 {
		t.Error("an instance was made too soon")
	}
	if got := enqueue1(hs, now.Add(firstPause), hook.Message{}); got.Deadline != now {
		t.Errorf("got %+v", got)
	}
	if i, _ := h.Info("x"); i.Instances != 1 || i.Errors["unavailable"] != 1 || i.Memory != pageSize {
		t.Errorf("got %+v", i)
	}
}

// Memory that all instances share runs out: no instance is made, none is lost.
func TestTotalMemory(t *testing.T) {
	h, _ := hooktest.New(t, Factory, hooktest.Section{"total-memory": "128KiB"}).(*Host)
	if err := h.Open(Env{}); err != nil {
		t.Fatal(err)
	}
	defer h.Close()
	load(t, h, "a", ttl(1), Options{})
	load(t, h, "b", ttl(1), Options{})
	if _, err := h.Load("c", ttl(1), Options{}); err == nil || !strings.Contains(err.Error(), "which plugins.wasm.total-memory does not leave") {
		t.Errorf("got %v", err)
	}
	if err := h.Unload("a", false); err != nil {
		t.Fatal(err)
	}
	load(t, h, "c", ttl(1), Options{})
}
