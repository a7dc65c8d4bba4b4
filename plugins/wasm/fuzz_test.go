package wasm

import (
	"encoding/binary"
	"testing"

	wt "github.com/curfewmq/curfew/plugins/wasm/wasmtest"
	"github.com/curfewmq/curfew/sdk/abi"
	"github.com/curfewmq/curfew/sdk/hook"
	"github.com/curfewmq/curfew/sdk/hooktest"
)

// parrot is a module whose hooks answer with the message-id.
func parrot() []byte {
	return assemble(func(b *wt.Builder) {
		property := b.Host("prop_str")
		b.Batch(4)
		for _, h := range []abi.Hook{abi.OnEnqueue, abi.OnDeadline, abi.OnHead, abi.OnRequeue} {
			b.Each(h, wt.LocalGet(wt.Index), wt.I32(abi.PropMessageID), wt.LocalGet(wt.Verdict), wt.I32(abi.VerdictSize), wt.Call(property), wt.Drop)
		}
	})
}

// Whatever a guest answers, the broker gets a verdict that is valid on the occasion, or its own decision.
func FuzzVerdicts(f *testing.F) {
	for _, action := range []byte{abi.Keep, abi.Expire, abi.DeadLetter, abi.Requeue, abi.Drop, abi.NoOpinion, 9} {
		for _, until := range []int64{-1, 0, 5, nowMillis - 1, nowMillis + 1, abi.Latest, abi.Latest + 1} {
			b := make([]byte, abi.VerdictSize)
			b[abi.VerdictAction], b[abi.VerdictFlags] = action, 3
			binary.LittleEndian.PutUint64(b[abi.VerdictUntil:], uint64(until))
			binary.LittleEndian.PutUint64(b[abi.VerdictStrings:], 1<<32|4096)
			f.Add(b)
		}
	}
	h := open(f, 1, Env{})
	load(f, h, "x", parrot(), Options{Grants: []string{"headers", "route"}})
	hs := h.Attach(queue("x", map[string]any{"message-ttl": int32(2000)}))
	f.Fuzz(func(t *testing.T, said []byte) {
		if len(said) != abi.VerdictSize {
			return
		}
		checkSaid(t, hs, said)
		h.table.Load().policies["x"].active.Load().breaker.reset()
	})
}

// checkSaid checks the effect of an answer on each occasion.
func checkSaid(t *testing.T, hs hook.Hooks, said []byte) {
	t.Helper()
	content := hooktest.Content{Parts: map[hook.Part][]byte{hook.PartMessageID: said}}
	inForce := now.AddMillis(60_000)
	for _, o := range []struct {
		name  string
		call  func(hook.Instant, []hook.Message, []hook.Verdict)
		m     hook.Message
		start hook.Verdict
		stays bool // it can only be kept
	}{
		{"on_enqueue", hs.OnEnqueue, hook.Message{Enqueued: now}, hook.Verdict{}, false},
		{"on_enqueue, limited", hs.OnEnqueue, hook.Message{Enqueued: now}, hook.Verdict{Deadline: now + 1}, false},
		{"on_deadline", hs.OnHead, hook.Message{Enqueued: now - 1, Deadline: now, Why: hook.WhyDue}, hook.Verdict{Deadline: now}, false},
		{"on_head", hs.OnHead, hook.Message{Enqueued: now - 1, Deadline: inForce, Why: hook.WhyHead}, hook.Verdict{Deadline: inForce}, false},
		{"on_requeue", hs.OnRequeue, hook.Message{Enqueued: now - 1, Deadline: inForce, Why: hook.WhyRequeue}, hook.Verdict{Deadline: inForce}, true},
		{"restamp", hs.OnRestamp, hook.Message{Enqueued: now - 1, Deadline: inForce, Why: hook.WhyChange}, hook.Verdict{}, true},
	} {
		ms, vs := []hook.Message{o.m}, []hook.Verdict{o.start}
		hooktest.Bind(ms, content)
		o.call(now, ms, vs)
		v := vs[0]
		leaves := v.Action == hook.Drop || v.Action == hook.Route
		switch {
		case v.Action != hook.Keep && (!leaves || o.stays):
			t.Errorf("%s: %x: action %d", o.name, said, v.Action)
		case leaves && v.Reason != hook.ReasonExpired, (v.Action == hook.Route) != (v.Target != nil):
			t.Errorf("%s: %x: got %+v", o.name, said, v)
		case v.Deadline < 0, o.name == "on_enqueue, limited" && v.Action == hook.Keep && (v.Deadline == 0 || v.Deadline > now+1):
			t.Errorf("%s: %x: deadline %d", o.name, said, v.Deadline)
		case o.name == "on_deadline" && v.Action == hook.Keep && v.Deadline != 0 && v.Deadline <= now:
			t.Errorf("%s: %x: a message that is due stays and is due", o.name, said)
		}
	}
}
