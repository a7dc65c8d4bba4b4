package delay

import (
	"errors"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/curfewmq/curfew/sdk/hook"
	"github.com/curfewmq/curfew/sdk/hooktest"
)

// innerTypes are those of a broker with another plugin.
var innerTypes = []string{"direct", "fanout", "topic", "headers", "x-random"}

// newSchedule returns the schedule of a topic exchange with these effective settings, made by a plugin with the given configuration.
func newSchedule(tb testing.TB, section hooktest.Section, settings map[string]any) hook.Schedule {
	tb.Helper()
	x := &hook.Exchange{
		VHost: "/", Name: "x", Type: exchangeType, Args: hook.Args{{Name: innerArgument, Value: "topic"}}, Types: innerTypes,
		Setting: func(name string) (any, bool) { v, ok := settings[name]; return v, ok },
	}
	return exchangeTypeOf(tb, section).Schedule(x)
}

func exchangeTypeOf(tb testing.TB, section hooktest.Section) hook.ExchangeType {
	tb.Helper()
	return hooktest.New(tb, Factory, section).(*plugin).ExchangeTypes()[0]
}

// declare returns the error that refuses a declaration, or none.
func declare(tb testing.TB, section hooktest.Section, args ...hook.Arg) string {
	tb.Helper()
	typ := exchangeTypeOf(tb, section)
	x := &hook.Exchange{VHost: "/", Name: "x", Type: typ.Name, Args: args, Types: innerTypes}
	for _, a := range typ.Arguments {
		if v, ok := x.Args.Lookup(a.Name); ok && a.Check != nil {
			if err := a.Check(x, v); err != nil {
				return err.Error()
			}
		}
	}
	if err := typ.Check(x); err != nil {
		return err.Error()
	}
	return ""
}

func TestDeclarations(t *testing.T) {
	const (
		wrongType = "invalid arg 'x-delayed-type' for exchange 'x' in vhost '/': expected one of direct, fanout, topic, headers, x-random"
		wrong     = "invalid arg '%' for exchange 'x' in vhost '/': "
		tenYears  = "315360000000 milliseconds"
	)
	for _, tc := range []struct {
		name string
		args hook.Args
		want string // "" = accepted
	}{
		{"without a type", nil, wrongType},
		{"its own type", hook.Args{{Name: innerArgument, Value: "x-delayed-message"}}, wrongType},
		{"its own type by the other name", hook.Args{{Name: innerArgument, Value: "x-delayed-exchange"}}, wrongType},
		{"a type that no plugin offers", hook.Args{{Name: innerArgument, Value: "x-none"}}, wrongType},
		{"an empty type", hook.Args{{Name: innerArgument, Value: ""}}, wrongType},
		{"a type of another type", hook.Args{{Name: innerArgument, Value: int32(1)}}, wrongType},
		{"a type as a binary", hook.Args{{Name: innerArgument, Value: []byte("topic")}}, wrongType},
		{"direct", hook.Args{{Name: innerArgument, Value: "direct"}}, ""},
		{"another plugin's type", hook.Args{{Name: innerArgument, Value: "x-random"}}, ""},
		{"unknown arguments", hook.Args{{Name: innerArgument, Value: "topic"}, {Name: "x-other", Value: nil}}, ""},
	} {
		if got := declare(t, nil, tc.args...); got != tc.want {
			t.Errorf("%s:\n got %q\nwant %q", tc.name, got, tc.want)
		}
	}
	for _, tc := range []struct {
		argument string
		value    any
		want     string
	}{
		{delayArgument, int32(0), ""},
		{delayArgument, int64(hook.MaxMillis), ""},
		{delayArgument, int64(hook.MaxMillis + 1), "expected 0 to " + tenYears + ", got 315360000001"},
		{delayArgument, int8(-1), "expected 0 to " + tenYears + ", got -1"},
		{delayArgument, "5", "expected 0 to " + tenYears + ", got longstr"},
		{delayArgument, 5.0, "expected 0 to " + tenYears + ", got double"},
		{delayArgument, nil, "expected 0 to " + tenYears + ", got void"},
		{maxDelayArgument, uint8(1), ""},
		{maxDelayArgument, int32(0), "expected 1 to " + tenYears + ", got 0"},
		{maxHeldArgument, int64(math.MaxInt64), ""},
		{maxHeldArgument, int32(0), "expected 1 to 9223372036854775807 messages, got 0"},
		{maxHeldArgument, true, "expected 1 to 9223372036854775807 messages, got bool"},
	} {
		want := tc.want
		if want != "" {
			want = strings.Replace(wrong, "%", tc.argument, 1) + want
		}
		if got := declare(t, nil, hook.Arg{Name: innerArgument, Value: "topic"}, hook.Arg{Name: tc.argument, Value: tc.value}); got != want {
			t.Errorf("%s = %v:\n got %q\nwant %q", tc.argument, tc.value, got, want)
		}
	}
	if got, want := declare(t, hooktest.Section{"max": "1h"}, hook.Arg{Name: innerArgument, Value: "topic"}, hook.Arg{Name: delayArgument, Value: int32(3_600_001)}),
		"invalid arg 'x-delay' for exchange 'x' in vhost '/': expected 0 to 3600000 milliseconds, got 3600001"; got != want {
		t.Errorf("with a lower limit:\n got %q\nwant %q", got, want)
	}
}

func TestPolicyKeys(t *testing.T) {
	for _, tc := range []struct {
		key      string
		value    any
		want     string // "" = accepted
		operator bool
	}{
		{key: "delay", value: int64(0)},
		{key: "delay", value: int64(-1), want: "not a valid delay, expected 0 to 315360000000 milliseconds"},
		{key: "delay", value: 1.0, want: "not a valid delay, expected 0 to 315360000000 milliseconds"},
		{key: "max-delay", value: int64(1), operator: true},
		{key: "max-delay", value: int64(0), operator: true, want: "not a valid max-delay, expected 1 to 315360000000 milliseconds"},
		{key: "max-held", value: int64(1), operator: true},
		{key: "max-held", value: "1", operator: true, want: "not a valid max-held, expected 1 to 9223372036854775807 messages"},
	} {
		found := false
		for _, a := range exchangeTypeOf(t, nil).Arguments {
			if a.Policy == nil || a.Name != "x-"+tc.key {
				continue
			}
			found = true
			err := a.Policy.Check(tc.value)
			if err == nil {
				err = errors.New("")
			}
			if err.Error() != tc.want || a.Policy.Operator != tc.operator {
				t.Errorf("%s = %v: got %q, for operators %t; want %q, %t", tc.key, tc.value, err, a.Policy.Operator, tc.want, tc.operator)
			}
		}
		if !found {
			t.Errorf("no key %s", tc.key)
		}
	}
}

// start is when the messages of the tests are published.
const start = hook.Instant(1_700_000_000_000_000_000)

func TestSettings(t *testing.T) {
	for _, tc := range []struct {
		name     string
		section  hooktest.Section
		settings map[string]any
		delay    any // the header; nil = none
		wait     time.Duration
		refused  string
		held     int64 // the limit; -1 = none
	}{
		{name: "none", held: -1},
		{name: "default delay", settings: map[string]any{"delay": int32(300)}, wait: 300 * time.Millisecond, held: -1},
		{name: "default delay of a policy", settings: map[string]any{"delay": int64(300)}, wait: 300 * time.Millisecond, held: -1},
		{name: "own delay", settings: map[string]any{"delay": int32(300)}, delay: int32(5), wait: 5 * time.Millisecond, held: -1},
		{name: "negated delay", settings: map[string]any{"delay": int32(300)}, delay: int32(-5), wait: 300 * time.Millisecond, held: -1},
		{name: "delay 0", settings: map[string]any{"delay": int32(300)}, delay: int32(0), wait: 300 * time.Millisecond, held: -1},
		{name: "no number", settings: map[string]any{"delay": int32(300)}, delay: true, wait: 300 * time.Millisecond, held: -1},
		{name: "within the limit", settings: map[string]any{"max-delay": int32(500)}, delay: int32(500), wait: 500 * time.Millisecond, held: -1},
		{name: "beyond the limit", settings: map[string]any{"max-delay": int32(500)}, delay: int32(501), refused: "invalid header 'x-delay': {value_too_large,501}", held: -1},
		{name: "beyond the plugin's limit", section: hooktest.Section{"max": "400ms"}, settings: map[string]any{"max-delay": int32(500)}, delay: int32(401), refused: "invalid header 'x-delay': {value_too_large,401}", held: -1},
		{name: "default delay beyond the limit", settings: map[string]any{"delay": int32(900), "max-delay": int32(500)}, wait: 500 * time.Millisecond, held: -1},
		{name: "default delay beyond the plugin's limit", section: hooktest.Section{"max": "400ms"}, settings: map[string]any{"delay": int32(900)}, wait: 400 * time.Millisecond, held: -1},
		{name: "number of messages", settings: map[string]any{"max-held": int32(9)}, held: 9},
		{name: "number of messages, configured", section: hooktest.Section{"max-held": 8}, held: 8},
		{name: "the lower number of messages", section: hooktest.Section{"max-held": 8}, settings: map[string]any{"max-held": int64(7)}, held: 7},
	} {
		s := newSchedule(t, tc.section, tc.settings)
		if s.Inner != "topic" || s.Negates != "x-delay" || s.MaxHeld.N() != tc.held {
			t.Errorf("%s: routed by %s, negates %s, holds %d, want %d", tc.name, s.Inner, s.Negates, s.MaxHeld.N(), tc.held)
		}
		c := hooktest.Content{}
		if tc.delay != nil {
			c.Headers = map[string]any{delayHeader: tc.delay}
		}
		want := hook.Instant(0)
		if tc.wait > 0 {
			want = start.Add(tc.wait)
		}
		var p hook.Plan
		err := s.Plan(hooktest.Publish(start, "k", c), &p)
		if err == nil && p.Hold != want || p.ID != nil || p.Cancel || message(err) != tc.refused {
			t.Errorf("%s: got %+v and error %q, want to be held until %d, error %q", tc.name, p, message(err), want, tc.refused)
		}
	}
}

func message(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}
