package consistenthash

import (
	"reflect"
	"strconv"

	"github.com/curfewmq/curfew/sdk/hook"
)

// source is the part of a message that decides where it goes: a header, a property, or otherwise the routing key.
type source struct {
	header   string
	part     hook.Part
	byHeader bool
	byPart   bool
}

// properties are the values of hash-property.
var properties = map[string]hook.Part{
	"correlation_id": hook.PartCorrelationID,
	"message_id":     hook.PartMessageID,
	"timestamp":      hook.PartTimestamp,
}

// newSource reads arguments that have passed the checks.
func newSource(x *hook.Exchange) source {
	for _, name := range []string{argHeader, argHashOn} {
		if v, ok := x.Args.Lookup(name); ok {
			header, _ := v.(string)
			return source{header: header, byHeader: true}
		}
	}
	v, _ := x.Args.Lookup(argProperty)
	property, _ := v.(string)
	part, ok := properties[property]
	return source{part: part, byPart: ok}
}

// hash hashes that part of m. A message without it is treated as if it were empty.
func (s *source) hash(m *hook.Publishing) uint64 {
	switch {
	case s.byHeader:
		return s.hashHeader(m)
	case s.byPart:
		return hashKey(m.Part(s.part))
	}
	return hashKey(m.Key)
}

// hashHeader hashes a header's value. A number counts as its digits, whatever its type, because clients choose different types for the
// same number.
func (s *source) hashHeader(m *hook.Publishing) uint64 {
	if text, ok := m.HeaderText(s.header); ok {
		return hashKey(text)
	}
	if n, ok := m.HeaderInt(s.header); ok {
		var digits [20]byte
		return hashKey(strconv.AppendInt(digits[:0], n, 10))
	}
	v, ok := m.Header(s.header)
	if !ok || v == nil {
		return hashKey("")
	}
	return hashKey(appendValue(nil, reflect.ValueOf(v)))
}

// appendValue appends a value that is neither a text nor an integer: a fraction, or a compound value, part by part.
func appendValue(b []byte, v reflect.Value) []byte {
	switch v.Kind() {
	case reflect.Bool:
		return strconv.AppendBool(b, v.Bool())
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		return strconv.AppendInt(b, v.Int(), 10)
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		return strconv.AppendUint(b, v.Uint(), 10)
	case reflect.Float32, reflect.Float64:
		return strconv.AppendFloat(b, v.Float(), 'g', -1, 64)
	case reflect.String:
		return strconv.AppendQuote(b, v.String())
	case reflect.Slice, reflect.Array:
		b = append(b, '[')
		for i := range v.Len() {
			b = append(appendValue(b, v.Index(i)), ',')
		}
		return append(b, ']')
	case reflect.Struct:
		b = append(b, '{')
		for _, field := range v.Fields() {
			b = append(appendValue(b, field), ',')
		}
		return append(b, '}')
	case reflect.Interface, reflect.Pointer:
		if v.IsNil() {
			return append(b, '_')
		}
		return appendValue(b, v.Elem())
	}
	return b
}
