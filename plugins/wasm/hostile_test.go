package wasm

import (
	"testing"

	wt "github.com/curfewmq/curfew/plugins/wasm/wasmtest"
	"github.com/curfewmq/curfew/sdk/hook"
	"github.com/curfewmq/curfew/sdk/hooktest"
)

// crowd is a batch of entering messages, each with its own expiration.
func crowd(n int) ([]hook.Message, []hook.Verdict) {
	ms := make([]hook.Message, n)
	for i := range ms {
		ms[i] = hook.Message{Enqueued: now, Expiration: hook.LimitOf(int64(1000 + i))}
	}
	hooktest.Bind(ms)
	return ms, make([]hook.Verdict, n)
}

// Every hostile module is stopped by its fuel, and messages are decided without it: none is lost, none expires early.
func TestHostile(t *testing.T) {
	for _, m := range wt.Hostiles() {
		t.Run(m.Name, func(t *testing.T) {
			h := open(t, 2, Env{})
			load(t, h, "x", m.Module, Options{})
			hs := h.Attach(queue("x", nil))
			const calls = 20
			for i := range hook.Instant(calls) {
				at := now + i*1_000_000_000
				ms, vs := crowd(64)
				hs.OnEnqueue(at, ms, vs)
				for j, v := range vs {
					if want := (hook.Verdict{Again: true, Deadline: now.AddMillis(int64(1000 + j))}); v != want {
						t.Fatalf("call %d, message %d: got %+v, want %+v", i, j, v, want)
					}
				}
			}
			checkHostile(t, h, m.Kind)
		})
	}
}

// checkHostile checks the reports about a hostile module: the kind of failure, and that it was no longer called after five failures, if
// they were more than invalid verdicts.
func checkHostile(t *testing.T, h *Host, kind string) {
	t.Helper()
	i, _ := h.Info("x")
	failures := i.Errors["trap"] + i.Errors["fuel"] + i.Errors["memory"] + i.Errors["fail"]
	if kind == "" && i.Errors["trap"]+i.Errors["fuel"]+i.Errors["memory"] == failures {
		kind = "trap"
		i.Errors[kind] = failures
	}
	if i.Errors[kind] == 0 || i.LastError == "" {
		t.Errorf("got %v, last %q, want %s", i.Errors, i.LastError, kind)
	}
	if i.FuelPerCall > uint64(i.MaxFuel) || i.Memory > defaultMemory*2 {
		t.Errorf("got %d fuel in a call, %d bytes", i.FuelPerCall, i.Memory)
	}
	if kind == "verdict" {
		return
	}
	if failures != tolerated || i.Breaker != "open" || len(h.Alarms()) != 1 {
		t.Errorf("got %d failures, breaker %s, want %d, open", failures, i.Breaker, tolerated)
	}
}

// BenchmarkHostile measures how long it takes to stop a hostile module.
func BenchmarkHostile(b *testing.B) {
	for _, m := range wt.Hostiles() {
		b.Run(m.Name, func(b *testing.B) {
			h := open(b, 1, Env{})
			load(b, h, "x", m.Module, Options{})
			hs := h.Attach(queue("x", nil))
			v := h.table.Load().policies["x"].active.Load()
			at := now
			for b.Loop() {
				ms, vs := crowd(64)
				hs.OnEnqueue(at, ms, vs)
				v.breaker.reset()
				at = at.Add(lastPause)
			}
		})
	}
}
