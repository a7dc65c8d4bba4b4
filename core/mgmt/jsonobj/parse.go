package jsonobj

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"strings"
)

// Error is an error in the JSON that a client has sent.
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

// Pair returns an [Error] with a pair as its reason: a kind of error, and the value or key that has it.
func Pair(what, value string) error { return &Error{[]string{what, value}} }

// ErrNotJSON matches, with [errors.Is], every error of JSON that cannot be read at all. The text of such an error begins with this one's,
// and adds the place.
var ErrNotJSON = &Error{"not_json"}

// Is reports whether the error is [ErrNotJSON] with a position.
func (e *Error) Is(target error) bool {
	text, ok := e.Reason.(string)
	return ok && target == error(ErrNotJSON) && strings.HasPrefix(text, notJSON)
}

const notJSON = "not_json: "

// unreadable returns the error of JSON that cannot be read, or is of another kind, at an offset.
func unreadable(b []byte, offset int, why string) error {
	return &Error{notJSON + position(b, offset) + ": " + why}
}

// maxDepth limits how deep JSON may nest: a field table that goes that deep fits no frame.
const maxDepth = 32

// Parse reads one JSON value. Numbers are [json.Number].
func Parse(b []byte) (v any, err error) { return parse(b, Limits{Values: math.MaxInt}) }

func parse(b []byte, l Limits) (v any, err error) {
	if err := l.Check(b); err != nil {
		return nil, err
	}
	d := json.NewDecoder(bytes.NewReader(b))
	d.UseNumber()
	if err := d.Decode(&v); err != nil {
		return nil, broken(b, err)
	}
	rest := bytes.TrimLeft(b[d.InputOffset():], " \t\r\n")
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return nil, unreadable(b, len(b)-len(rest), "there is something after the end of the value")
	}
	return v, nil
}

// broken returns the error for one of the decoder.
func broken(b []byte, err error) error {
	if syntax, ok := errors.AsType[*json.SyntaxError](err); ok { // its offset is that behind the character
		return unreadable(b, int(syntax.Offset)-1, syntax.Error())
	}
	return unreadable(b, len(b), "it ends too early")
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

// Limits bound the memory for decoding a body. A decoded JSON value takes much more memory than its text, which may have two bytes.
type Limits struct {
	// Values limits the marks in the JSON: opening brackets, commas and colons.
	Values int
	// Memory reserves bytes for the decoded values; nil = nothing does. Its error refuses the body.
	Memory func(bytes int64) error
}

// MaxValues limits the marks in the JSON of a request without a file of definitions. A table of as many fields fits no frame.
const MaxValues = 128 << 10

// perValue is about the memory for each mark of JSON: {"":1} has three marks, and takes 730 bytes.
const perValue = 256

// Check refuses JSON that exceeds the limits. It decodes nothing.
func (l *Limits) Check(b []byte) error {
	deepest, marks := shape(b)
	switch {
	case deepest > maxDepth:
		return Errorf("JSON nests deeper than %d levels", maxDepth)
	case marks > l.Values:
		return Errorf("the JSON has more than %d values", l.Values)
	case l.Memory != nil:
		return l.Memory(int64(marks) * perValue)
	}
	return nil
}

// shape returns how deep brackets nest in JSON, and its number of marks.
func shape(b []byte) (deepest, marks int) {
	level, quoted := 0, false
	for i := 0; i < len(b); i++ {
		switch c := b[i]; {
		case quoted && c == '\\':
			i++
		case c == '"':
			quoted = !quoted
		case quoted:
		case c == '{' || c == '[':
			marks++
			level++
			deepest = max(deepest, level)
		case c == '}' || c == ']':
			level--
		case c == ',' || c == ':':
			marks++
		}
	}
	return deepest, marks
}
