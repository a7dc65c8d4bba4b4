package deadletter

import (
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/curfewmq/curfew/sdk/hook"
	"github.com/curfewmq/curfew/sdk/hooktest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestConformance(t *testing.T) {
	hooktest.Run(t, Factory, hooktest.Case{Name: "dlx", Queue: hooktest.Spec{Settings: map[string]any{
		"dead-letter-exchange": "dlx", "dead-letter-routing-key": "k",
	}}})
}

func attach(tb testing.TB, settings map[string]any) hook.Hooks {
	tb.Helper()
	return hooktest.New(tb, Factory, nil).Attach(hooktest.NewQueue(hooktest.Spec{Settings: settings}))
}

func TestEveryDropIsRouted(t *testing.T) {
	h := attach(t, map[string]any{"dead-letter-exchange": "dlx"})
	for at, call := range map[string]func(hook.Instant, []hook.Message, []hook.Verdict){"OnEnqueue": h.OnEnqueue, "OnHead": h.OnHead} {
		for r := hook.ReasonExpired; r <= hook.ReasonQueueExpired; r++ {
			vs := []hook.Verdict{{Action: hook.Drop, Reason: r, Nack: true}}
			call(1, hooktest.Messages(hook.Message{}), vs)
			v := vs[0]
			if v.Action != hook.Route || v.Reason != r || !v.Nack || v.Target == nil || *v.Target != (hook.Target{Exchange: "dlx"}) {
				t.Errorf("%s, %s: got %+v to %+v, want a Route to dlx, reason and nack as they were", at, r, v, v.Target)
			}
		}
	}
}

func TestOthersAreLeftAlone(t *testing.T) {
	h := attach(t, map[string]any{"dead-letter-exchange": "dlx"})
	elsewhere := &hook.Target{Exchange: "elsewhere"}
	for _, want := range []hook.Verdict{
		{},
		{Deadline: 5, State: 6, AskHead: true},
		{Action: hook.Refuse},
		{Action: hook.Drop, Reason: hook.ReasonDuplicate}, // its twin is in the queue
		{Action: hook.Route, Reason: hook.ReasonExpired, Target: elsewhere},
	} {
		vs := []hook.Verdict{want}
		h.OnEnqueue(1, hooktest.Messages(hook.Message{}), vs)
		if vs[0] != want {
			t.Errorf("got %+v, want %+v", vs[0], want)
		}
	}
}

func TestTarget(t *testing.T) {
	for _, tc := range []struct {
		name     string
		settings map[string]any
		want     hook.Target
	}{
		{"default exchange", map[string]any{"dead-letter-exchange": ""}, hook.Target{}},
		{"key", map[string]any{"dead-letter-exchange": "dlx", "dead-letter-routing-key": "k"}, hook.Target{Exchange: "dlx", Key: "k", HasKey: true}},
		{"empty key", map[string]any{"dead-letter-exchange": "dlx", "dead-letter-routing-key": ""}, hook.Target{Exchange: "dlx", HasKey: true}},
	} {
		h := attach(t, tc.settings)
		vs := []hook.Verdict{{Action: hook.Drop, Reason: hook.ReasonExpired}, {Action: hook.Drop, Reason: hook.ReasonMaxLen}}
		h.OnHead(1, hooktest.Messages(hook.Message{}, hook.Message{}), vs)
		if *vs[0].Target != tc.want {
			t.Errorf("%s: got %+v, want %+v", tc.name, *vs[0].Target, tc.want)
		}
		if h.DeadLetters == nil || *h.DeadLetters != tc.want {
			t.Errorf("%s: it says that dead letters go to %+v, want %+v", tc.name, h.DeadLetters, tc.want)
		}
		if vs[0].Target != vs[1].Target {
			t.Errorf("%s: two messages have targets of their own, want one shared", tc.name)
		}
	}
}

func TestNothingToDo(t *testing.T) {
	for _, settings := range []map[string]any{nil, {"dead-letter-routing-key": "k"}} {
		if h := attach(t, settings); h.OnEnqueue != nil || h.OnHead != nil {
			t.Errorf("%v: got callbacks, want none", settings)
		}
	}
}

func TestArguments(t *testing.T) {
	p := hooktest.New(t, Factory, nil)
	dlx := hook.Arg{Name: "x-dead-letter-exchange", Value: "dlx"}
	long := strings.Repeat("x", 256)
	for _, tc := range []struct {
		name   string
		value  any
		others []hook.Arg
		want   string
	}{
		{name: "x-dead-letter-exchange", value: "dlx"},
		{name: "x-dead-letter-exchange", value: ""},
		{name: "x-dead-letter-exchange", value: int32(1), want: "invalid type 'signedint'"},
		{name: "x-dead-letter-exchange", value: long, want: `"expected at most 255 bytes, got 256"`},
		{name: "x-dead-letter-routing-key", value: "k", others: []hook.Arg{dlx}},
		{name: "x-dead-letter-routing-key", value: "k", want: "routing_key_but_no_dlx_defined"},
		{name: "x-dead-letter-routing-key", value: int32(1), others: []hook.Arg{dlx}, want: "{unacceptable_type,signedint}"},
		{name: "x-dead-letter-routing-key", value: int32(1), want: "{unacceptable_type,signedint}"},
		{name: "x-dead-letter-routing-key", value: long, others: []hook.Arg{dlx}, want: `"expected at most 255 bytes, got 256"`},
		{name: "x-dead-letter-strategy", value: "at-most-once"},
		{name: "x-dead-letter-strategy", value: "at-least-once"},
		{name: "x-dead-letter-strategy", value: "often", want: "invalid_dlx_strategy"},
		{name: "x-dead-letter-strategy", value: true, want: "{unacceptable_type,bool}"},
	} {
		if got := hooktest.Term(t, p, tc.name, tc.value, tc.others...); got != tc.want {
			t.Errorf("%s = %v with %v: got %q, want %q", tc.name, tc.value, tc.others, got, tc.want)
		}
	}
}

func BenchmarkHead(b *testing.B) {
	h := attach(b, map[string]any{"dead-letter-exchange": "dlx"})
	drop := hook.Verdict{Action: hook.Drop, Reason: hook.ReasonExpired}
	hooktest.Bench(b, func(now hook.Instant, ms []hook.Message, vs []hook.Verdict) {
		for i := range vs {
			vs[i] = drop
		}
		h.OnHead(now, ms, vs)
	}, hook.Message{Why: hook.WhyDue})
}
