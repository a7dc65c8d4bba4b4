// Package jsonobj is the JSON of the management API: objects that keep the order of their members, and a reader for the
// objects that clients send. It knows nothing of HTTP.
package jsonobj

import (
	"cmp"
	"encoding/json"
	"math"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

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

// MarshalJSON implements [json.Marshaler].
func (o Object) MarshalJSON() ([]byte, error) { return o.Append(nil), nil }

// Append appends the object as JSON.
func (o Object) Append(dst []byte) []byte {
	dst = append(dst, '{')
	for i := range o {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = append(appendString(dst, o[i].Name()), ':')
		dst = Append(dst, o[i][1])
	}
	return append(dst, '}')
}

// Append appends a value as JSON: one that an [Object] may have.
func Append(dst []byte, v any) []byte {
	switch v := v.(type) {
	case nil:
		return append(dst, "null"...)
	case bool:
		return strconv.AppendBool(dst, v)
	case string:
		return appendString(dst, v)
	case int:
		return strconv.AppendInt(dst, int64(v), 10)
	case int64:
		return strconv.AppendInt(dst, v, 10)
	case uint64:
		return strconv.AppendUint(dst, v, 10)
	case float64:
		return appendFloat(dst, v)
	case json.Number:
		return append(dst, v...)
	case json.RawMessage:
		return append(dst, v...)
	case Object:
		return v.Append(dst)
	case []Object:
		return appendList(dst, v)
	case []string:
		return appendList(dst, v)
	case []any:
		return appendList(dst, v)
	}
	panic("jsonobj: a value that no object may have") // a mistake of the caller's
}

func appendList[T any](dst []byte, list []T) []byte {
	dst = append(dst, '[')
	for i := range list {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = Append(dst, list[i])
	}
	return append(dst, ']')
}

// appendFloat always prints a fraction, so that readers which tell integers from floats see the same type every time. NaN and
// infinities, which JSON does not have, are null.
func appendFloat(dst []byte, f float64) []byte {
	if math.IsNaN(f) || math.IsInf(f, 0) {
		return append(dst, "null"...)
	}
	s := strconv.FormatFloat(f, 'g', -1, 64)
	dst = append(dst, s...)
	if !strings.ContainsAny(s, ".e") {
		dst = append(dst, ".0"...)
	}
	return dst
}

// appendString quotes a string. Bytes that are not UTF-8, which names in AMQP may have, become the replacement character.
func appendString(dst []byte, s string) []byte {
	const hex = "0123456789abcdef"
	dst = append(dst, '"')
	for i := 0; i < len(s); {
		if c := s[i]; c < utf8.RuneSelf {
			i++
			switch {
			case c == '"' || c == '\\':
				dst = append(dst, '\\', c)
			case c == '\n':
				dst = append(dst, '\\', 'n')
			case c < ' ' || c == 0x7f:
				dst = append(dst, '\\', 'u', '0', '0', hex[c>>4], hex[c&15])
			default:
				dst = append(dst, c)
			}
			continue
		}
		r, n := utf8.DecodeRuneInString(s[i:])
		dst = utf8.AppendRune(dst, r)
		i += n
	}
	return append(dst, '"')
}
