package chain

import (
	"slices"
	"testing"

	"github.com/curfewmq/curfew/sdk/hook"
	"github.com/curfewmq/curfew/sdk/hook/guest"
	"github.com/curfewmq/curfew/sdk/hooktest"
)

// passing is a plugin that adds and removes strategies.
type passing struct {
	*strategist
	changed *func(strategy string, recompute bool)
}

func (p passing) OnChange(changed func(strategy string, recompute bool)) { *p.changed = changed }

var _ guest.Dynamic = passing{}

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
	old, stays := signed(hook.Message{Why: hook.WhyChange, Deadline: 900, State: 9}, 8), guest.Signed(hook.Verdict{Deadline: 900, State: 9}, 8)
	for _, tc := range []struct {
		name   string
		call   batchFunc
		want   hook.Verdict
		faults int
	}{
		{name: "a new deadline", call: deadline(50), want: hook.Verdict{Deadline: 50}},
		{name: "none", call: asIs, want: hook.Verdict{}},
		{name: "a state", call: state(3), want: hook.Verdict{State: 3}},
		{name: "Drop", call: set(expired), want: stays, faults: 1},
		{name: "a negative deadline", call: deadline(-1), want: stays, faults: 1},
		{name: "a panic", call: panicking, want: stays, faults: 1},
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

// A strategy is not called with zero messages, because a policy's call would have no fuel.
func TestRestampNothing(t *testing.T) {
	s := strategyAt(onRequeue, asIs)
	s.hooks.OnRestamp = panicking
	c, h := attach(t, s)
	h.Restamp(1000, nil, nil)
	if faults := c.Faults(); len(faults) > 0 {
		t.Errorf("got faults %+v", faults)
	}
}

func TestWhenToRestamp(t *testing.T) {
	for _, tc := range []struct {
		name    string
		hooks   hook.Hooks
		dynamic bool
		want    Restamps
	}{
		{"without the hook", hook.Hooks{Strategy: true}, false, NeverRestamp},
		{"a strategy", hook.Hooks{Strategy: true, OnRestamp: asIs}, false, OnChange},
		{"a strategy that comes and goes", hook.Hooks{Strategy: true, OnRestamp: asIs}, true, WhenAsked},
		{"no strategy", hook.Hooks{OnRestamp: asIs}, false, NeverRestamp},
	} {
		s := strategist{fake: fake{hooks: tc.hooks}, names: []string{"s"}}
		var p hook.Plugin = s
		if tc.dynamic {
			p = passing{&s, new(func(string, bool))}
		}
		if _, h := attach(t, p); h.Restamps != tc.want {
			t.Errorf("%s: got %d, want %d", tc.name, h.Restamps, tc.want)
		}
	}
}

// A module that renews its own deadline signs it with the present digest.
func TestDigestOfARenewedDeadline(t *testing.T) {
	s := strategist{fake: at(onHead, deadline(2000)), names: []string{"s"}}
	s.hooks.Strategy = true
	_, h := attach(t, passing{&s, new(func(string, bool))})
	got := ask(h, onHead, signed(hook.Message{Why: hook.WhyDue, Deadline: 900}, 6), hook.Verdict{})
	if want := guest.Signed(hook.Verdict{Deadline: 2000}, 6); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
}
