package live

import (
	"bytes"
	"math"
	"slices"

	"github.com/curfewmq/curfew/core/mgmt/jsonobj"
)

// stripped returns an object without its null members, at any depth of objects: in a change null means that a member is gone. A table may
// have several members with one name; of these the last one counts, as for readers of JSON.
func stripped(o object) object {
	kept := make(object, 0, len(o))
	for i, m := range o {
		if i+1 < len(o) && o[i+1].Name() == m.Name() || isNull(m[1]) {
			continue
		}
		if inner, ok := m[1].(object); ok {
			m[1] = stripped(inner)
		}
		kept = append(kept, m)
	}
	return kept
}

// isNull reports whether a value is null in JSON: JSON has no number for infinity and NaN.
func isNull(v any) bool {
	f, ok := v.(float64)
	return v == nil || ok && (math.IsNaN(f) || math.IsInf(f, 0))
}

// change returns a JSON merge patch [RFC 7396] that turns one state into the other; it is empty if they are equal. Neither state has null
// members.
func change(from, to object) object {
	changed := object{}
	before := membersOf(from)
	for i := range to {
		m := &to[i]
		was, ok := before.value(i, m.Name())
		if !ok {
			changed = append(changed, *m)
			continue
		}
		a, isObject := was.(object)
		b, areObjects := m[1].(object)
		if isObject && areObjects {
			if inner := change(a, b); len(inner) > 0 {
				changed = append(changed, member{m[0], inner})
			}
			continue
		}
		if !equal(was, m[1]) {
			changed = append(changed, *m)
		}
	}
	after := membersOf(to)
	for i := range from {
		if _, ok := after.value(i, from[i].Name()); !ok {
			changed = append(changed, member{from[i][0], nil})
		}
	}
	return changed
}

// members finds the members of an object. Most are at the same place as in the other object.
type members struct {
	object object
	byName map[string]any // nil if there are few
}

// few is the number of members up to which they are found by looking through them.
const few = 40

func membersOf(o object) members {
	m := members{object: o}
	if len(o) > few {
		m.byName = make(map[string]any, len(o))
		for i := range o {
			m.byName[o[i].Name()] = o[i][1]
		}
	}
	return m
}

func (m *members) value(near int, name string) (any, bool) {
	if near < len(m.object) && m.object[near].Name() == name {
		return m.object[near][1], true
	}
	if m.byName == nil {
		return m.object.Value(name)
	}
	v, ok := m.byName[name]
	return v, ok
}

// equal reports whether two values are the same JSON.
func equal(a, b any) bool {
	switch a := a.(type) {
	case nil, bool, string, int, int64, uint64, float64:
		return a == b
	case object:
		b, ok := b.(object)
		return ok && slices.EqualFunc(a, b, func(x, y member) bool { return x.Name() == y.Name() && equal(x[1], y[1]) })
	case []object:
		b, ok := b.([]object)
		return ok && slices.EqualFunc(a, b, func(x, y object) bool { return equal(x, y) })
	case []string:
		b, ok := b.([]string)
		return ok && slices.Equal(a, b)
	}
	return bytes.Equal(jsonobj.Append(nil, a), jsonobj.Append(nil, b))
}
