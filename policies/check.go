package policies

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// maxText bounds names of policies and patterns, in bytes.
const maxText = 1024

// maxKeys bounds how many keys a definition has.
const maxKeys = 256

// policy makes a policy of its members. It reports all that is wrong, in RabbitMQ's order. Unless strict, the definition
// is taken as it is.
func (f fields) policy(known map[string]*Key, kind Kind, strict bool) (*Policy, error) {
	p := &Policy{Name: f.name}
	var e ValidationError
	for _, err := range []error{
		checkName(f.name),
		p.define(f.definition, known, kind, strict),
		p.applyTo(f.applyTo),
		p.match(f.pattern),
		p.prioritize(f.priority),
	} {
		if err != nil {
			e.Lines = append(e.Lines, err.Error())
		}
	}
	if len(e.Lines) > 0 {
		return nil, &e
	}
	p.narrow()
	return p, nil
}

func checkName(name string) error {
	switch {
	case name == "":
		return errors.New("policy name must not be empty")
	case len(name) > maxText:
		return fmt.Errorf("policy name must not exceed %d bytes", maxText)
	case !utf8.ValidString(name):
		return errors.New("policy name must be UTF-8")
	}
	return nil
}

// define sets the definition. Of several errors in it the first is reported, as RabbitMQ does: values come before
// unknown keys.
func (p *Policy) define(v any, known map[string]*Key, kind Kind, strict bool) error {
	if list, ok := v.([]any); ok && len(list) == 0 {
		v = map[string]any{} // to Erlang they are the same
	}
	settings, ok := v.(map[string]any)
	switch {
	case !ok:
		return errors.New("definition must be a dictionary: " + term(v))
	case len(settings) == 0:
		return errors.New("no policy provided")
	case len(settings) > maxKeys:
		return fmt.Errorf("definition must not exceed %d keys, has %d", maxKeys, len(settings))
	}
	p.Definition = Define(settings)
	if strict {
		if err := check(p.Definition, known, kind); err != nil {
			return err
		}
	}
	p.keys = make([]*Key, len(p.Definition))
	for i, e := range p.Definition {
		p.keys[i] = known[e.Key]
		if p.keys[i] == nil {
			p.keys[i] = &Key{Name: e.Key}
		}
	}
	return checkRange(settings)
}

func check(d Definition, known map[string]*Key, kind Kind) error {
	var unknown []string
	for _, e := range d {
		key := known[e.Key]
		if key == nil || kind == Operator && !key.Operator {
			unknown = append(unknown, "{"+term(e.Key)+","+term(e.Value)+"}")
			continue
		}
		if key.Check == nil {
			continue
		}
		if err := key.Check(e.Value); err != nil {
			return err
		}
	}
	if unknown != nil {
		return errors.New("[" + strings.Join(unknown, ",") + "] are not recognised policy settings")
	}
	return nil
}

// checkRange looks for integers, however deep in a definition, that are none here.
func checkRange(v any) error {
	var within []any
	switch v := v.(type) {
	case digits:
		return fmt.Errorf("integer %s is out of range: 64 bits", shorten(string(v)))
	case []any:
		within = v
	case map[string]any:
		for _, key := range slices.Sorted(maps.Keys(v)) {
			within = append(within, v[key])
		}
	}
	for _, w := range within {
		if err := checkRange(w); err != nil {
			return err
		}
	}
	return nil
}

func (p *Policy) applyTo(v any) error {
	name, ok := v.(string)
	if !ok {
		name = term(v)
	}
	if p.types, ok = appliesTo(name); !ok {
		return errors.New("apply-to '" + shorten(name) +
			"' unrecognised; should be one of: 'queues', 'classic_queues',  'quorum_queues', 'streams', 'exchanges', or 'all'")
	}
	p.ApplyTo = name
	return nil
}

// match sets the pattern.
func (p *Policy) match(v any) error {
	pattern, ok := v.(string)
	switch {
	case !ok:
		return errors.New("pattern should be a binary but was " + term(v))
	case len(pattern) > maxText:
		return fmt.Errorf("pattern must not exceed %d bytes", maxText)
	}
	m, err := compile(pattern)
	if err != nil {
		return fmt.Errorf("pattern should be regular expression but is invalid: %w", err)
	}
	p.Pattern, p.matcher = pattern, m
	return nil
}

// prioritize sets the priority. RabbitMQ takes any number; a float that is an integer is one here.
func (p *Policy) prioritize(v any) error {
	switch n := v.(type) {
	case int64:
		p.Priority = int(n)
		return nil
	case float64:
		if n == float64(int32(n)) {
			p.Priority = int(n)
			return nil
		}
		return errors.New("priority should be an integer, actually was " + term(v))
	case digits:
		return errors.New("priority should be an integer of 64 bits, actually was " + term(v))
	}
	return errors.New("priority should be a number, actually was " + term(v))
}

// narrow takes away the queue types that do not know all keys.
func (p *Policy) narrow() {
	for _, key := range p.keys {
		p.types &= key.types()
	}
}

// values returns a copy of the definition made of the types that JSON is read to.
func (d Definition) values() (map[string]any, error) {
	values := make(map[string]any, len(d))
	for _, e := range d {
		if _, twice := values[e.Key]; twice {
			return nil, invalidLine("[" + term(e.Key) + "] duplicate keys not allowed")
		}
		v, err := value(e.Value, maxDepth)
		if err != nil {
			return nil, invalidLine(e.Key + ": " + err.Error())
		}
		values[e.Key] = v
	}
	return values, nil
}

// value returns a copy of v, or says why no definition can have it.
func value(v any, depth int) (any, error) {
	if n, ok := integer(v); ok {
		return n, nil
	}
	if depth == 0 {
		return nil, fmt.Errorf("must not nest deeper than %d", maxDepth)
	}
	switch v := v.(type) {
	case nil, bool, float64, string:
		return v, nil
	case int:
		return int64(v), nil
	case []any:
		return values(v, depth)
	case map[string]any:
		return members(v, depth)
	}
	return nil, fmt.Errorf("no JSON value, but a %T", v)
}

func values(list []any, depth int) (any, error) {
	copied := make([]any, len(list))
	for i, v := range list {
		var err error
		if copied[i], err = value(v, depth-1); err != nil {
			return nil, fmt.Errorf("[%s]: %w", strconv.Itoa(i), err)
		}
	}
	return copied, nil
}

func members(m map[string]any, depth int) (any, error) {
	copied := make(map[string]any, len(m))
	for key, v := range m {
		var err error
		if copied[key], err = value(v, depth-1); err != nil {
			return nil, fmt.Errorf("%s: %w", key, err)
		}
	}
	return copied, nil
}
