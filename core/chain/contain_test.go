package chain

import (
	"strings"
	"testing"
	"time"

	"github.com/curfewmq/curfew/sdk/hook"
	"github.com/curfewmq/curfew/sdk/hooktest"
)

func TestPanicsAreReported(t *testing.T) {
	type report struct {
		plugin, point string
		value         any
	}
	var got []report
	bad := strategist{names: []string{"s"}, fake: fake{
		arguments: []hook.Argument{{Name: "x-a", Check: func(any, hook.Args) error { panic("Check") }}},
		hooks: hook.Hooks{
			Strategy:  true,
			OnEnqueue: func(hook.Instant, []hook.Message, []hook.Verdict) { panic("OnEnqueue") },
			OnHead:    func(hook.Instant, []hook.Message, []hook.Verdict) { panic("OnHead") },
			OnRequeue: func(hook.Instant, []hook.Message, []hook.Verdict) { panic("OnRequeue") },
			OnIdle:    func(hook.Instant, time.Duration, *hook.Verdict) { panic("OnIdle") },
		},
	}}
	c, err := New([]Named{{"bad", bad}}, Options{OnPanic: func(plugin, point string, v any, stack []byte) {
		got = append(got, report{plugin, point, v})
		if !strings.Contains(string(stack), "contain_test.go") {
			t.Errorf("%s: the stack does not show where it panicked:\n%s", point, stack)
		}
	}})
	if err != nil {
		t.Fatal(err)
	}
	h := c.Attach(hooktest.NewQueue(hooktest.Spec{Strategy: "s"}), new(Memo))
	var v hook.Verdict
	for range 2 {
		ask(h, onEnqueue, hook.Message{}, v)
		ask(h, onHead, hook.Message{}, v)
		ask(h, onRequeue, hook.Message{}, v)
		h.Idle(1, 0, &v)
		_ = lookup(t, c, "x-a")(nil, nil)
	}
	points := []string{"OnEnqueue", "OnHead", "OnRequeue", "OnIdle", "Check"}
	if len(got) != 2*len(points) {
		t.Fatalf("got %d reports, want %d", len(got), 2*len(points))
	}
	for i, p := range points {
		if want := (report{"bad", p, p}); got[i] != want {
			t.Errorf("report %d: got %+v, want %+v", i, got[i], want)
		}
	}
	for i, f := range c.Faults() {
		if want := (Fault{Plugin: "bad", Point: points[i], Panics: 2}); f != want {
			t.Errorf("faults: got %+v, want %+v", f, want)
		}
	}
}

// A plugin that fails to attach has no effect on the queue; the others do.
func TestPanicInAttach(t *testing.T) {
	c, h := attach(t,
		fake{attach: func(hook.Queue) hook.Hooks { panic("oh") }},
		at(onEnqueue, set(expired)))
	if got := ask(h, onEnqueue, hook.Message{}, hook.Verdict{}); got != expired {
		t.Errorf("got %+v, want %+v", got, expired)
	}
	if got := c.Faults(); len(got) != 1 || got[0] != (Fault{Plugin: "a", Point: "Attach", Panics: 1}) {
		t.Errorf("faults: got %+v, want the panic", got)
	}
}

// Every replaced verdict is counted.
func TestBadVerdictsAreCounted(t *testing.T) {
	c, h := attach(t, at(onHead, set(hook.Verdict{Action: 9})))
	h.Head(1, hooktest.Messages(make([]hook.Message, 3)...), make([]hook.Verdict, 3))
	if got := c.Faults(); len(got) != 1 || got[0] != (Fault{Plugin: "a", Point: "OnHead", Verdicts: 3}) {
		t.Errorf("faults: got %+v, want 3 verdicts", got)
	}
}
