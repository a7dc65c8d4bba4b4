package chain

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/curfewmq/curfew/sdk/hook"
)

func TestArgumentErrors(t *testing.T) {
	wrong := hook.Merge(9)
	for _, tc := range []struct {
		name     string
		argument hook.Argument
		want     string
	}{
		{"no name", hook.Argument{}, `plugins.a: the argument "" has no name`},
		{"reserved", argument("x-core"), "plugins.a: the argument x-core already has a meaning, for the broker"},
		{"key without prefix", hook.Argument{Name: "night", Policy: &hook.PolicyKey{}}, `plugins.a: the argument "night" is a key of policies: its name must be x- and the key`},
		{"no key", hook.Argument{Name: "x-", Policy: &hook.PolicyKey{}}, `plugins.a: the argument "x-" is a key of policies: its name must be x- and the key`},
		{"type", hook.Argument{Name: "x-a", QueueTypes: []string{"quorum", "fast"}}, `plugins.a: the argument "x-a" is for queues of type "fast", expected one of classic, quorum, stream`},
		{"type of the key", hook.Argument{Name: "x-a", Policy: &hook.PolicyKey{QueueTypes: []string{""}}}, `plugins.a: the argument "x-a" is for queues of type "", expected one of classic, quorum, stream`},
		{"merge", hook.Argument{Name: "x-a", Policy: &hook.PolicyKey{Merge: wrong}}, `plugins.a: the argument "x-a" is a key of policies that merges by rule 9, expected 0 to 4`},
		{"merge with the argument", hook.Argument{Name: "x-a", Policy: &hook.PolicyKey{Argument: wrong}}, "merges by rule 9"},
		{"merge in quorum queues", hook.Argument{Name: "x-a", Policy: &hook.PolicyKey{QuorumArgument: &wrong}}, "merges by rule 9"},
	} {
		c, err := New(named(fake{arguments: []hook.Argument{tc.argument}}), Options{Reserved: []string{"x-other", "x-core"}})
		if err == nil || c != nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: got chain %v, error %v, want %q", tc.name, c, err, tc.want)
		}
	}
}

// Two plugins cannot have one key, because a key has the name of its argument.
func TestKeysAreUnique(t *testing.T) {
	night := hook.Argument{Name: "x-night", Policy: &hook.PolicyKey{}}
	_, err := New(named(fake{arguments: []hook.Argument{night}}, fake{arguments: []hook.Argument{night}}), Options{})
	if want := "plugins.b: the argument x-night already has a meaning, for plugins.a"; err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
}

// A check that panics refuses the value, and is counted and reported.
func TestChecksThatPanic(t *testing.T) {
	var points []string
	c, err := New(named(fake{arguments: []hook.Argument{{
		Name:   "x-night",
		Check:  func(any, hook.Args) error { panic("argument") },
		Policy: &hook.PolicyKey{Check: func(any) error { panic("policy") }},
	}}}), Options{OnPanic: func(plugin, point string, v any, _ []byte) {
		text, _ := v.(string)
		points = append(points, plugin+" "+point+" "+text)
	}})
	if err != nil {
		t.Fatal(err)
	}
	a := c.Arguments()[0]
	err = a.Check(1, nil)
	if _, ok := errors.AsType[*hook.ArgError](err); !ok || err.Error() != "the plugin a failed on this value" {
		t.Errorf("argument: got %v (%T)", err, err)
	}
	err = a.Policy.Check(1)
	if wrong, ok := errors.AsType[*hook.InvalidError](err); !ok || wrong.What != "value of night: the plugin a failed on it" {
		t.Errorf("policy: got %v (%T)", err, err)
	}
	if want := []string{"a Check argument", "a Check policy"}; !slices.Equal(points, want) {
		t.Errorf("reported %q, want %q", points, want)
	}
	if f := c.Faults(); len(f) != 1 || f[0].Point != "Check" || f[0].Panics != 2 {
		t.Errorf("counted %+v, want 2 panics of Check", f)
	}
}

// nameless is an error that panics when it is asked for its text.
type nameless struct{}

func (nameless) Error() string { panic("no text") }

// A check that returned its nil *hook.InvalidError, as functions with a variable of that type do, ended the broker: the error's text was
// read where no panic is contained. An error whose text panics had the same effect.
func TestErrorsThatSayNothing(t *testing.T) {
	for name, wrong := range map[string]error{
		"nil ArgError": (*hook.ArgError)(nil), "nil ArgTypeError": (*hook.ArgTypeError)(nil), "nil InvalidError": (*hook.InvalidError)(nil),
		"a text that panics": nameless{},
	} {
		c := newChain(t, fake{arguments: []hook.Argument{{
			Name:   "x-night",
			Check:  func(any, hook.Args) error { return wrong },
			Policy: &hook.PolicyKey{Check: func(any) error { return wrong }},
		}}})
		a := c.Arguments()[0]
		if err := a.Check(1, nil); err.Error() != "the plugin a failed on this value" {
			t.Errorf("%s of an argument: got %v", name, err)
		}
		if err := a.Policy.Check(1); err.Error() != "not a valid value of night: the plugin a failed on it" {
			t.Errorf("%s of a key: got %v", name, err)
		}
		if f := c.Faults(); len(f) != 1 || f[0].Panics != 2 {
			t.Errorf("%s: counted %+v, want 2 panics of Check", name, f)
		}
	}
}

// An error is recognized even if the plugin wraps it.
func TestWrappedErrorsOfChecks(t *testing.T) {
	c := newChain(t, fake{arguments: []hook.Argument{{
		Name: "x-night",
		Check: func(v any, _ hook.Args) error {
			return fmt.Errorf("night: %w", &hook.ArgTypeError{Type: hook.TypeName(v)})
		},
		Policy: &hook.PolicyKey{Check: func(any) error { return fmt.Errorf("night: %w", &hook.InvalidError{What: "night"}) }},
	}}})
	a := c.Arguments()[0]
	if _, ok := errors.AsType[*hook.ArgTypeError](a.Check(true, nil)); !ok {
		t.Errorf("argument: got %v", a.Check(true, nil))
	}
	if _, ok := errors.AsType[*hook.InvalidError](a.Policy.Check(1)); !ok {
		t.Errorf("key: got %v", a.Policy.Check(1))
	}
}

// Panics are contained in checks of several settings together, as in checks of one.
func TestChecksOfSettingsTogether(t *testing.T) {
	answer := func() error { return nil }
	c := newChain(t, fake{arguments: []hook.Argument{{Name: "x-night", Policy: &hook.PolicyKey{
		CheckWith: func(any, func(string) (any, bool)) error { return answer() },
	}}}})
	check := c.Arguments()[0].Policy.CheckWith
	for _, tc := range []struct {
		answer func() error
		want   string // "": none
	}{
		{func() error { return nil }, ""},
		{func() error { return errors.New("night needs day") }, "night needs day"},
		{func() error { panic("at night") }, "not a valid value of night: the plugin a failed on it"},
	} {
		answer = tc.answer
		err := check(1, func(string) (any, bool) { return nil, false })
		if (err == nil) != (tc.want == "") || err != nil && err.Error() != tc.want {
			t.Errorf("got %v, want %q", err, tc.want)
		}
	}
}

// The chain does not change what plugins declare.
func TestDeclarationsAreNotChanged(t *testing.T) {
	key := &hook.PolicyKey{Check: func(any) error { panic("its own") }}
	arguments := []hook.Argument{{Name: "x-night", Policy: key}}
	c := newChain(t, fake{arguments: arguments})
	if c.Arguments()[0].Policy == key || arguments[0].Check != nil {
		t.Error("a plugin's declaration was changed")
	}
}

// The exchange's name is used to check permission to publish to it: no value may evade that check.
func TestExchangesAreNamedByStrings(t *testing.T) {
	c := newChain(t, fake{arguments: []hook.Argument{
		{Name: "x-a", NamesExchange: true},
		{Name: "x-b", NamesExchange: true, Check: func(v any, _ hook.Args) error { return hook.CheckInt(v, 0, 9) }},
	}})
	for _, tc := range []struct {
		name  string
		value any
		want  string // "": none
	}{
		{"x-a", "exchange", ""},
		{"x-a", []byte("exchange"), "invalid type 'binary'"},
		{"x-a", nil, "invalid type 'void'"},
		{"x-b", int8(5), "invalid type 'byte'"},
		{"x-b", int8(-5), "{value_negative,-5}"},
	} {
		err := lookup(t, c, tc.name)(tc.value, nil)
		if (err == nil) != (tc.want == "") || err != nil && err.Error() != tc.want {
			t.Errorf("%s = %v: got %v, want %q", tc.name, tc.value, err, tc.want)
		}
	}
}
