package policies

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/curfewmq/curfew/sdk/hook"
)

// foreign are the arguments of a plugin that is not ours.
func foreign() []hook.Argument {
	weaker := hook.TakeWeaker
	return []hook.Argument{
		{Name: "x-night-shift", Policy: &hook.PolicyKey{
			Check: hook.PolicyInt(0, 23, "night shift, expected 0 to 23"), Operator: true,
			Merge: hook.TakeHigher, Argument: hook.TakeLower, QuorumArgument: &weaker,
		}},
		{Name: "x-night-zone", QueueTypes: []string{Quorum}, Policy: &hook.PolicyKey{
			Check: func(v any) error { return errors.New("zone \xff" + strings.Repeat("z", 20<<10)) },
		}},
		{Name: "x-night-any", Policy: &hook.PolicyKey{QueueTypes: []string{Classic, Quorum, Stream}}},
		{Name: "x-night-argument"},
		{Name: "x-ha-mode", Policy: &hook.PolicyKey{}}, // RabbitMQ's; the chain refuses it
		{Name: "night-bare", Policy: &hook.PolicyKey{}},
	}
}

func TestKeysOfOtherPlugins(t *testing.T) {
	rules := NewRules(foreign(), nil)
	for _, tc := range []struct {
		kind             Kind
		definition, want string
	}{
		{User, `{"night-shift":0}`, ""},
		{Operator, `{"night-shift":23}`, ""},
		{User, `{"night-shift":24}`, "24 is not a valid night shift, expected 0 to 23"},
		{User, `{"night-shift":"x"}`, `<<"x">> is not a valid night shift, expected 0 to 23`},
		{User, `{"night-shift":1.0}`, "1.0 is not a valid night shift, expected 0 to 23"},
		{User, `{"night-shift":99999999999999999999}`, "99999999999999999999 is not a valid night shift, expected 0 to 23"},
		{User, `{"night-zone":1}`, "zone ?" + strings.Repeat("z", 16<<10-6) + "..."},
		{User, `{"night-any":{"a":[null]}}`, ""},
		{User, `{"night-any":[99999999999999999999]}`, "integer 99999999999999999999 is out of range: 64 bits"},
		{Operator, `{"night-any":1}`, `[{<<"night-any">>,1}] are not recognised policy settings`},
		{User, `{"night-argument":1}`, `[{<<"night-argument">>,1}] are not recognised policy settings`},
		{User, `{"x-night-shift":1}`, `[{<<"x-night-shift">>,1}] are not recognised policy settings`},
		{User, `{"night-bare":1}`, `[{<<"night-bare">>,1}] are not recognised policy settings`},
		{User, `{"ha-mode":"x"}`, `<<"x">> is not a valid ha-mode value`},
		{User, `{"message-ttl":1}`, `[{<<"message-ttl">>,1}] are not recognised policy settings`},
	} {
		_, err := rules.Parse(tc.kind, "p", []byte(`{"pattern":"","definition":`+tc.definition+`}`))
		if tc.want == "" && err != nil {
			t.Errorf("%s: %v", tc.definition, err)
		}
		if want := "Validation failed\n\n" + tc.want + "\n"; tc.want != "" && (err == nil || err.Error() != want) {
			t.Errorf("%s: got %q, want %q", tc.definition, err, want)
		}
	}
}

// A check got an integer of more than 64 bits as a type of this package, which no plugin can know.
func TestChecksGetTypesOfJSON(t *testing.T) {
	huge := strings.Repeat("9", 400)
	for _, value := range []string{
		"1", "1.5", `"a"`, "true", "null", "[]", "{}", "99999999999999999999", "-99999999999999999999", huge, "-" + huge,
		`[1,[99999999999999999999]]`, `{"a":{"b":[99999999999999999999,null]}}`,
	} {
		asked := false
		rules := NewRules([]hook.Argument{{Name: "x-any", Policy: &hook.PolicyKey{Check: func(v any) error {
			asked = true
			return jsonOnly(v)
		}}}}, nil)
		_, err := rules.Parse(User, "p", []byte(`{"pattern":"","definition":{"any":`+value+`}}`))
		if !asked || err != nil && !strings.Contains(err.Error(), "is out of range: 64 bits") {
			t.Errorf("%.40s: asked %t, got %v", value, asked, err)
		}
		if (err == nil) == strings.Contains(value, "99999") {
			t.Errorf("%.40s: got %v", value, err)
		}
	}
}

// jsonOnly refuses what is none of the types that [hook.PolicyKey] names.
func jsonOnly(v any) error {
	switch v := v.(type) {
	case nil, bool, int64, string:
	case float64:
		if math.IsInf(v, 0) || math.IsNaN(v) {
			return errors.New("not a number of JSON")
		}
	case []any:
		for _, w := range v {
			if err := jsonOnly(w); err != nil {
				return err
			}
		}
	case map[string]any:
		return jsonOnly(slices.Collect(maps.Values(v)))
	default:
		return fmt.Errorf("got a %T", v)
	}
	return nil
}

func TestKeysOfOtherPluginsMerge(t *testing.T) {
	rules := NewRules(foreign(), nil)
	a := Applied{
		User:     mustParse(t, rules, User, `{"pattern":"","definition":{"night-shift":5,"night-any":"a"}}`),
		Operator: mustParse(t, rules, Operator, `{"pattern":"","definition":{"night-shift":9}}`),
	}
	for _, tc := range []struct {
		arg       any
		queueType string
		want      any
	}{
		{nil, Classic, int64(9)},
		{int8(7), Classic, int8(7)},
		{int8(11), Classic, int64(9)},
		{int8(11), Quorum, int8(11)},
	} {
		if got, ok := a.Setting("night-shift", tc.arg, tc.arg != nil, tc.queueType); !ok || got != tc.want {
			t.Errorf("%v in a %s queue: got %v, want %v", tc.arg, tc.queueType, got, tc.want)
		}
	}
	if got, _ := a.Definition().MarshalJSON(); string(got) != `{"night-any":"a","night-shift":9}` {
		t.Errorf("got %s", got)
	}
}

// A key applies to the queues that its argument is for, unless it says otherwise.
func TestKeysOfOtherPluginsNarrow(t *testing.T) {
	rules := NewRules(append(foreign(), hook.Argument{Name: "x-night-quorum", QueueTypes: []string{Quorum}, Policy: &hook.PolicyKey{}}), nil)
	for _, tc := range []struct{ key, want string }{
		{"night-shift", "classic quorum exchange"}, {"night-quorum", "quorum exchange"}, {"night-any", "classic quorum stream exchange"},
	} {
		s := (*Set)(nil).With(User, mustParse(t, rules, User, `{"pattern":"","definition":{"`+tc.key+`":1}}`))
		var types []string
		for _, of := range []string{Classic, Quorum, Stream, Exchange} {
			if s.Match(Subject{Name: "a", Type: of}).User != nil {
				types = append(types, of)
			}
		}
		if got := strings.Join(types, " "); got != tc.want {
			t.Errorf("%s applies to %s, want %s", tc.key, got, tc.want)
		}
	}
}

// A policy outlives the plugin that knows its key: it stays as it is, without effect, until the plugin is back.
func TestPolicyOutlivesItsPlugin(t *testing.T) {
	with := NewRules(append(declared(), foreign()...), nil)
	written, err := mustParse(t, with, User, `{"pattern":"","definition":{"max-length":5,"night-shift":5,"night-any":{"a":[1]}}}`).MarshalJSON()
	if err != nil {
		t.Fatal(err)
	}
	p, err := rabbitMQ.Restore(User, "p", written)
	if err != nil {
		t.Fatal(err)
	}
	if got, _ := p.MarshalJSON(); string(got) != string(written) {
		t.Errorf("got %s, want %s", got, written)
	}
	if got := p.Unknown(); !slices.Equal(got, []string{"night-any", "night-shift"}) {
		t.Errorf("unknown are %v", got)
	}
	operator, err := rabbitMQ.Restore(Operator, "o", []byte(`{"pattern":"","definition":{"night-shift":7}}`))
	if err != nil {
		t.Fatal(err)
	}
	a := Applied{User: p, Operator: operator}
	if got, ok := a.Setting("night-shift", nil, false, Classic); ok {
		t.Errorf("the key has the value %v", got)
	}
	if got, _ := a.Setting("night-shift", int8(3), true, Classic); got != int8(3) {
		t.Errorf("the argument became %v", got)
	}
	if got, _ := a.Setting("max-length", nil, false, Classic); got != int64(5) {
		t.Errorf("another key became %v", got)
	}
	if got, _ := a.Definition().MarshalJSON(); string(got) != `{"max-length":5,"night-any":{"a":[1]},"night-shift":7}` {
		t.Errorf("the effective definition became %s", got)
	}
	if p, err = with.Restore(User, "p", written); err != nil || p.Unknown() != nil {
		t.Errorf("with the plugin back: %v, unknown are %v", err, p.Unknown())
	}
	if got, _ := (Applied{User: p}).Setting("night-shift", nil, false, Classic); got != int64(5) {
		t.Errorf("with the plugin back: got %v", got)
	}
}

// The zero value knows RabbitMQ's keys that no plugin has, and any expiry strategy.
func TestRulesWithoutPlugins(t *testing.T) {
	for definition, ok := range map[string]bool{
		`{"delivery-limit":1}`: true, `{"expiry-strategy":"any"}`: true, `{"expiry-strategy":1}`: false, `{"message-ttl":1}`: false,
	} {
		for _, rules := range []*Rules{nil, {}, NewRules(nil, nil)} {
			if _, err := rules.Parse(User, "p", []byte(`{"pattern":"","definition":`+definition+`}`)); (err == nil) != ok {
				t.Errorf("%s: got %v", definition, err)
			}
		}
	}
}

func TestReservedArguments(t *testing.T) {
	got := Arguments()
	for _, name := range []string{"x-ha-mode", "x-delivery-limit", "x-expiry-strategy"} {
		if !slices.Contains(got, name) {
			t.Errorf("%s is not reserved", name)
		}
	}
	for _, a := range declared() {
		if slices.Contains(got, a.Name) {
			t.Errorf("%s is reserved", a.Name)
		}
	}
}
