// Package policies says what the policies of a virtual host mean: which of them apply to a queue or an exchange, what
// they set, and how that combines with the arguments of a declaration.
//
// Everything here is a value or a pure function of values: no clock, no goroutine, no lock. What a broker knows besides
// RabbitMQ's keys, the names of its expiry strategies and the keys of its plugins, is handed in as [Options].
// Texts are RabbitMQ's wherever it refuses the same thing.
package policies

import (
	"slices"
	"strings"
)

// Kind tells the two kinds of policy apart. At most one of each applies to an object.
type Kind uint8

// The kinds.
const (
	// User policies are set by whoever may manage a virtual host.
	User Kind = iota
	// Operator policies are set by administrators and may only limit what others set.
	Operator

	kinds
)

// String is the name of the parameter component that RabbitMQ keeps policies of this kind in.
func (k Kind) String() string {
	return [kinds]string{"policy", "operator_policy"}[k]
}

// Policy gives settings to the queues and exchanges whose names its pattern matches.
// [Rules] makes policies; from then on they are immutable, and only those may enter a [Set].
type Policy struct {
	Name       string
	Pattern    string // RE2, unanchored, case-sensitive
	ApplyTo    string // all, queues, classic_queues, quorum_queues, streams or exchanges
	Priority   int
	Definition Definition

	matcher matcher
	types   typeSet // what it applies to: ApplyTo without the types that do not know all keys
	keys    []*Key  // of the entries of Definition
}

// Equal reports whether two policies say the same.
func (p *Policy) Equal(q *Policy) bool {
	return p.Name == q.Name && p.Pattern == q.Pattern && p.ApplyTo == q.ApplyTo && p.Priority == q.Priority &&
		p.Definition.Equal(q.Definition)
}

// precedes orders policies by precedence. Priorities may be equal; then the name decides, in byte order, so that what
// applies never depends on the order in which policies were set.
func precedes(p, q *Policy) int {
	if p.Priority != q.Priority {
		return cmpDescending(p.Priority, q.Priority)
	}
	return strings.Compare(p.Name, q.Name)
}

func cmpDescending(a, b int) int {
	if a > b {
		return -1
	}
	return 1
}

// What a policy can apply to: the queue types, and exchanges.
const (
	Classic  = "classic"
	Quorum   = "quorum"
	Stream   = "stream"
	Exchange = "exchange"
)

// typeSet is a set of those.
type typeSet uint8

const (
	onClassic typeSet = 1 << iota
	onQuorum
	onStream
	onExchange

	onQueues = onClassic | onQuorum | onStream
	onAll    = onQueues | onExchange
)

// typesOf is the set of the named types. Others add nothing: a policy applies to no object of a type unknown here.
func typesOf(names ...string) typeSet {
	var t typeSet
	for _, name := range names {
		switch name {
		case Classic:
			t |= onClassic
		case Quorum:
			t |= onQuorum
		case Stream:
			t |= onStream
		case Exchange:
			t |= onExchange
		}
	}
	return t
}

// applyTo lists what a policy can say it applies to, in the order in which RabbitMQ names them.
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

// Set holds all policies of a virtual host. It is immutable: a change makes another one, so that any number of
// goroutines may read one. A nil Set is empty.
type Set struct {
	policies [kinds][]*Policy // by precedence
}

// With returns the set with p instead of the policy of that kind and name. It is s itself if that is equal to p.
func (s *Set) With(kind Kind, p *Policy) *Set {
	if old, ok := s.Lookup(kind, p.Name); ok && old.Equal(p) {
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

// Without returns the set without a policy, and whether it was there.
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

// List returns the policies of a kind, the one with the highest priority first and those with the same priority by
// name. The caller must not change it.
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

// Subject is what policies apply to: a queue, or an exchange.
type Subject struct {
	Name string
	Type string // Classic, Quorum, Stream or Exchange
}

// Match returns the policies that apply to an object: of each kind the first by precedence whose pattern matches the
// name and which applies to the type. A policy is passed over for queues of a type that does not know all of its keys.
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
