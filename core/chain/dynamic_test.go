package chain

import (
	"slices"
	"testing"

	"github.com/curfewmq/curfew/sdk/hook"
	"github.com/curfewmq/curfew/sdk/hooktest"
)

// passing is a plugin whose strategies come and go.
type passing struct {
	*strategist
	changed *func(strategy string, recompute bool)
}

func (p passing) OnChange(changed func(strategy string, recompute bool)) { *p.changed = changed }

var _ hook.Dynamic = passing{}

func TestStrategiesComeAndGo(t *testing.T) {
	var changed func(string, bool)
	p := passing{&strategist{fake: at(onEnqueue, deadline(7))}, &changed}
	p.hooks.Strategy = true
	c := newChain(t, strategist{names: []string{"s"}, fallback: "s"}, p)
	check := lookup(t, c, strategyArgument)
	attached := func() hook.Instant {
		h := c.Attach(hooktest.NewQueue(hooktest.Spec{Strategy: "new"}), new(Memo))
		return ask(h, onEnqueue, hook.Message{}, hook.Verdict{}).Deadline
	}
	if c.Offers("new") || check("new", nil) == nil {
		t.Error("a strategy is there that is not")
	}
	p.names = []string{"new"}
	if got := c.Strategies(); !c.Offers("new") || check("new", nil) != nil || !slices.Equal(got, []string{"s", "new"}) {
		t.Errorf("the new strategy is not there: %v", got)
	}
	if got := attached(); got != 7 {
		t.Errorf("a queue with the new strategy has the deadline %d", got)
	}
	p.names = nil
	if c.Offers("new") || check("new", nil) == nil {
		t.Error("a strategy is still there")
	}
	var told string
	c.OnStrategyChange(func(name string, _ bool) { told = name })
	changed("new", true)
	if told != "new" {
		t.Error("nobody was told of a change")
	}
}

func TestRestamp(t *testing.T) {
	old := hook.Message{Why: hook.WhyChange, Deadline: 900, State: 9, Digest: 8}
	for _, tc := range []struct {
		name   string
		call   batchFunc
		want   hook.Verdict
		faults int
	}{
		{name: "a new deadline", call: deadline(50), want: hook.Verdict{Deadline: 50}},
		{name: "none", call: asIs, want: hook.Verdict{}},
		{name: "a state", call: state(3), want: hook.Verdict{State: 3}},
		{name: "Drop", call: set(expired), want: hook.Verdict{Deadline: 900, State: 9, Digest: 8}, faults: 1},
		{name: "a negative deadline", call: deadline(-1), want: hook.Verdict{Deadline: 900, State: 9, Digest: 8}, faults: 1},
		{name: "a panic", call: panicking, want: hook.Verdict{Deadline: 900, State: 9, Digest: 8}, faults: 1},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := strategyAt(onRequeue, asIs)
			s.hooks.OnRestamp = tc.call
			c, h := attach(t, s)
			ms, vs := hooktest.Messages(old), make([]hook.Verdict, 1)
			h.Restamp(1000, ms, vs)
			if vs[0] != tc.want || len(c.Faults()) != tc.faults {
				t.Errorf("got %+v and faults %+v, want %+v and %d", vs[0], c.Faults(), tc.want, tc.faults)
			}
		})
	}
}

func TestWhenToRestamp(t *testing.T) {
	for _, tc := range []struct {
		hooks    hook.Hooks
		strategy bool
		want     Restamps
	}{
		{hook.Hooks{}, true, NeverRestamp},
		{hook.Hooks{OnRestamp: asIs}, true, OnChange},
		{hook.Hooks{OnRestamp: asIs, RestampAsked: true}, true, WhenAsked},
		{hook.Hooks{OnRestamp: asIs}, false, NeverRestamp},
	} {
		tc.hooks.Strategy = tc.strategy
		if _, h := attach(t, strategist{fake: fake{hooks: tc.hooks}, names: []string{"s"}}); h.Restamps != tc.want {
			t.Errorf("%+v: got %d, want %d", tc.hooks, h.Restamps, tc.want)
		}
	}
}
