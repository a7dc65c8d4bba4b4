// Package policies implements the policies of a virtual host: which of them apply to a queue or an exchange, which settings they
// have, and how these combine with the arguments of a declaration.
//
// It consists of values and pure functions: no clock, no goroutine, no lock. Where RabbitMQ refuses the same input, the error texts are
// RabbitMQ's.
package policies

import (
	"cmp"
	"errors"
	"slices"
	"strings"
)

// Kind is the kind of a policy. At most one of each kind applies to an object.
type Kind uint8

// The kinds.
const (
	// User policies are set by the managers of a virtual host.
	User Kind = iota
	// Operator policies are set by administrators and limit user policies and arguments.
	Operator

	kinds
)

// String returns the kind's component among RabbitMQ's parameters.
func (k Kind) String() string {
	return [kinds]string{"policy", "operator_policy"}[k]
}

// Policy gives settings to the queues and exchanges whose names its pattern matches.
// [Rules] make policies, which are immutable from then on. A [Set] takes only such policies.
type Policy struct {
	Name       string
	Pattern    string // RE2, unanchored, case-sensitive
	ApplyTo    string // all, queues, classic_queues, quorum_queues, streams or exchanges
	Priority   int
	Definition Definition

	matcher matcher
	types   typeSet    // ApplyTo without the types for which not all keys are known
	keys    []*keyRule // of the entries of Definition; nil for a key that is not known
}

// Unknown returns the keys of a restored policy that are not known now, because the plugin that declared them is not loaded. They have
// no effect.
func (p *Policy) Unknown() []string {
	var keys []string
	for i, rule := range p.keys {
		if rule == nil {
			keys = append(keys, p.Definition[i].Key)
		}
	}
	return keys
}

func (p *Policy) equal(q *Policy) bool {
	return p.Name == q.Name && p.Pattern == q.Pattern && p.ApplyTo == q.ApplyTo && p.Priority == q.Priority &&
		p.Definition.equal(q.Definition)
}

// precedes orders policies by priority and, if priorities are equal, by name in byte order. The order in which policies were set
// does not matter.
func precedes(p, q *Policy) int {
	return cmp.Or(cmp.Compare(q.Priority, p.Priority), strings.Compare(p.Name, q.Name))
}

// The types of objects: queue types, and exchanges.
const (
	Classic  = "classic"
	Quorum   = "quorum"
	Stream   = "stream"
	Exchange = "exchange"
)

type typeSet uint8

const (
	onClassic typeSet = 1 << iota
	onQuorum
	onStream
	onExchange

	onQueues = onClassic | onQuorum | onStream
	onAll    = onQueues | onExchange
)

// typesOf returns the set of the named types. It ignores unknown types, to which no policy applies.
func typesOf(names ...string) typeSet {
	var t typeSet
	for _, name := range names {
		if i := slices.Index([]string{Classic, Quorum, Stream, Exchange}, name); i >= 0 {
			t |= onClassic << i
		}
	}
	return t
}

// applyTo lists the values of apply-to, in RabbitMQ's order.
var applyTo = []struct {
	name  string
	types typeSet
}{
	{"queues", onQueues},
	{"classic_queues", onClassic},
	{"quorum_queues", onQuorum},
	{"streams", onStream},
	{"exchanges", onExchange},
	{"all", onAll},
}

func appliesTo(name string) (typeSet, bool) {
	for _, a := range applyTo {
		if a.name == name {
			return a.types, true
		}
	}
	return 0, false
}

// Set holds all policies of a virtual host. It is immutable: a change makes a new Set. A nil Set is empty.
type Set struct {
	policies [kinds][]*Policy // by precedence
}

// With returns a set in which p replaces the policy of that kind and name. If that policy equals p, it returns s.
func (s *Set) With(kind Kind, p *Policy) *Set {
	if old, ok := s.Lookup(kind, p.Name); ok && old.equal(p) {
		return s
	}
	next, _ := s.Without(kind, p.Name)
	changed := &Set{}
	if next != nil {
		*changed = *next
	}
	list := changed.policies[kind]
	at, _ := slices.BinarySearchFunc(list, p, precedes)
	changed.policies[kind] = slices.Concat(list[:at], []*Policy{p}, list[at:])
	return changed
}

// Without returns the set without a policy, and whether the policy existed.
func (s *Set) Without(kind Kind, name string) (*Set, bool) {
	list := s.List(kind)
	at := slices.IndexFunc(list, func(p *Policy) bool { return p.Name == name })
	if at < 0 {
		return s, false
	}
	changed := *s
	changed.policies[kind] = slices.Concat(list[:at], list[at+1:])
	return &changed, true
}

// List returns the policies of a kind, by descending priority and then by name. The caller must not change the slice.
func (s *Set) List(kind Kind) []*Policy {
	if s == nil {
		return nil
	}
	return s.policies[kind]
}

// Lookup returns the policy with that name.
func (s *Set) Lookup(kind Kind, name string) (*Policy, bool) {
	for _, p := range s.List(kind) {
		if p.Name == name {
			return p, true
		}
	}
	return nil, false
}

// Subject is a queue or an exchange.
type Subject struct {
	Name string
	Type string // Classic, Quorum, Stream or Exchange
}

// Match returns the policies that apply to an object: for each kind, the first policy by precedence that applies to the type and whose
// pattern matches the name. It skips policies with a key that the queue's type does not support.
func (s *Set) Match(o Subject) Applied {
	if s == nil {
		return Applied{}
	}
	t := typesOf(o.Type)
	return Applied{User: match(s.policies[User], o.Name, t), Operator: match(s.policies[Operator], o.Name, t)}
}

func match(list []*Policy, name string, t typeSet) *Policy {
	for _, p := range list {
		if p.types&t != 0 && p.matcher.match(name) {
			return p
		}
	}
	return nil
}

// ErrNotJSON means that a policy's JSON cannot be parsed. RabbitMQ's text has no details; the errors that wrap it do.
var ErrNotJSON = errors.New("not_json")

// MissingError names the required members that a policy lacks, in the words of RabbitMQ's HTTP API.
type MissingError struct{ Keys []string }

func (e *MissingError) Error() string {
	return "[{key_missing," + strings.Join(e.Keys, "},{key_missing,") + "}]"
}

// ValidationError has the mistakes in a policy, one a line. Its text is RabbitMQ's, including the line breaks.
type ValidationError struct{ Lines []string }

func (e *ValidationError) Error() string {
	return "Validation failed\n\n" + strings.Join(e.Lines, "\n") + "\n"
}

func invalidLine(line string) error {
	return &ValidationError{Lines: []string{line}}
}
