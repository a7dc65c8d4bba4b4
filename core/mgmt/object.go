package mgmt

import (
	"encoding/json"
	"math"
	"strconv"
	"strings"
	"unicode/utf8"
)

// object is a JSON object with its members in order. Values are nil, bool, string, int, int64, uint64, float64, object,
// []object, []string, []any, json.Number and json.RawMessage; the last two must be valid.
type object []member

type member struct {
	name  string
	value any
}

// add appends members given as name, value, name, value.
func (o *object) add(name string, value any) { *o = append(*o, member{name, value}) }

// at returns the value of a member.
func (o object) at(name string) (any, bool) {
	for i := range o {
		if o[i].name == name {
			return o[i].value, true
		}
	}
	return nil, false
}

// find returns what lies at a path of member names.
func (o object) find(path []string) (any, bool) {
	v, ok := o.at(path[0])
	if !ok || len(path) == 1 {
		return v, ok
	}
	inner, ok := v.(object)
	if !ok {
		return nil, false
	}
	return inner.find(path[1:])
}

// pick returns the members that lie at the paths, with what leads to them. Objects in lists are picked from one by one.
func (o object) pick(paths [][]string) object {
	picked := object{}
	for i := range o {
		var below [][]string
		whole := false
		for _, p := range paths {
			if p[0] != o[i].name {
				continue
			}
			whole = whole || len(p) == 1
			below = append(below, p[1:])
		}
		switch {
		case whole:
			picked = append(picked, o[i])
		case below != nil:
			picked.add(o[i].name, pickFrom(o[i].value, below))
		}
	}
	return picked
}

func pickFrom(v any, paths [][]string) any {
	switch v := v.(type) {
	case object:
		return v.pick(paths)
	case []object:
		all := make([]object, len(v))
		for i := range v {
			all[i] = v[i].pick(paths)
		}
		return all
	}
	return v
}

// MarshalJSON implements [json.Marshaler].
func (o object) MarshalJSON() ([]byte, error) { return appendJSON(nil, o), nil }

// appendJSON appends a value that an object may have.
func appendJSON(dst []byte, v any) []byte {
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
	case object:
		return appendObject(dst, v)
	case []object:
		return appendList(dst, v)
	case []string:
		return appendList(dst, v)
	case []any:
		return appendList(dst, v)
	}
	panic("mgmt: a value that no object may have") // a mistake in this package
}

func appendObject(dst []byte, o object) []byte {
	dst = append(dst, '{')
	for i := range o {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = appendString(dst, o[i].name)
		dst = append(dst, ':')
		dst = appendJSON(dst, o[i].value)
	}
	return append(dst, '}')
}

func appendList[T any](dst []byte, list []T) []byte {
	dst = append(dst, '[')
	for i := range list {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = appendJSON(dst, list[i])
	}
	return append(dst, ']')
}

// appendFloat prints a number as one that has a fraction, so that readers which tell the two apart always see the same. What
// JSON has no word for is null.
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
