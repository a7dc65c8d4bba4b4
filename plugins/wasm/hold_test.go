package wasm

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	wt "github.com/curfewmq/curfew/plugins/wasm/wasmtest"
	"github.com/curfewmq/curfew/sdk/abi"
	"github.com/curfewmq/curfew/sdk/hook"
	"github.com/curfewmq/curfew/sdk/hook/guest"
	"github.com/curfewmq/curfew/sdk/hooktest"
)

// holding is a module whose hooks hold each message until a given time, and answer with the verdict of says.
func holding(until int64, a answers) []byte {
	return assemble(func(b *wt.Builder) {
		hold := b.Host("hold")
		code := slices.Concat(wt.LocalGet(wt.Index), wt.I64(until), wt.Call(hold), a.code(b))
		b.Batch(4)
		for _, h := range []abi.Hook{abi.OnEnqueue, abi.OnDeadline, abi.OnHead, abi.OnRequeue} {
			b.Each(h, code)
		}
	})
}

var mayHold = Options{Grants: []string{"hold", "route"}}

// heldBy returns a module's verdict on each occasion on which it is called about a message whose deadline is an hour away, or now.
func heldBy(hs hook.Hooks, before hook.Verdict) map[string]hook.Verdict {
	inForce := now.Add(time.Hour)
	ask := func(m hook.Message, of func(hook.Instant, []hook.Message, []hook.Verdict)) hook.Verdict {
		m.Enqueued = now.Add(-time.Second)
		vs := []hook.Verdict{before}
		if m.Why != hook.WhyEnqueue {
			guest.Restore(&vs[0], &m)
		}
		of(now, hooktest.Messages(m), vs)
		return vs[0]
	}
	return map[string]hook.Verdict{
		"enqueue": ask(hook.Message{}, hs.OnEnqueue),
		"due":     ask(hook.Message{Deadline: now, Why: hook.WhyDue}, hs.OnHead),
		"head":    ask(hook.Message{Deadline: inForce, Why: hook.WhyHead}, hs.OnHead),
		"requeue": ask(hook.Message{Deadline: inForce, Why: hook.WhyRequeue}, hs.OnRequeue),
		"restamp": ask(hook.Message{Deadline: inForce, Why: hook.WhyChange}, hs.OnRestamp),
	}
}

func TestHold(t *testing.T) {
	at := func(millis int64) hook.Instant { return now.AddMillis(millis) } // now also has a part below a millisecond
	const second = 1000
	keep := answers{action: abi.Keep}
	for _, tc := range []struct {
		name  string
		until int64
		says  answers
		want  map[string]hook.Instant // by occasion; 0 = it is not held
	}{
		{"five seconds", nowMillis + 5*second, keep, map[string]hook.Instant{"enqueue": at(5 * second), "due": at(5 * second), "head": at(5 * second), "requeue": at(5 * second)}},
		{"a moment", nowMillis + 1, keep, map[string]hook.Instant{"enqueue": at(1), "due": at(second), "head": at(second), "requeue": at(1)}},
		{"beyond the deadline", nowMillis + 7200*second, keep, map[string]hook.Instant{"enqueue": at(7200 * second), "due": at(7200 * second), "head": at(7200 * second), "requeue": at(7200 * second)}},
		{"now", nowMillis, keep, nil},
		{"the past", nowMillis - 1, keep, nil},
		{"never", -1, keep, nil},
		{"zero", 0, keep, nil},
		{"the earliest time", abi.Earliest, keep, nil},
		{"the latest time", nowMillis + hook.MaxMillis, keep, map[string]hook.Instant{"enqueue": at(hook.MaxMillis), "due": at(hook.MaxMillis), "head": at(hook.MaxMillis), "requeue": at(hook.MaxMillis)}},
		{"no opinion", nowMillis + second, answers{action: abi.NoOpinion}, map[string]hook.Instant{"enqueue": at(second), "head": at(second), "requeue": at(second)}},
		{"ask again", nowMillis + second, answers{action: abi.Requeue}, map[string]hook.Instant{"enqueue": at(second), "due": at(second), "head": at(second), "requeue": at(second)}},
		{
			"dead-letter later", nowMillis + second,
			answers{action: abi.DeadLetter, exchange: "x", until: new(nowMillis + 2*second)},
			map[string]hook.Instant{"enqueue": at(second), "due": at(second), "head": at(second), "requeue": at(second)},
		},
		{"dead-letter at once", nowMillis + second, answers{action: abi.DeadLetter, exchange: "x", until: new(int64(-1))}, nil},
		{"expire", nowMillis + second, answers{action: abi.Expire}, nil},
		{"drop", nowMillis + second, answers{action: abi.Drop}, nil},
		{"keep until before", nowMillis + second, answers{action: abi.Keep, until: new(nowMillis - 1)}, map[string]hook.Instant{"enqueue": at(second)}},
	} {
		h := open(t, 1, Env{})
		load(t, h, "x", holding(tc.until, tc.says), mayHold)
		for what, got := range heldBy(h.Attach(queue("x", nil)), hook.Verdict{}) {
			if got.Hold != tc.want[what] {
				t.Errorf("%s, %s: held until %d, want %d", tc.name, what, got.Hold, tc.want[what])
			}
		}
		if i, _ := h.Info("x"); i.LastError != "" {
			t.Errorf("%s: %s", tc.name, i.LastError)
		}
	}
}

// An implausible time makes the whole verdict invalid: neither the hold nor the deadline applies, and on-error decides.
func TestHoldUntilNonsense(t *testing.T) {
	accepted := func(most int64) string {
		return fmt.Sprintf("; accepted are -1, 0 and 100000000000 to %d", nowMillis+most)
	}
	for _, tc := range []struct {
		name  string
		until int64
		most  hook.Limit
		want  string
	}{
		{"seconds", nowMillis / 1000, 0, accepted(hook.MaxMillis)},
		{"nanoseconds", int64(now), 0, accepted(hook.MaxMillis)},
		{"negative", -2, 0, accepted(hook.MaxMillis)},
		{"lowest", -1 << 63, 0, accepted(hook.MaxMillis)},
		{"highest", 1<<63 - 1, 0, accepted(hook.MaxMillis)},
		{"more than ten years", nowMillis + hook.MaxMillis + 1, 0, accepted(hook.MaxMillis)},
		{"more than the broker allows", nowMillis + 60_001, hook.LimitOf(60_000), accepted(60_000)},
	} {
		for _, onError := range []OnError{Builtin, Keep, Reject} {
			h := open(t, 1, Env{MaxHold: tc.most})
			load(t, h, "x", holding(tc.until, answers{action: abi.Keep, until: new(nowMillis + 9), flags: abi.SetState, state: new(int64(4))}), Options{Grants: []string{"hold"}, OnError: onError})
			got := enqueue1(h.Attach(queue("x", nil)), now, hook.Message{Expiration: hook.LimitOf(500)})
			want := map[OnError]hook.Verdict{Builtin: {Again: true, Deadline: now.AddMillis(500)}, Keep: {Again: true}, Reject: {Action: hook.Refuse, Again: true}}[onError]
			i, _ := h.Info("x")
			if text := fmt.Sprintf("on_enqueue: verdict 0 of 1: hold until %d is no time in milliseconds since 1970, or too late%s", tc.until, tc.want); got != want || i.LastError != text || i.Errors["verdict"] != 1 {
				t.Errorf("%s, %s: got %+v, want %+v\n%s\n%s", tc.name, onError, got, want, i.LastError, text)
			}
		}
	}
	h := open(t, 1, Env{MaxHold: hook.LimitOf(60_000)})
	load(t, h, "x", holding(nowMillis+60_000, answers{}), mayHold)
	if got := enqueue1(h.Attach(queue("x", nil)), now, hook.Message{}); got.Hold != now.AddMillis(60_000) {
		t.Errorf("as long as the broker allows: got %+v", got)
	}
}

// One invalid hold does not affect the other messages of the call, and messages that are not held are treated as without holds.
func TestHoldsOfOneCall(t *testing.T) {
	h := open(t, 1, Env{})
	load(t, h, "x", assemble(func(b *wt.Builder) {
		hold := b.Host("hold")
		priority := slices.Concat(wt.LocalGet(wt.Record), wt.I32Load8U(abi.RecordPriority))
		seconds := slices.Concat(wt.LocalGet(wt.Now), priority, wt.I64Extend, wt.I64(1000), wt.I64Mul, wt.I64Add)
		b.Batch(8)
		b.Each(abi.OnEnqueue,
			priority, wt.I32(1), wt.I32Eq, wt.If(wt.LocalGet(wt.Index), seconds, wt.Call(hold)),
			priority, wt.I32(2), wt.I32Eq, wt.If(wt.LocalGet(wt.Index), wt.I64(77), wt.Call(hold)),
			priority, wt.I32(3), wt.I32Eq, wt.If( // of several times the last counts
				wt.LocalGet(wt.Index), wt.I64(77), wt.Call(hold),
				wt.LocalGet(wt.Index), seconds, wt.Call(hold)),
			priority, wt.I32(4), wt.I32Eq, wt.If(
				wt.LocalGet(wt.Index), seconds, wt.Call(hold),
				wt.LocalGet(wt.Index), wt.I64(-1), wt.Call(hold)),
			wt.Keep(wt.LocalGet(wt.Now), wt.I64(9000), wt.I64Add))
	}), mayHold)
	hs := h.Attach(queue("x", nil))
	for from := range 2 { // the second call has nothing of the first
		ms, vs := make([]hook.Message, 16), make([]hook.Verdict, 16)
		for i := range ms {
			ms[i] = hook.Message{Enqueued: now, Priority: uint8((i + from) % 5)}
		}
		hooktest.Bind(ms)
		hs.OnEnqueue(now, ms, vs)
		for i, v := range vs {
			deadline, held := now.AddMillis(9000), hook.Instant(0)
			switch ms[i].Priority {
			case 1:
				held = now.AddMillis(1000)
			case 2:
				deadline = 0
			case 3:
				held = now.AddMillis(3000)
			}
			if v.Hold != held || v.Deadline != deadline {
				t.Errorf("message %d of call %d, priority %d: got %+v", i, from, ms[i].Priority, v)
			}
		}
	}
	if i, _ := h.Info("x"); i.Errors["verdict"] != 6 {
		t.Errorf("got %v", i.Errors)
	}
}

// A module that takes each message by itself holds it, too.
func TestHoldOfDeadline(t *testing.T) {
	h := open(t, 1, Env{})
	load(t, h, "x", assemble(func(b *wt.Builder) {
		hold := b.Host("hold")
		b.Single()
		b.Has(abi.Deadline.String(),
			wt.LocalGet(3), wt.If(wt.I32(0), wt.LocalGet(0), wt.I64(50), wt.I64Add, wt.Call(hold)),
			wt.LocalGet(0), wt.I64(90), wt.I64Add)
	}), mayHold)
	ms, vs := make([]hook.Message, 6), make([]hook.Verdict, 6)
	for i := range ms {
		ms[i] = hook.Message{Enqueued: now, Priority: uint8(i % 2)}
	}
	hooktest.Bind(ms)
	h.Attach(queue("x", nil)).OnEnqueue(now, ms, vs)
	for i, v := range vs {
		if want := hook.Instant(i%2) * now.AddMillis(50); v.Hold != want || v.Deadline != now.AddMillis(90) {
			t.Errorf("message %d: got %+v, want it held until %d", i, v, want)
		}
	}
}

// If several plugins hold a message, the latest hold applies, and a failing policy keeps the holds of others.
func TestHoldsOfOthers(t *testing.T) {
	early, late := hook.Verdict{Hold: now.AddMillis(10)}, hook.Verdict{Hold: now.AddMillis(90)}
	for _, tc := range []struct {
		name   string
		module []byte
		before hook.Verdict
		want   int64
	}{
		{"later than others", holding(nowMillis+50, answers{}), early, 50},
		{"earlier than others", holding(nowMillis+50, answers{}), late, 90},
		{"nonsense", holding(77, answers{}), early, 10},
		{"invalid verdict", holding(nowMillis+50, answers{action: 9}), early, 10},
		{"taken back", holding(-1, answers{}), early, 10},
		{"trap", assemble(func(b *wt.Builder) {
			hold := b.Host("hold")
			b.Batch(8)
			b.Each(abi.OnEnqueue, wt.LocalGet(wt.Index), wt.I64(nowMillis+50), wt.Call(hold), wt.Unreachable)
		}), early, 10},
	} {
		h := open(t, 1, Env{})
		load(t, h, "x", tc.module, mayHold)
		vs := []hook.Verdict{tc.before}
		h.Attach(queue("x", nil)).OnEnqueue(now, hooktest.Messages(hook.Message{Enqueued: now}), vs)
		if want := now.AddMillis(tc.want); vs[0].Hold != want {
			t.Errorf("%s: held until %d, want %d", tc.name, vs[0].Hold, want)
		}
	}
}

// If the policy has no opinion about a message, its TTL counts from when it is ready: the broker moves the deadline. A deadline set by
// the policy has the module's digest, and does not move.
func TestHoldAndTTL(t *testing.T) {
	for _, tc := range []struct {
		name   string
		module []byte
		want   int64 // milliseconds
		its    bool  // the deadline is the module's
	}{
		{"no opinion", holding(nowMillis+5000, answers{action: abi.NoOpinion}), 2000, false},
		{"it fails", says(answers{action: 9}, true), 2000, false},
		{"keep", holding(nowMillis+5000, answers{until: new(nowMillis + 3000)}), 3000, true},
		{"ask again", holding(nowMillis+5000, answers{action: abi.Requeue, until: new(nowMillis + 3000)}), 3000, true},
	} {
		h := open(t, 1, Env{})
		digest := short(load(t, h, "x", tc.module, mayHold))
		hs := h.Attach(queue("x", map[string]any{"message-ttl": int32(2000)}))
		v := enqueue1(hs, now, hook.Message{})
		if v.Deadline != now.AddMillis(tc.want) || (guest.Digest(&v) == digest) != tc.its || !hs.DeadlineFromReady {
			t.Errorf("%s: got %+v, want the deadline %d", tc.name, v, now.AddMillis(tc.want))
		}
	}
}

// A shadow's holds are compared, and those of other plugins are not taken for differences.
func TestShadowHolds(t *testing.T) {
	holds := func(ms int64) []byte { return holding(nowMillis+ms, answers{}) }
	for _, tc := range []struct {
		name         string
		real, shadow []byte
		before       hook.Verdict
		differing    uint64
		native       uint64 // differences from another plugin's strategy that holds in the same way
	}{
		{"both", holds(50), holds(50), hook.Verdict{}, 0, 0},
		{"longer", holds(50), holds(51), hook.Verdict{}, 1, 1},
		{"shorter", holds(50), holds(49), hook.Verdict{}, 1, 0},
		{"none", holds(50), says(answers{}, true), hook.Verdict{}, 1, 0},
		{"another plugin holds it", says(answers{}, true), says(answers{}, true), hook.Verdict{Hold: now.AddMillis(90)}, 0, 0},
		{"another plugin holds it for longer", holds(50), holds(51), hook.Verdict{Hold: now.AddMillis(90)}, 0, 0},
		{"another plugin holds it for less", holds(50), holds(51), hook.Verdict{Hold: now.AddMillis(10)}, 1, 1},
	} {
		h := open(t, 1, Env{})
		load(t, h, "real", tc.real, mayHold)
		for name, beside := range map[string]string{"shade": "wasm/real", "native": "deadline"} {
			if _, err := h.Shadow(name, tc.shadow, mayHold, beside); err != nil {
				t.Fatal(err)
			}
		}
		hs := h.Attach(queue("real", nil))
		vs := []hook.Verdict{tc.before}
		hs.OnEnqueue(now, hooktest.Messages(hook.Message{Enqueued: now}), vs)
		inForce := vs[0]
		h.Attach(hooktest.NewQueue(hooktest.Spec{Strategy: "deadline"})).OnEnqueue(now, hooktest.Messages(hook.Message{Enqueued: now}), vs)
		if vs[0] != inForce {
			t.Errorf("%s: the shadow is heard: got %+v", tc.name, vs[0])
		}
		if i, _ := h.Info("shade"); i.Shadow.Compared != 1 || i.Shadow.Differing != tc.differing {
			t.Errorf("%s: got %+v, want %d differing", tc.name, i.Shadow, tc.differing)
		}
		if i, _ := h.Info("native"); i.Shadow.Compared != 1 || i.Shadow.Differing != tc.native {
			t.Errorf("%s, beside another plugin: got %+v, want %d differing", tc.name, i.Shadow, tc.native)
		}
	}
}

// A module's imports show which grants it needs: without them it is not loaded.
func TestHoldNeedsAGrant(t *testing.T) {
	h := open(t, 1, Env{})
	module := holding(nowMillis+1, answers{})
	_, err := h.Load("x", module, Options{Grants: []string{"headers"}})
	if err == nil || !strings.Contains(err.Error(), "the module imports policy_v1.hold, which needs the grant hold; granted: headers") {
		t.Errorf("got %v", err)
	}
	load(t, h, "x", module, mayHold)
	if m, err := Inspect(module); err != nil || !slices.Equal(m.Grants, []abi.Grant{abi.Hold}) {
		t.Errorf("got %+v, %v", m.Grants, err)
	}
}

// A module that holds for too long is refused when it is tried.
func TestTrialOfHolds(t *testing.T) {
	forAnHour := assemble(func(b *wt.Builder) {
		hold := b.Host("hold")
		b.Batch(64)
		b.Each(abi.OnEnqueue, wt.LocalGet(wt.Index), wt.LocalGet(wt.Now), wt.I64(3_600_000), wt.I64Add, wt.Call(hold))
	})
	if _, err := openTrying(t, 1, Env{}).Load("x", forAnHour, mayHold); err != nil {
		t.Error(err)
	}
	_, err := openTrying(t, 1, Env{MaxHold: hook.LimitOf(3_599_999)}).Load("x", forAnHour, mayHold)
	if err == nil || !strings.Contains(err.Error(), "the policy failed: on_enqueue: verdict 0 of 1: hold until 1767574800000 is no time") {
		t.Errorf("got %v", err)
	}
}
