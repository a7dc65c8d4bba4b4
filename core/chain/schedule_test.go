package chain

import (
	"errors"
	"strings"
	"testing"

	"github.com/curfewmq/curfew/sdk/hook"
)

// plan is a Plan that holds nothing.
func plan(*hook.Publishing, *hook.Plan) error { return nil }

// scheduling returns a chain with a type "x-held" whose schedules are made by create.
func scheduling(t *testing.T, create func(x *hook.Exchange) hook.Schedule, arguments ...hook.ExchangeArgument) *Chain {
	t.Helper()
	o := &offer{types: []hook.ExchangeType{{Name: "x-held", Schedule: create, Arguments: arguments}, {Name: "x-other", New: noRouter}}}
	c, err := New([]Named{{"held", o}}, Options{})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestNewSchedule(t *testing.T) {
	for _, tt := range []struct {
		name   string
		create func(*hook.Exchange) hook.Schedule
		want   string
	}{
		{"the broker's type", func(*hook.Exchange) hook.Schedule { return hook.Schedule{Inner: "topic", Plan: plan} }, ""},
		{"a plugin's type", func(*hook.Exchange) hook.Schedule { return hook.Schedule{Inner: "x-other", Plan: plan} }, ""},
		{
			"a type with a schedule", func(*hook.Exchange) hook.Schedule { return hook.Schedule{Inner: "x-held", Plan: plan} },
			"the plugin 'held' routes messages of the exchange by the type 'x-held', expected one of direct, fanout, topic, headers, x-other",
		},
		{
			"no type", func(*hook.Exchange) hook.Schedule { return hook.Schedule{Plan: plan} },
			"the plugin 'held' routes messages of the exchange by the type '', expected one of direct, fanout, topic, headers, x-other",
		},
		{"no Plan", func(*hook.Exchange) hook.Schedule { return hook.Schedule{Inner: "topic"} }, "the plugin 'held' failed to create the exchange"},
		{"a panic", func(*hook.Exchange) hook.Schedule { panic("no") }, "the plugin 'held' failed to create the exchange"},
	} {
		c := scheduling(t, tt.create)
		x := &hook.Exchange{Type: "x-held"}
		s, err := c.NewSchedule(x)
		if text(err) != tt.want || s.Broken() != (tt.want != "") {
			t.Errorf("%s: %v, broken %v; want %q", tt.name, err, s.Broken(), tt.want)
		}
		if err := c.CheckExchange(x); text(err) != tt.want {
			t.Errorf("%s: the check says %v", tt.name, err)
		}
	}
}

// A schedule whose type is no longer offered stays broken.
func TestScheduleWithoutPlugin(t *testing.T) {
	c, _ := New(nil, Options{})
	s, err := c.NewSchedule(&hook.Exchange{Type: "x-held"})
	if err == nil || !s.Broken() || s.Plugin() != "" || s.MaxHeld().Set() || s.AsksReleased() {
		t.Errorf("%v, %+v", err, s)
	}
}

// Renewing changes limits and plans, but not the type that has the bindings. After a failure everything is as before.
func TestRenewSchedule(t *testing.T) {
	next := hook.Schedule{Inner: "topic", Plan: plan, MaxHeld: hook.LimitOf(1)}
	c := scheduling(t, func(*hook.Exchange) hook.Schedule {
		if next.Inner == "panic" {
			panic(next.Inner)
		}
		return next
	})
	x := &hook.Exchange{Type: "x-held"}
	s, err := c.NewSchedule(x)
	if err != nil {
		t.Fatal(err)
	}
	next.MaxHeld = hook.LimitOf(2)
	if err := s.Renew(c, x); err != nil || s.MaxHeld() != hook.LimitOf(2) {
		t.Errorf("%v, a limit of %d", err, s.MaxHeld().N())
	}
	for _, inner := range []string{"fanout", "nonsense", "panic"} {
		next = hook.Schedule{Inner: inner, Plan: plan}
		if err := s.Renew(c, x); err == nil || s.Inner() != "topic" || s.MaxHeld() != hook.LimitOf(2) || s.Broken() {
			t.Errorf("%s: %v, now by %s, a limit of %d", inner, err, s.Inner(), s.MaxHeld().N())
		}
	}
}

func TestPlan(t *testing.T) {
	var nothing *strings.Builder
	for _, tt := range []struct {
		name string
		plan func(*hook.Publishing, *hook.Plan) error
		want hook.Plan
		err  string
		ok   bool
	}{
		{name: "holds", plan: func(_ *hook.Publishing, p *hook.Plan) error { p.Hold = 5; return nil }, want: hook.Plan{Hold: 5}, ok: true},
		{name: "refuses", plan: func(*hook.Publishing, *hook.Plan) error { return errors.New("no") }, err: "no", ok: true},
		{name: "panics", plan: func(*hook.Publishing, *hook.Plan) error { panic("no") }},
		{name: "panics with its error", plan: func(*hook.Publishing, *hook.Plan) error { return failing{nothing} }},
		{name: "cancels nothing, and refuses", plan: func(_ *hook.Publishing, p *hook.Plan) error { p.Cancel = true; return errors.New("no") }, err: "no", ok: true},
		{name: "holds what it refuses by now", plan: func(_ *hook.Publishing, p *hook.Plan) error { p.Hold = 5; return errors.New("no") }, want: hook.Plan{Hold: 5}, err: "no", ok: true},
		{name: "cancels nothing", plan: func(_ *hook.Publishing, p *hook.Plan) error { p.Cancel = true; return nil }, ok: true},
	} {
		c := scheduling(t, func(*hook.Exchange) hook.Schedule { return hook.Schedule{Inner: "topic", Plan: tt.plan} })
		s, _ := c.NewSchedule(&hook.Exchange{Type: "x-held"})
		p := hook.Plan{Hold: 7, ID: []byte("before"), Cancel: true}
		err, ok := s.Plan(&hook.Publishing{}, &p)
		if text(err) != tt.err || ok != tt.ok {
			t.Errorf("%s: %v, %v", tt.name, err, ok)
		}
		if ok && (p.Hold != tt.want.Hold || p.Cancel || p.ID != nil) {
			t.Errorf("%s: %+v", tt.name, p)
		}
	}
}

// failing is an error that panics when it is asked for its text.
type failing struct{ b *strings.Builder }

func (e failing) Error() string { return e.b.String() }

// If a plugin fails on a due message, the message leaves, and the plugin's earlier changes to it are dropped.
func TestRelease(t *testing.T) {
	c := scheduling(t, func(*hook.Exchange) hook.Schedule {
		return hook.Schedule{Inner: "topic", Plan: plan, Released: func(_ *hook.Publishing, r *hook.Release) {
			r.Hold, r.Skip = r.Due+1, true
			if r.State == 1 {
				panic("no")
			}
		}}
	})
	s, _ := c.NewSchedule(&hook.Exchange{Type: "x-held"})
	for state, want := range []hook.Release{{Due: 5, Hold: 6, Skip: true}, {Due: 5, State: 1}} {
		r := hook.Release{Due: 5, State: int64(state)}
		s.Release(&hook.Publishing{}, &r)
		if r != want {
			t.Errorf("state %d: %+v", state, r)
		}
	}
}

// Arguments of exchanges can be keys of policies, which apply to exchanges only.
func TestExchangeKeys(t *testing.T) {
	key := hook.ExchangeArgument{Name: "x-wait", Policy: &hook.PolicyKey{Check: func(any) error { panic("no") }}}
	typed := func(arguments ...hook.ExchangeArgument) *offer {
		return &offer{types: []hook.ExchangeType{{Name: "x-a", New: noRouter, Arguments: arguments}, {Name: "x-b", New: noRouter, Arguments: arguments}}}
	}
	c, err := New([]Named{{"a", typed(key)}}, Options{})
	if err != nil {
		t.Fatal(err)
	}
	keys := c.ExchangeKeys()
	if len(keys) != 1 || keys[0].Name != "x-wait" || keys[0].QueueTypes[0] != "exchange" {
		t.Fatalf("%+v", keys)
	}
	if err := keys[0].Policy.Check(1); text(err) != "not a valid value of wait: the plugin a failed on it" {
		t.Error(err)
	}
	other := typed(key)
	other.types = other.types[:1]
	other.types[0].Name = "x-c"
	nameless := typed(hook.ExchangeArgument{Name: "wait", Policy: &hook.PolicyKey{}})
	nameless.types = nameless.types[:1]
	for _, tt := range []struct {
		name    string
		plugins []Named
		o       Options
		want    string
	}{
		{"another plugin's", []Named{{"a", typed(key)}, {"b", other}}, Options{}, `plugins.b: the exchange argument "x-wait" cannot be a key of policies: the key already has a meaning`},
		{"the broker's", []Named{{"b", other}}, Options{Reserved: []string{"x-wait"}}, `plugins.b: the exchange argument "x-wait" cannot be a key of policies: the key already has a meaning`},
		{"no prefix", []Named{{"a", nameless}}, Options{}, `plugins.a: the exchange argument "wait" is a key of policies: its name must be x- and the key`},
	} {
		if _, err := New(tt.plugins, tt.o); text(err) != tt.want {
			t.Errorf("%s: %v", tt.name, err)
		}
	}
}

// The type that routes released messages has arguments of its own.
func TestArgumentsOfInnerTypes(t *testing.T) {
	wants := func(name string) func(x *hook.Exchange, v any) error {
		return func(x *hook.Exchange, v any) error {
			if v != true {
				return errors.New(x.Type + " wants " + name)
			}
			return nil
		}
	}
	o := &offer{types: []hook.ExchangeType{
		{Name: "x-held", Schedule: func(*hook.Exchange) hook.Schedule { return hook.Schedule{Inner: "x-other", Plan: plan} }},
		{Name: "x-other", New: noRouter, Arguments: []hook.ExchangeArgument{{Name: "a", Check: wants("a")}}, Check: func(x *hook.Exchange) error {
			v, ok := x.Args.Lookup("b")
			if !ok {
				return nil
			}
			return wants("b")(x, v)
		}},
	}}
	c, err := New([]Named{{"held", o}}, Options{})
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		argument string
		value    any
		want     string
	}{{"a", true, ""}, {"a", false, "x-other wants a"}, {"b", true, ""}, {"b", false, "x-other wants b"}, {"c", false, ""}} {
		x := &hook.Exchange{Type: "x-held", Args: hook.Args{{Name: tt.argument, Value: tt.value}}}
		if err := c.CheckExchange(x); text(err) != tt.want || x.Type != "x-held" {
			t.Errorf("%s = %v: %v, want %q", tt.argument, tt.value, err, tt.want)
		}
	}
}
