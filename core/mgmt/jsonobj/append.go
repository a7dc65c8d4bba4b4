package jsonobj

import (
	"encoding/json"
	"math"
	"strconv"
	"strings"
	"unicode/utf8"
)

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
