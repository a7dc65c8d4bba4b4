package chain

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
	"unsafe"

	"go.uber.org/goleak"

	"github.com/curfewmq/curfew/sdk/hook"
	"github.com/curfewmq/curfew/sdk/hooktest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// fake is a plugin made of its parts.
type fake struct {
	arguments []hook.Argument
	hooks     hook.Hooks
	attach    func(q hook.Queue) hook.Hooks // in place of hooks
}

func (f fake) Arguments() []hook.Argument { return f.arguments }

func (f fake) Attach(q hook.Queue) hook.Hooks {
	if f.attach != nil {
		return f.attach(q)
	}
	return f.hooks
}

// strategist is a fake that offers expiry strategies.
type strategist struct {
	fake
	names    []string
	fallback string
}

func (s strategist) Strategies() []string    { return s.names }
func (s strategist) DefaultStrategy() string { return s.fallback }

// newChain names the plugins a, b, c and so on.
func newChain(tb testing.TB, plugins ...hook.Plugin) *Chain {
	tb.Helper()
	c, err := New(named(plugins...), Options{})
	if err != nil {
		tb.Fatal(err)
	}
	return c
}

func named(plugins ...hook.Plugin) []Named {
	var all []Named
	for i, p := range plugins {
		all = append(all, Named{Name: string(rune('a' + i)), Plugin: p})
	}
	return all
}

func argument(name string) hook.Argument {
	return hook.Argument{Name: name, Check: func(any, hook.Args) error { return nil }}
}

func TestNewErrors(t *testing.T) {
	ttl := strategist{names: []string{"deadline", "lazy"}}
	for _, tc := range []struct {
		name    string
		plugins []Named
		want    []string
	}{
		{"twice", []Named{{"a", fake{}}, {"b", fake{}}, {"a", fake{}}}, []string{"plugins.chain: a is listed twice"}},
		{"nil", []Named{{"a", nil}}, []string{"plugins.a: no plugin"}},
		{"many", make([]Named, 128), []string{"plugins.chain: 128 plugins, at most 127"}},
		{
			"argument", named(fake{arguments: []hook.Argument{argument("x-a")}}, fake{arguments: []hook.Argument{argument("x-a")}}),
			[]string{"plugins.b: the argument x-a already has a meaning, for plugins.a"},
		},
		{
			"the chain's argument", named(fake{arguments: []hook.Argument{argument("x-expiry-strategy")}}),
			[]string{"plugins.a: the argument x-expiry-strategy already"},
		},
		{"strategy", named(ttl, ttl), []string{`plugins.b: a already offers the expiry strategy "deadline"`, `plugins.b: a already offers the expiry strategy "lazy"`}},
		{
			"default", named(strategist{names: []string{"deadline", "lazy"}, fallback: "dedline"}),
			[]string{`plugins.a: strategy: "dedline" is not an expiry strategy, expected one of deadline, lazy`},
		},
	} {
		c, err := New(tc.plugins, Options{})
		if err == nil || c != nil {
			t.Errorf("%s: got chain %v, error %v", tc.name, c, err)
			continue
		}
		for _, want := range tc.want {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("%s: got error %q, want %q", tc.name, err, want)
			}
		}
	}
}

func TestStrategies(t *testing.T) {
	c := newChain(t,
		strategist{names: []string{"one"}},                    // leaves the default to others
		strategist{names: []string{"two"}, fallback: "three"}, // another's
		strategist{names: []string{"three"}, fallback: "one"})
	if got := strings.Join(c.Strategies(), " "); got != "one two three" {
		t.Errorf("strategies: got %s, want one two three", got)
	}
	if c.DefaultStrategy() != "three" {
		t.Errorf("default: got %q, want three", c.DefaultStrategy())
	}
}

func TestStrategyArgument(t *testing.T) {
	c := newChain(t, strategist{names: []string{"deadline", "lazy"}})
	check := lookup(t, c, "x-expiry-strategy")
	for _, tc := range []struct {
		value any
		want  string
	}{
		{value: "lazy"},
		{value: "eager", want: "unknown expiry strategy 'eager', expected one of deadline, lazy"},
		{value: "", want: "unknown expiry strategy '', expected one of deadline, lazy"},
		{value: strings.Repeat("x", 1000), want: "unknown expiry strategy '" + strings.Repeat("x", 64) + "', expected one of deadline, lazy"},
		{value: int32(1), want: "{unacceptable_type,signedint}"},
	} {
		err := check(tc.value, nil)
		if tc.want == "" && err == nil {
			continue
		}
		if _, ok := errors.AsType[*hook.ArgError](err); !ok || err.Error() != tc.want {
			t.Errorf("%v: got %v (%T), want the hook.ArgError %q", tc.value, err, err, tc.want)
		}
	}
}

func lookup(tb testing.TB, c *Chain, name string) func(any, hook.Args) error {
	tb.Helper()
	i := slices.IndexFunc(c.Arguments(), func(a hook.Argument) bool { return a.Name == name })
	if i < 0 {
		tb.Fatalf("no argument %s among %d", name, len(c.Arguments()))
	}
	return c.Arguments()[i].Check
}

// Without a plugin that offers strategies, the argument means nothing, like any unknown argument.
func TestNoStrategies(t *testing.T) {
	c := newChain(t, fake{arguments: []hook.Argument{argument("x-a")}})
	if len(c.Arguments()) != 1 || c.DefaultStrategy() != "" {
		t.Errorf("got %d arguments, default %q, want only x-a and none", len(c.Arguments()), c.DefaultStrategy())
	}
}

func TestArguments(t *testing.T) {
	refuse := func(v any, all hook.Args) error { return &hook.ArgError{Term: fmt.Sprint(v, len(all))} }
	c := newChain(t,
		fake{arguments: []hook.Argument{{Name: "x-a", Check: refuse, QueueTypes: []string{"quorum"}}}},
		fake{arguments: []hook.Argument{{Name: "x-b"}, {Name: "x-c", Check: func(any, hook.Args) error { panic("oh") }}}})
	var names []string
	for _, a := range c.Arguments() {
		names = append(names, a.Name)
	}
	if got := strings.Join(names, " "); got != "x-a x-b x-c" {
		t.Errorf("got %s, want x-a x-b x-c", got)
	}
	if got := c.Arguments()[0].QueueTypes; !slices.Equal(got, []string{"quorum"}) {
		t.Errorf("x-a: got queue types %v, want quorum", got)
	}
	if err := lookup(t, c, "x-a")(5, make(hook.Args, 2)); err == nil || err.Error() != "5 2" {
		t.Errorf("x-a: got %v, want its own error", err)
	}
	if err := lookup(t, c, "x-b")(5, nil); err != nil {
		t.Errorf("x-b, without a check: got %v, want none", err)
	}
	err := lookup(t, c, "x-c")(5, nil)
	if _, ok := errors.AsType[*hook.ArgError](err); !ok {
		t.Errorf("x-c, which panics: got %v (%T), want a hook.ArgError", err, err)
	}
}

func TestAttachMerges(t *testing.T) {
	nothing := func(hook.Instant, []hook.Message, []hook.Verdict) {}
	c := newChain(t,
		fake{hooks: hook.Hooks{OnHead: nothing, Length: hook.LimitOf(5), Scan: hook.ScanLazy, OnRequeue: nothing}},
		strategist{names: []string{"s"}, fake: fake{hooks: hook.Hooks{Strategy: true, Scan: hook.ScanTop, OnEnqueue: nothing, Bytes: hook.LimitOf(7)}}},
		fake{hooks: hook.Hooks{Length: hook.LimitOf(3)}})
	h := c.Attach(hooktest.NewQueue(hooktest.Spec{Strategy: "s"}), new(Memo))
	if h.Scan != hook.ScanTop || h.Length != hook.LimitOf(3) || h.Bytes != hook.LimitOf(7) {
		t.Errorf("got scan %d, length %d, bytes %d, want %d, 3, 7", h.Scan, h.Length.N(), h.Bytes.N(), hook.ScanTop)
	}
	if !h.WantsEnqueue || !h.WantsHead || h.WantsRequeue || h.WantsIdle() {
		t.Errorf("wants enqueue %t, head %t, requeue %t, idle %t, want the first two", h.WantsEnqueue, h.WantsHead, h.WantsRequeue, h.WantsIdle())
	}
	if h := c.Attach(hooktest.NewQueue(hooktest.Spec{Strategy: "t"}), new(Memo)); h.Scan != hook.ScanAnywhere {
		t.Errorf("another strategy's queue: got scan %d, want %d", h.Scan, hook.ScanAnywhere)
	}
}

func TestQueuesWithNothingToDoShare(t *testing.T) {
	c := newChain(t, fake{}, fake{})
	a, b := c.Attach(hooktest.NewQueue(hooktest.Spec{}), new(Memo)), c.Attach(hooktest.NewQueue(hooktest.Spec{}), new(Memo))
	if a != b || a.WantsEnqueue || a.WantsHead || a.WantsRequeue || a.WantsIdle() {
		t.Errorf("got %+v and %+v, want one that wants nothing", a, b)
	}
	vs := make([]hook.Verdict, 1)
	a.Enqueue(1, hooktest.Messages(hook.Message{}), vs)
	a.Head(1, hooktest.Messages(hook.Message{Deadline: 5, State: 6}), vs)
	if want := (hook.Verdict{Deadline: 5, State: 6}); vs[0] != want {
		t.Errorf("got %+v, want what was in force: %+v", vs[0], want)
	}
	a.Idle(1, time.Hour, &vs[0])
}

func TestAttachShares(t *testing.T) {
	asked := 0
	attach := func(h hook.Hooks) func(hook.Queue) hook.Hooks {
		return func(hook.Queue) hook.Hooks { asked++; return h }
	}
	for _, tc := range []struct {
		name string
		one  hook.Hooks
		two  hook.Hooks
		want int // times asked
	}{
		{name: "all share", one: hook.Hooks{Shared: true, OnEnqueue: asIs}, two: hook.Hooks{Shared: true}, want: 2},
		{name: "one does not", one: hook.Hooks{Shared: true, OnEnqueue: asIs}, two: hook.Hooks{OnHead: asIs}, want: 4},
		{name: "one with nothing to do does not", one: hook.Hooks{Shared: true, OnEnqueue: asIs}, want: 4},
	} {
		asked = 0
		c := newChain(t, fake{attach: attach(tc.one)}, fake{attach: attach(tc.two)})
		var memo Memo
		a := c.Attach(hooktest.NewQueue(hooktest.Spec{Name: "a"}), &memo)
		b := c.Attach(hooktest.NewQueue(hooktest.Spec{Name: "b"}), &memo)
		if asked != tc.want || (a == b) != (tc.want == 2) {
			t.Errorf("%s: asked %d times, one Hooks %t, want %d times", tc.name, asked, a == b, tc.want)
		}
	}
}

// If several plugins set a value, the last one counts, as with verdicts.
func TestDeadLetters(t *testing.T) {
	at := func(targets ...*hook.Target) *hook.Target {
		var plugins []hook.Plugin
		for _, to := range targets {
			plugins = append(plugins, fake{attach: func(hook.Queue) hook.Hooks { return hook.Hooks{Shared: true, DeadLetters: to} }})
		}
		var memo Memo
		return newChain(t, plugins...).Attach(hooktest.NewQueue(hooktest.Spec{}), &memo).DeadLetters()
	}
	a, b := &hook.Target{Exchange: "a"}, &hook.Target{Exchange: "b"}
	if got := at(nil, nil); got != nil {
		t.Errorf("none says so: got %+v", got)
	}
	if got := at(a, b, nil); got != b {
		t.Errorf("two do: got %+v, want the second", got)
	}
}

// Every queue has a strategy.
func TestHooksAreSmall(t *testing.T) {
	if n := unsafe.Sizeof(Hooks{}); n > 80 {
		t.Errorf("Hooks is %d bytes, want at most 80", n)
	}
	if n := unsafe.Sizeof(hook.Verdict{}); n > 48 {
		t.Errorf("Verdict is %d bytes, want at most 48", n)
	}
}
