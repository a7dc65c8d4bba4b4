package policies

import (
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/curfewmq/curfew/sdk/hook"
)

// Rules check policies. They are immutable. The zero value knows no plugin's keys, and accepts any expiry strategy.
type Rules struct {
	keys map[string]*keyRule // nil: the keys of the zero value
}

// argumentPrefix is the prefix that turns the name of a key into that of its argument.
const argumentPrefix = "x-"

// NewRules returns rules for the keys of these arguments, and for RabbitMQ's keys that no plugin has. It ignores an argument whose name
// is already a key. strategies returns the accepted expiry strategies; it is called for each check, on the caller's
// goroutine. nil accepts any name.
func NewRules(arguments []hook.Argument, strategies func() []string) *Rules {
	keys := keysByName(strategies)
	for _, a := range arguments {
		name, ok := strings.CutPrefix(a.Name, argumentPrefix)
		if a.Policy == nil || !ok || keys[name] != nil {
			continue
		}
		keys[name] = keyOf(name, &a)
	}
	return &Rules{keys}
}

// Arguments returns the names of the arguments whose keys plugins cannot declare, because they are known without plugins.
func Arguments() []string {
	var names []string
	for _, k := range append(builtin(), expiryStrategy(nil)) {
		names = append(names, argumentPrefix+k.name)
	}
	return names
}

func keyOf(name string, a *hook.Argument) *keyRule {
	k := &keyRule{name, *a.Policy}
	if k.QueueTypes == nil {
		k.QueueTypes = a.QueueTypes
	}
	if k.QueueTypes == nil {
		k.QueueTypes = []string{Classic, Quorum}
	}
	if check := k.Check; check != nil {
		k.Check = func(v any) error { return check(rounded(v)) }
	}
	return k
}

// rounded returns a value in which integers of more than 64 bits, which plugins do not
// know, are replaced by floats. Such integers are refused in any case; this lets the plugin
// choose the text.
func rounded(v any) any {
	switch v := v.(type) {
	case digits:
		f, _ := strconv.ParseFloat(string(v), 64)
		return max(min(f, math.MaxFloat64), -math.MaxFloat64)
	case []any:
		list := make([]any, len(v))
		for i := range v {
			list[i] = rounded(v[i])
		}
		return list
	case map[string]any:
		m := make(map[string]any, len(v))
		for key, w := range v {
			m[key] = rounded(w)
		}
		return m
	}
	return v
}

func keysByName(strategies func() []string) map[string]*keyRule {
	all := append(builtin(), expiryStrategy(strategies))
	keys := make(map[string]*keyRule, len(all))
	for _, key := range all {
		keys[key.name] = &key
	}
	return keys
}

func (r *Rules) known() map[string]*keyRule {
	if r == nil || r.keys == nil {
		return keysByName(nil)
	}
	return r.keys
}

// Parse reads and checks a policy: the body of a request that sets it, or its object in a definitions file. It ignores unknown
// members, such as name and vhost.
func (r *Rules) Parse(kind Kind, name string, body []byte) (*Policy, error) {
	f, err := parseFields(name, body)
	if err != nil {
		return nil, err
	}
	return f.policy(r.known(), kind, true)
}

// Restore reads a policy that was checked when it was set. Its definition is not checked again: a key that is no longer
// known keeps its value, and has no effect.
func (r *Rules) Restore(kind Kind, name string, body []byte) (*Policy, error) {
	f, err := parseFields(name, body)
	if err != nil {
		return nil, err
	}
	return f.policy(r.known(), kind, false)
}

// allObjects is the default of apply-to.
const allObjects = "all"

// fields are the members of a policy, unchecked.
type fields struct {
	name       string
	pattern    any
	applyTo    any
	priority   any
	definition any
}

func parseFields(name string, body []byte) (fields, error) {
	members, err := decode(body)
	if err != nil {
		return fields{}, err
	}
	missing := slices.DeleteFunc([]string{"pattern", "definition"}, func(key string) bool {
		_, ok := members[key]
		return ok
	})
	if len(missing) > 0 {
		return fields{}, &MissingError{Keys: missing}
	}
	f := fields{name: name, pattern: members["pattern"], definition: members["definition"], applyTo: allObjects, priority: int64(0)}
	if v, ok := members["apply-to"]; ok {
		f.applyTo = v
	}
	if v, ok := members["priority"]; ok {
		f.priority = v
	}
	return f, nil
}
