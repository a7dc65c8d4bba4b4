package mgmt

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"math"
	"net/http"
	"strconv"
	"strings"

	"github.com/curfewmq/curfew/sdk/hook"
)

// maxDepth is how deep JSON may nest: a field table that goes that deep fits no frame.
const maxDepth = 32

// maxSmallBody bounds the bodies of requests that carry neither a message nor definitions.
const maxSmallBody = 1 << 20

// fields is the JSON object that a request came with.
type fields map[string]any

// body reads the object that the request carries. No body is an empty object.
func (c *request) body() (fields, error) {
	b, err := c.read(min(maxSmallBody, c.api.BodyMax))
	if err != nil {
		return nil, err
	}
	return parseObject(b)
}

func (c *request) read(limit int64) ([]byte, error) {
	return io.ReadAll(http.MaxBytesReader(c.w, c.r.Body, limit))
}

func parseObject(b []byte) (fields, error) {
	if len(bytes.TrimSpace(b)) == 0 {
		return fields{}, nil
	}
	v, err := parseJSON(b)
	if err != nil {
		return nil, err
	}
	o, ok := v.(map[string]any)
	if !ok {
		return nil, errNotJSON
	}
	return o, nil
}

// parseJSON reads one JSON value. Numbers are [json.Number].
func parseJSON(b []byte) (v any, err error) {
	if nesting(b) > maxDepth {
		return nil, badRequest("JSON nests deeper than %d levels", maxDepth)
	}
	d := json.NewDecoder(bytes.NewReader(b))
	d.UseNumber()
	if err := d.Decode(&v); err != nil {
		return nil, errNotJSON
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return nil, errNotJSON
	}
	return v, nil
}

// nesting is how deep brackets nest in JSON.
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

// need refuses an object that lacks keys, in RabbitMQ's words.
func (f fields) need(keys ...string) error {
	var missing []string
	for _, k := range keys {
		if _, ok := f[k]; !ok {
			missing = append(missing, "{key_missing,"+k+"}")
		}
	}
	if missing == nil {
		return nil
	}
	return badRequest("[%s]", strings.Join(missing, ","))
}

// text returns a string, "" if the key is absent or null.
func (f fields) text(key string) (string, error) {
	switch v := f[key].(type) {
	case nil:
		return "", nil
	case string:
		return v, nil
	}
	return "", badTerm("not_string", key)
}

// name returns a string that fits where AMQP has short strings.
func (f fields) name(key string) (string, error) {
	s, err := f.text(key)
	if err == nil {
		err = checkName(key, s)
	}
	return s, err
}

// maxName is what a short string of AMQP holds, bytes.
const maxName = 255

func checkName(key, s string) error {
	if len(s) > maxName {
		return badRequest("%s has %d bytes: at most %d are allowed", key, len(s), maxName)
	}
	return nil
}

// flag returns a truth value, which may also be written as a string.
func (f fields) flag(key string, absent bool) (bool, error) {
	switch v := f[key].(type) {
	case nil:
		return absent, nil
	case bool:
		return v, nil
	case string:
		if b, err := strconv.ParseBool(v); err == nil && (v == "true" || v == "false") {
			return b, nil
		}
		return false, badTerm("not_boolean", v)
	}
	return false, badTerm("not_boolean", key)
}

// whole returns an integer.
func (f fields) whole(key string) (int64, error) {
	switch v := f[key].(type) {
	case json.Number:
		if n, ok := integer(v); ok {
			return n, nil
		}
		return 0, badTerm("not_integer", v.String())
	case string:
		n, err := strconv.ParseInt(v, 10, 64)
		if err == nil {
			return n, nil
		}
		return 0, badTerm("not_integer", v)
	}
	return 0, badTerm("not_integer", key)
}

// integer is a number without a fraction, however it is written.
func integer(n json.Number) (int64, bool) {
	if i, err := n.Int64(); err == nil {
		return i, true
	}
	f, err := n.Float64()
	if err != nil || f != math.Trunc(f) || math.Abs(f) > 1<<53 {
		return 0, false
	}
	return int64(f), true
}

// limit returns a limit; absent and negative mean none.
func (f fields) limit(key string) (hook.Limit, error) {
	if f[key] == nil {
		return 0, nil
	}
	n, err := f.whole(key)
	if err != nil || n < 0 {
		return 0, err
	}
	return hook.LimitOf(n), nil
}

// object returns an object; absent, null and the empty list, which is what some languages make of an empty map, are empty.
func (f fields) object(key string) (fields, error) {
	if f[key] == nil {
		return fields{}, nil
	}
	if o, ok := asObject(f[key]).(map[string]any); ok {
		return o, nil
	}
	return nil, badTerm("not_object", key)
}

// asObject makes an object of a list of pairs, [["max-length",1000]], which is how RabbitMQ's own rabbitmqctl exports some.
// Anything else is left as it is.
func asObject(v any) any {
	list, ok := v.([]any)
	if !ok {
		return v
	}
	o := make(map[string]any, len(list))
	for _, it := range list {
		pair, _ := it.([]any)
		if len(pair) != 2 {
			return v
		}
		name, ok := pair[0].(string)
		if !ok {
			return v
		}
		o[name] = pair[1]
	}
	return o
}
