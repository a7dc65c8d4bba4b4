//go:build !race && !invariants

package wasm

import (
	"fmt"
	"os"
	"testing"

	wt "github.com/curfewmq/curfew/plugins/wasm/wasmtest"
	"github.com/curfewmq/curfew/sdk/abi"
	"github.com/curfewmq/curfew/sdk/hook"
	"github.com/curfewmq/curfew/sdk/hooktest"
)

// lookup is a module that asks for a header of each message.
func lookup() []byte {
	b := wt.New()
	header := b.Host("header_i64")
	name := b.Text(16, "eta")
	b.Batch(64)
	b.Each(abi.OnEnqueue, wt.Keep(wt.LocalGet(wt.Index), name, wt.I64(-1), wt.Call(header)))
	return b.Bytes()
}

// holds is a module that holds each message.
func holds() []byte {
	b := wt.New()
	hold := b.Host("hold")
	b.Batch(64)
	b.Each(abi.OnEnqueue, wt.LocalGet(wt.Index), wt.LocalGet(wt.Now), wt.I64(1000), wt.I64Add, wt.Call(hold), wt.Keep(wt.I64(-1)))
	return b.Bytes()
}

// wide is ttl with room for more messages.
func wide(n int) []byte {
	b := wt.New()
	b.Batch(n)
	b.Each(abi.OnEnqueue, wt.Keep(wt.LocalGet(wt.Record), wt.I64Load(abi.RecordEnqueued), wt.I64(1000), wt.I64Add))
	return b.Bytes()
}

func messages(n int) ([]hook.Message, []hook.Verdict) {
	ms := make([]hook.Message, n)
	for i := range ms {
		ms[i] = hook.Message{Enqueued: now, Size: 100}
	}
	hooktest.Bind(ms)
	return ms, make([]hook.Verdict, n)
}

func TestNoAllocations(t *testing.T) {
	h := open(t, 1, Env{})
	load(t, h, "batch", wide(64), Options{})
	load(t, h, "single", singleTTL(1000), Options{})
	load(t, h, "header", lookup(), Options{Grants: []string{"headers"}})
	load(t, h, "hold", holds(), Options{Grants: []string{"hold"}})
	for _, name := range []string{"batch", "single", "header", "hold"} {
		hs := h.Attach(queue(name, nil))
		ms, vs := messages(100)
		if n := testing.AllocsPerRun(100, func() { clear(vs); hs.OnEnqueue(now, ms, vs) }); n > 0 {
			t.Errorf("%s: OnEnqueue: got %v allocations for 100 messages, want none", name, n)
		}
		if n := testing.AllocsPerRun(100, func() { clear(vs); hs.OnHead(now, ms, vs) }); n > 0 {
			t.Errorf("%s: OnHead: got %v allocations for 100 messages, want none", name, n)
		}
	}
}

func BenchmarkEnqueue(b *testing.B) {
	h := open(b, 1, Env{})
	for name, module := range map[string][]byte{"batch": wide(256), "single": singleTTL(1000), "header": lookup(), "hold": holds()} {
		load(b, h, name, module, Options{Grants: []string{"headers", "hold"}})
		hs := h.Attach(queue(name, nil))
		for _, n := range []int{1, 16, 64, 256} {
			b.Run(fmt.Sprintf("%s/%d", name, n), func(b *testing.B) {
				ms, vs := messages(n)
				b.ReportAllocs()
				for b.Loop() {
					clear(vs)
					hs.OnEnqueue(now, ms, vs)
				}
				b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*n), "ns/message")
			})
		}
	}
}

// BenchmarkCall measures the cost of calling a guest that does nothing.
func BenchmarkCall(b *testing.B) {
	m := wt.New()
	m.Single()
	m.Has(abi.Deadline.String(), wt.I64(-1))
	h := open(b, 1, Env{})
	load(b, h, "none", m.Bytes(), Options{})
	v := h.table.Load().policies["none"].active.Load()
	in := v.pool.take(now)
	defer v.pool.put(in)
	for b.Loop() {
		if err := in.calls[abi.Deadline].CallWithStack(in.ctx, in.stack[:]); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkTrial measures trying a compiled module when it is loaded. MODULE names an additional one, with fuel large.
func BenchmarkTrial(b *testing.B) {
	const examples = "../../wasm-examples/"
	files := map[string]string{"C": examples + "priority-ttl/priority.wasm", "Rust": examples + "header-deadline/header.wasm"}
	if extra := os.Getenv("MODULE"); extra != "" {
		files["MODULE"] = extra
	}
	for name, file := range files {
		module, err := os.ReadFile(file)
		if err != nil {
			b.Fatal(err)
		}
		for mode, what := range map[TrialMode]string{Decisive: "tried", Untried: "untried"} {
			b.Run(name+"/"+what, func(b *testing.B) {
				h := openTrying(b, 1, Env{Trial: mode})
				o := Options{Fuel: LargeFuel, Grants: []string{"headers"}}
				load(b, h, "x", module, o) // compiles it
				for b.Loop() {
					load(b, h, "x", module, o)
				}
			})
		}
	}
}
