package policies

import (
	"bytes"
	"encoding/json"
	"maps"
	"math"
	"reflect"
	"slices"
	"strconv"
	"strings"
)

// Entry is one setting of a definition. Its value is int64, float64, string, bool, nil, []any or map[string]any.
type Entry struct {
	Key   string
	Value any
}

// Definition has a policy's settings, sorted by key, each key once. RabbitMQ lists and exports them in this order.
type Definition []Entry

// newDefinition returns the definition with these settings. It does not copy slices and maps.
func newDefinition(settings map[string]any) Definition {
	d := make(Definition, 0, len(settings))
	for _, key := range slices.Sorted(maps.Keys(settings)) {
		d = append(d, Entry{Key: key, Value: settings[key]})
	}
	return d
}

func (d Definition) index(key string) int {
	return slices.IndexFunc(d, func(e Entry) bool { return e.Key == key })
}

func (d Definition) equal(o Definition) bool {
	return slices.EqualFunc(d, o, func(a, b Entry) bool {
		return a.Key == b.Key && reflect.DeepEqual(a.Value, b.Value)
	})
}

// MarshalJSON writes the definition as an object.
func (d Definition) MarshalJSON() ([]byte, error) { return d.append(nil), nil }

func (d Definition) append(b []byte) []byte {
	b = append(b, '{')
	for i, e := range d {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(appendString(b, e.Key), ':')
		b = appendJSON(b, e.Value)
	}
	return append(b, '}')
}

// MarshalJSON writes the policy for [Rules.Parse] and [Rules.Restore].
func (p *Policy) MarshalJSON() ([]byte, error) {
	b := appendString([]byte(`{"name":`), p.Name)
	b = appendString(append(b, `,"pattern":`...), p.Pattern)
	b = appendString(append(b, `,"apply-to":`...), p.ApplyTo)
	b = p.Definition.append(append(b, `,"definition":`...))
	b = strconv.AppendInt(append(b, `,"priority":`...), int64(p.Priority), 10)
	return append(b, '}'), nil
}

// appendJSON writes a value so that integers and floats stay distinct, unlike encoding/json: 1000.0 is read as a float.
func appendJSON(b []byte, v any) []byte {
	switch v := v.(type) {
	case int64:
		return strconv.AppendInt(b, v, 10)
	case float64:
		return appendFloat(b, v)
	case string:
		return appendString(b, v)
	case bool:
		return strconv.AppendBool(b, v)
	case []any:
		return appendArray(b, v)
	case map[string]any:
		return newDefinition(v).append(b)
	}
	return append(b, "null"...)
}

func appendArray(b []byte, list []any) []byte {
	b = append(b, '[')
	for i, v := range list {
		if i > 0 {
			b = append(b, ',')
		}
		b = appendJSON(b, v)
	}
	return append(b, ']')
}

// appendFloat writes a float so that it is read as a float. Parsed values are never infinite, which JSON could not express.
func appendFloat(b []byte, f float64) []byte {
	if math.IsInf(f, 0) || math.IsNaN(f) {
		return append(b, "null"...)
	}
	text := strconv.FormatFloat(f, 'g', -1, 64)
	if !strings.ContainsAny(text, ".e") {
		text += ".0"
	}
	return append(b, text...)
}

func appendString(b []byte, s string) []byte {
	var buf bytes.Buffer
	e := json.NewEncoder(&buf)
	e.SetEscapeHTML(false)
	_ = e.Encode(s) // a string always encodes
	return append(b, bytes.TrimSuffix(buf.Bytes(), []byte{'\n'})...)
}
