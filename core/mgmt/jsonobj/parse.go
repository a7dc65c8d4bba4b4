package jsonobj

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
)

// Error says what is wrong with the JSON that a client has sent.
type Error struct {
	Reason any // a string, or a []string where RabbitMQ prints a pair
}

func (e *Error) Error() string { return "bad_request: " + e.Text() }

// Text returns the reason in one line.
func (e *Error) Text() string {
	if pair, ok := e.Reason.([]string); ok {
		return pair[0] + ": " + pair[1]
	}
	return fmt.Sprint(e.Reason)
}

// Errorf returns an [Error] whose reason is a text.
func Errorf(layout string, args ...any) error { return &Error{fmt.Sprintf(layout, args...)} }

// Pair returns an [Error] whose reason is a pair: what is wrong, and with what.
func Pair(what, value string) error { return &Error{[]string{what, value}} }

// ErrNotJSON is the [Error] of what cannot be read at all.
var ErrNotJSON = &Error{"not_json"}

// maxDepth limits how deep JSON may nest: a field table that goes that deep fits no frame.
const maxDepth = 32

// Parse reads one JSON value. Numbers are [json.Number].
func Parse(b []byte) (v any, err error) {
	if nesting(b) > maxDepth {
		return nil, Errorf("JSON nests deeper than %d levels", maxDepth)
	}
	d := json.NewDecoder(bytes.NewReader(b))
	d.UseNumber()
	if err := d.Decode(&v); err != nil {
		return nil, ErrNotJSON
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return nil, ErrNotJSON
	}
	return v, nil
}

// nesting returns how deep brackets nest in JSON.
func nesting(b []byte) (deepest int) {
	level, quoted := 0, false
	for i := 0; i < len(b); i++ {
		switch c := b[i]; {
		case quoted && c == '\\':
			i++
		case c == '"':
			quoted = !quoted
		case quoted:
		case c == '{' || c == '[':
			level++
			deepest = max(deepest, level)
		case c == '}' || c == ']':
			level--
		}
	}
	return deepest
}

// FromParsed returns a value of [Parse] as one that an [Object] may have: objects are sorted by name.
func FromParsed(v any) any {
	switch v := v.(type) {
	case map[string]any:
		o := make(Object, 0, len(v))
		for name, it := range v {
			o.Add(name, FromParsed(it))
		}
		o.sort()
		return o
	case []any:
		all := make([]any, len(v))
		for i := range v {
			all[i] = FromParsed(v[i])
		}
		return all
	}
	return v
}

// Marshal returns the JSON of a value of [Parse].
func Marshal(v any) json.RawMessage {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err) // it was read from JSON
	}
	return b
}
