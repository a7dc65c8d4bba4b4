package policies

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/curfewmq/curfew/sdk/hook"
)

// maxText is the maximum length of a name or a pattern, in bytes.
const maxText = 1024

// maxKeys is the maximum number of keys in a definition.
const maxKeys = 256

// policy makes a policy from its members. It reports all mistakes, in RabbitMQ's order. The definition is checked only if strict is set.
func (f fields) policy(known map[string]*keyRule, kind Kind, strict bool) (*Policy, error) {
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

// define sets the definition. Like RabbitMQ it reports only the first mistake, in a value before an unknown key.
func (p *Policy) define(v any, known map[string]*keyRule, kind Kind, strict bool) error {
	if list, ok := v.([]any); ok && len(list) == 0 {
		v = map[string]any{} // Erlang does not tell them apart
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
	p.Definition = newDefinition(settings)
	if strict {
		if err := check(p.Definition, known, kind); err != nil {
			return err
		}
	}
	p.keys = make([]*keyRule, len(p.Definition))
	for i, e := range p.Definition {
		p.keys[i] = known[e.Key]
	}
	return checkRange(settings)
}

func check(d Definition, known map[string]*keyRule, kind Kind) error {
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
			return refusal(e.Value, err)
		}
	}
	if unknown != nil {
		return errors.New("[" + strings.Join(unknown, ",") + "] are not recognised policy settings")
	}
	return checkTogether(d, known)
}

// checkTogether checks values that may exclude each other; each has passed its own check.
func checkTogether(d Definition, known map[string]*keyRule) error {
	of := func(key string) (any, bool) {
		if at := d.index(key); at >= 0 {
			return rounded(d[at].Value), true
		}
		return nil, false
	}
	for _, e := range d {
		if key := known[e.Key]; key.CheckWith != nil {
			if err := key.CheckWith(rounded(e.Value), of); err != nil {
				return refusal(e.Value, err)
			}
		}
	}
	return nil
}

// maxRefusal is the maximum length of a text of a plugin's check, in bytes.
const maxRefusal = 16 << 10

// refusal returns the error line for a value that a check refused.
func refusal(v any, err error) error {
	if wrong, ok := errors.AsType[*hook.InvalidError](err); ok {
		return errors.New(term(v) + " is not a valid " + shortenTo(wrong.What, maxRefusal))
	}
	return errors.New(shortenTo(strings.ToValidUTF8(err.Error(), "?"), maxRefusal))
}

// checkRange refuses integers of more than 64 bits at any depth.
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
	m, _, err := compile(pattern)
	if err != nil {
		return fmt.Errorf("pattern should be regular expression but is invalid: %w", err)
	}
	p.Pattern, p.matcher = pattern, m
	return nil
}

// prioritize sets the priority. RabbitMQ accepts any number; we accept integers, including those written as floats.
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

// narrow removes the queue types for which not all keys are known.
func (p *Policy) narrow() {
	for _, key := range p.keys {
		if key != nil {
			p.types &= key.types()
		}
	}
}
