package hooktest

import (
	"fmt"
	"math"
	"reflect"
	"slices"
	"strings"

	"github.com/curfewmq/curfew/sdk/hook"
)

// fromJSON has a value of every type that a policy's value can have.
var fromJSON = []any{
	nil, true, false, int64(0), int64(1), int64(-1), int64(1000), int64(1e6), int64(math.MaxInt64), int64(math.MinInt64),
	0.0, 1.0, 1.5, -0.5, math.MaxFloat64, "", "no such value", "0", "1", strings.Repeat("x", 255), strings.Repeat("x", 1<<16), "\x00", "\u00fc",
	[]any{},
	[]any{int64(1)},
	[]any{"a", []any{nil}},
	map[string]any{},
	map[string]any{"a": map[string]any{"b": 1.5}},
}

// policyKey is an argument that policies can set.
type policyKey struct {
	t      reporter
	plugin hook.Plugin
	a      hook.Argument
	values []any // additional values for the key, from the cases
}

// checkPolicyKeys checks the plugin's keys, including values from a case's queue.
func checkPolicyKeys(t reporter, p hook.Plugin, own map[string]any) {
	t.Helper()
	for _, a := range p.Arguments() {
		if a.Policy == nil || a.Check == nil {
			continue
		}
		k := policyKey{t: t, plugin: p, a: a, values: fromJSON}
		if v, ok := own[k.name()]; ok {
			k.values = append(slices.Clone(fromJSON), asJSON(v))
		}
		k.check()
	}
}

// asJSON converts a setting to the type that it has in a policy.
func asJSON(v any) any {
	if n, ok := hook.Int(v); ok {
		return n
	}
	return v
}

func (k *policyKey) name() string { return strings.TrimPrefix(k.a.Name, "x-") }

func (k *policyKey) check() {
	k.t.Helper()
	k.checkMerges()
	if k.a.Policy.QueueTypes != nil && len(k.a.Policy.QueueTypes) == 0 {
		k.t.Errorf("policy key %s: QueueTypes is empty, so that no queue has the key; nil means those of the argument", k.name())
	}
	for _, kind := range k.a.Policy.QueueTypes {
		if !slices.Contains([]string{"classic", "quorum", "stream"}, kind) {
			k.t.Errorf("policy key %s: there is no queue type %q", k.name(), kind)
		}
	}
	for _, v := range k.values {
		k.checkValue(v)
	}
}

// accepts reports whether the key's check accepts v.
func (k *policyKey) accepts(v any) bool {
	check := k.a.Policy.Check
	return check == nil || contained(func() error { return check(v) }) == nil
}

// accepted reports whether the argument's check accepts v, alone or together with the
// plugin's other arguments, one of which may be required.
func (k *policyKey) accepted(v any) bool {
	alone := hook.Args{{Name: k.a.Name, Value: v}}
	beside := slices.Clone(alone)
	for _, a := range k.plugin.Arguments() {
		if a.Name != k.a.Name {
			beside = append(beside, hook.Arg{Name: a.Name, Value: "x"})
		}
	}
	return slices.ContainsFunc([]hook.Args{alone, beside}, func(all hook.Args) bool {
		return contained(func() error { return k.a.Check(v, all) }) == nil
	})
}

// companions returns the other settings of definitions with v: none, and all of the plugin's keys with the value that each accepts last.
func (k *policyKey) companions(v any) []func(key string) (any, bool) {
	alone, all := map[string]any{k.name(): v}, map[string]any{k.name(): v}
	for _, a := range k.plugin.Arguments() {
		o := policyKey{a: a}
		for _, w := range fromJSON {
			if a.Policy != nil && a.Name != k.a.Name && o.accepts(w) {
				all[o.name()] = w
			}
		}
	}
	var of []func(key string) (any, bool)
	for _, definition := range []map[string]any{alone, all} {
		of = append(of, func(key string) (any, bool) { v, ok := definition[key]; return v, ok })
	}
	return of
}

func (k *policyKey) checkMerges() {
	k.t.Helper()
	p := k.a.Policy
	merges := []hook.Merge{p.Merge, p.Argument}
	if p.QuorumArgument != nil {
		merges = append(merges, *p.QuorumArgument)
	}
	for _, m := range merges {
		switch {
		case m > hook.TakeLowerLimit:
			k.t.Errorf("policy key %s: there is no Merge %d", k.name(), m)
		case m >= hook.TakeLower:
			k.checkIntegers()
		}
	}
	if p.Merge != 0 && !p.Operator {
		k.t.Errorf("policy key %s: Merge says how to combine an operator policy's value, but operator policies cannot have the key", k.name())
	}
}

// checkIntegers requires a check that accepts only integers, because integers are compared.
func (k *policyKey) checkIntegers() {
	k.t.Helper()
	for _, v := range fromJSON {
		if _, ok := v.(int64); !ok && k.accepts(v) {
			k.t.Errorf("policy key %s: merges by the lower or higher integer, but its check accepts %s", k.name(), brief(v))
			return
		}
	}
}

func (k *policyKey) checkValue(v any) {
	k.t.Helper()
	what := fmt.Sprintf("policy key %s = %s", k.name(), brief(v))
	if check := k.a.Policy.Check; check != nil {
		before := fmt.Sprintf("%#v", v)
		steady(k.t, what, func() error { return check(v) })
		if fmt.Sprintf("%#v", v) != before {
			k.t.Errorf("%s: the check changes the value", what)
		}
	}
	if check := k.a.Policy.CheckWith; check != nil && k.accepts(v) {
		for _, of := range k.companions(v) {
			steady(k.t, what+" beside other settings", func() error { return check(v, of) })
		}
	}
	policy, argument := k.accepts(v), k.accepted(v)
	switch {
	case !sameType(v):
	case argument && !policy:
		k.t.Errorf("%s: the argument %s accepts the value, policies refuse it", what, k.a.Name)
	case policy && !argument && !large(v):
		k.t.Errorf("%s: policies accept the value, the argument %s refuses it", what, k.a.Name)
	}
	k.checkAttach(v)
	if policy {
		k.checkQueues(v)
	}
}

// checkAttach attaches the plugin to queues with the value, whether or not it is accepted: an earlier version of the plugin may have
// accepted it.
func (k *policyKey) checkAttach(v any) {
	k.t.Helper()
	for _, spec := range k.specs(v) {
		if err := contained(func() error { k.plugin.Attach(NewQueue(spec)); return nil }); err != nil {
			k.t.Errorf("policy key %s = %s: Attach %v", k.name(), brief(v), err)
			return
		}
	}
}

// specs returns queues with the value, for the types that may have the key.
func (k *policyKey) specs(v any) (all []Spec) {
	for _, kind := range []string{"classic", "quorum"} {
		if k.a.QueueTypes == nil || slices.Contains(k.a.QueueTypes, kind) {
			all = append(all, (Case{Queue: Spec{Type: kind, Settings: map[string]any{k.name(): v}}}).specs(k.plugin)...)
		}
	}
	return all
}

// sameType reports whether clients and policies send v as the same Go type.
func sameType(v any) bool {
	switch v.(type) {
	case bool, int64, string:
		return true
	}
	return false
}

// large reports whether v is an integer that policies may accept although arguments do not: RabbitMQ limits TTLs only in arguments.
func large(v any) bool {
	n, ok := v.(int64)
	return ok && n > 1e6
}

// checkQueues attaches the plugin to queues with the value from a policy, and requires the same behaviour as with an argument of another
// integer type.
func (k *policyKey) checkQueues(v any) {
	k.t.Helper()
	for _, spec := range k.specs(v) {
		s := &subject{t: k.t, plugin: k.plugin, spec: spec}
		if contained(func() error { k.plugin.Attach(NewQueue(spec)); return nil }) != nil {
			continue // checkAttach has reported it
		}
		s.check()
		if n, ok := v.(int64); ok && n == int64(int32(n)) {
			other := spec
			other.Settings = map[string]any{k.name(): int32(n)}
			s.checkLike(&subject{t: k.t, plugin: k.plugin, spec: other}, fmt.Sprintf("with %s = %d from a policy and from an argument", k.name(), n))
		}
	}
}

// checkLike requires the same hooks and verdicts for two queues.
func (s *subject) checkLike(o *subject, what string) {
	s.t.Helper()
	a, b := s.attach(), o.attach()
	if x, y := facts(a.hooks), facts(b.hooks); x != y {
		s.t.Errorf("differs %s: got %s and %s", what, x, y)
		return
	}
	for _, p := range points {
		if a.callback(p) != nil {
			in := situations(p, 3, 64)
			s.compare(p, "differ "+what, in, a.call(p, in), b.call(p, in))
		}
	}
}

// facts formats the hooks without their functions.
func facts(h hook.Hooks) string {
	var b strings.Builder
	v := reflect.ValueOf(h)
	for i := range v.NumField() {
		f := v.Field(i)
		if f.Kind() == reflect.Func {
			fmt.Fprintf(&b, "%s %t ", v.Type().Field(i).Name, !f.IsNil())
			continue
		}
		fmt.Fprintf(&b, "%s %v ", v.Type().Field(i).Name, f.Interface())
	}
	return strings.TrimSpace(b.String())
}
