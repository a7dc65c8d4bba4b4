// Package jsonobj is the JSON of the management API: objects that keep the order of their members, and a reader for the
// objects that clients send. It knows nothing of HTTP.
package jsonobj

import (
	"cmp"
	"slices"

	"github.com/curfewmq/curfew/sdk/hook"
)

// Object is a JSON object with its members in order. Values are nil, bool, string, int, int64, uint64, float64, Object,
// []Object, []string, []any, json.Number and json.RawMessage; the last two must be valid.
type Object []Member

// Member is a name, which is a string, and a value. It is an array because other packages could not write a struct's literal
// as {"name", value}.
type Member [2]any

// Name returns the name of the member.
func (m *Member) Name() string { return m[0].(string) }

// Add appends a member.
func (o *Object) Add(name string, value any) { *o = append(*o, Member{name, value}) }

// Value returns the value of a member.
func (o Object) Value(name string) (any, bool) {
	for i := range o {
		if o[i].Name() == name {
			return o[i][1], true
		}
	}
	return nil, false
}

// Without returns the object without the members of that name.
func (o Object) Without(name string) Object {
	return slices.DeleteFunc(o, func(m Member) bool { return m.Name() == name })
}

// Find returns the value at a path of member names.
func (o Object) Find(path []string) (any, bool) {
	v, ok := o.Value(path[0])
	v = opened(v)
	if !ok || len(path) == 1 {
		return v, ok
	}
	inner, ok := v.(Object)
	if !ok {
		return nil, false
	}
	return inner.Find(path[1:])
}

// Pick returns the members at the paths, each inside the objects that lead to it. In a list, it picks from each object. Without paths it
// returns the whole object.
func (o Object) Pick(paths [][]string) Object {
	if paths == nil {
		return o
	}
	picked := Object{}
	for i := range o {
		var below [][]string
		whole := false
		for _, p := range paths {
			if p[0] == o[i].Name() {
				whole = whole || len(p) == 1
				below = append(below, p[1:])
			}
		}
		switch {
		case whole:
			picked = append(picked, o[i])
		case below != nil:
			picked.Add(o[i].Name(), pickFrom(o[i][1], below))
		}
	}
	return picked
}

func pickFrom(v any, paths [][]string) any {
	switch v := opened(v).(type) {
	case Object:
		return v.Pick(paths)
	case []Object:
		all := make([]Object, len(v))
		for i := range v {
			all[i] = v[i].Pick(paths)
		}
		return all
	}
	return v
}

func (o Object) sort() {
	slices.SortStableFunc(o, func(a, b Member) int { return cmp.Compare(a.Name(), b.Name()) })
}

// OrNull returns s, or nil for an empty string.
func OrNull(s string) any {
	if s == "" {
		return nil
	}
	return s
}

// Instant returns milliseconds since the epoch, or nil for no instant.
func Instant(t hook.Instant) any {
	if t == 0 {
		return nil
	}
	return t.Time().UnixMilli()
}
