package policies

import (
	"errors"
	"fmt"
	"slices"
)

// Options say what policies may set besides the keys of RabbitMQ.
type Options struct {
	// Strategies returns the names that expiry-strategy may have. It is asked whenever a policy is checked, by the
	// goroutine that checks it; nil accepts any name.
	Strategies func() []string
	// Keys are those of plugins.
	Keys []Key
}

// Rules check policies. They are immutable; the zero value knows the built-in keys.
type Rules struct {
	keys map[string]*Key // nil: only those built in
}

// NewRules returns the rules for what is loaded. A key that is there already, or has no name, is an error.
func NewRules(o Options) (*Rules, error) {
	r := &Rules{keys: keysByName(o.Strategies)}
	for _, key := range o.Keys {
		if key.Name == "" {
			return nil, errors.New("policy key without a name")
		}
		if _, taken := r.keys[key.Name]; taken {
			return nil, fmt.Errorf("policy key '%s' is defined twice", key.Name)
		}
		r.keys[key.Name] = &key
	}
	return r, nil
}

func keysByName(strategies func() []string) map[string]*Key {
	all := append(builtin(), expiryStrategy(strategies))
	keys := make(map[string]*Key, len(all))
	for _, key := range all {
		keys[key.Name] = &key
	}
	return keys
}

func (r *Rules) known() map[string]*Key {
	if r == nil || r.keys == nil {
		return keysByName(nil)
	}
	return r.keys
}

// Parse reads a policy: the body of a request to set it, or its object in a definitions file. Members that a policy does
// not have are passed over, so that its name and virtual host may be among them.
func (r *Rules) Parse(kind Kind, name string, body []byte) (*Policy, error) {
	f, err := parseFields(name, body)
	if err != nil {
		return nil, err
	}
	return f.policy(r.known(), kind, true)
}

// New checks a policy made of values. ApplyTo may be empty, which means "all".
func (r *Rules) New(kind Kind, p Policy) (*Policy, error) {
	f := fields{name: p.Name, pattern: p.Pattern, applyTo: p.ApplyTo, priority: int64(p.Priority)}
	if p.ApplyTo == "" {
		f.applyTo = allObjects
	}
	definition, err := p.Definition.values()
	if err != nil {
		return nil, err
	}
	f.definition = definition
	return f.policy(r.known(), kind, true)
}

// Restore reads a policy that was checked when it was set. Definitions stay as they are: a key that nobody knows any
// more keeps its value, and sets nothing as long as nobody asks for it.
func (r *Rules) Restore(kind Kind, name string, body []byte) (*Policy, error) {
	f, err := parseFields(name, body)
	if err != nil {
		return nil, err
	}
	return f.policy(r.known(), kind, false)
}

// allObjects is what a policy applies to that does not say.
const allObjects = "all"

// fields are the members of a policy, of whatever type they are.
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
