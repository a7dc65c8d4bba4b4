//go:build !race && !invariants

package chain

import (
	"testing"

	"github.com/curfewmq/curfew/sdk/hook"
	"github.com/curfewmq/curfew/sdk/hooktest"
)

// stamp does the work of a typical strategy.
var stamp = each(func(m *hook.Message, v *hook.Verdict) { v.Deadline = m.Enqueued + 1000 })

// chains are typical chains of queues: the strategy alone, with dead-lettering, and with a limit that refuses every other message.
func chains() map[string][]hook.Plugin {
	half := each(func(m *hook.Message, v *hook.Verdict) {
		if m.Priority%2 == 0 {
			v.Action = hook.Refuse
		}
	})
	route := each(func(_ *hook.Message, v *hook.Verdict) {
		if v.Action == hook.Drop {
			v.Action, v.Target = hook.Route, target
		}
	})
	return map[string][]hook.Plugin{
		"1 plugin":          {strategyAt(onEnqueue, stamp)},
		"2 plugins":         {strategyAt(onEnqueue, stamp), at(onEnqueue, route)},
		"3 plugins, refuse": {strategyAt(onEnqueue, stamp), at(onEnqueue, half), at(onEnqueue, route)},
	}
}

func TestNoAllocations(t *testing.T) {
	ms, vs := make([]hook.Message, 64), make([]hook.Verdict, 64)
	hooktest.Bind(ms)
	for i := range ms {
		ms[i].Priority = uint8(i)
	}
	for name, plugins := range chains() {
		_, h := attach(t, plugins...)
		n := testing.AllocsPerRun(100, func() {
			clear(vs)
			h.Enqueue(1, ms, vs)
			h.Head(1, ms, vs)
		})
		if n > 0 {
			t.Errorf("%s: got %v allocations per batch, want none", name, n)
		}
	}
}

func BenchmarkEnqueue(b *testing.B) {
	for _, name := range []string{"1 plugin", "2 plugins"} {
		_, h := attach(b, chains()[name]...)
		b.Run(name, func(b *testing.B) { hooktest.Bench(b, h.Enqueue, hook.Message{Enqueued: 5, Priority: 1}) })
	}
}

// BenchmarkOne measures the cost of a single message.
func BenchmarkOne(b *testing.B) {
	for _, name := range []string{"1 plugin", "2 plugins"} {
		_, h := attach(b, chains()[name]...)
		ms, vs := hooktest.Messages(hook.Message{Enqueued: 5}), make([]hook.Verdict, 1)
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				vs[0] = hook.Verdict{}
				h.Enqueue(5, ms, vs)
			}
		})
	}
}

func BenchmarkHead(b *testing.B) {
	drop := each(func(_ *hook.Message, v *hook.Verdict) { v.Action, v.Reason = hook.Drop, hook.ReasonExpired })
	_, h := attach(b, strategyAt(onHead, drop))
	hooktest.Bench(b, h.Head, hook.Message{Enqueued: 5, Deadline: 5, Why: hook.WhyDue})
}

// BenchmarkAttach measures the cost of a queue with one batch callback, in bytes too.
func BenchmarkAttach(b *testing.B) {
	c, _ := attach(b, strategyAt(onEnqueue, stamp), fake{}, fake{})
	q := hooktest.NewQueue(hooktest.Spec{Strategy: "s"})
	b.ReportAllocs()
	for b.Loop() {
		c.Attach(q, new(Memo))
	}
}
