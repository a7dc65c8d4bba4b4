package policies

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"
)

// Limits of a policy's JSON.
const (
	maxBody  = 64 << 10 // bytes
	maxDepth = 16       // of nested arrays and objects
)

// decode decodes a JSON object without loss: integers are int64, or digits if they do not fit, and duplicate keys are
// refused. As in RabbitMQ, an empty body and null are empty objects.
func decode(body []byte) (map[string]any, error) {
	body = bytes.TrimSpace(body)
	switch {
	case len(body) == 0 || string(body) == "null":
		return nil, nil
	case len(body) > maxBody:
		return nil, invalidLine(fmt.Sprintf("policy must not exceed %d bytes, has %d", maxBody, len(body)))
	case !utf8.Valid(body):
		return nil, fmt.Errorf("%w: not UTF-8", ErrNotJSON)
	}
	if err := checkSyntax(body); err != nil {
		return nil, err
	}
	d := json.NewDecoder(bytes.NewReader(body))
	d.UseNumber()
	v, err := decodeValue(d, maxDepth)
	if err != nil {
		return nil, err
	}
	members, ok := v.(map[string]any)
	if !ok {
		return nil, fmt.Errorf("%w: %s is no object", ErrNotJSON, term(v))
	}
	return members, nil
}

// checkSyntax checks the whole body. Reading its tokens alone would accept some invalid JSON.
func checkSyntax(body []byte) error {
	var whole json.RawMessage
	err := json.Unmarshal(body, &whole)
	if syntax, ok := errors.AsType[*json.SyntaxError](err); ok {
		return fmt.Errorf("%w: at byte %d: %w", ErrNotJSON, syntax.Offset, err)
	}
	return err
}

func decodeValue(d *json.Decoder, depth int) (any, error) {
	token, err := d.Token()
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrNotJSON, err)
	}
	switch t := token.(type) {
	case json.Number:
		return decodeNumber(string(t))
	case json.Delim:
		if depth == 0 {
			return nil, invalidLine(fmt.Sprintf("policy must not nest deeper than %d", maxDepth))
		}
		if t == '{' {
			return decodeObject(d, depth-1)
		}
		return decodeArray(d, depth-1)
	}
	return token, nil
}

func decodeObject(d *json.Decoder, depth int) (any, error) {
	object := map[string]any{}
	for d.More() {
		token, err := d.Token()
		if err != nil {
			return nil, fmt.Errorf("%w: %w", ErrNotJSON, err)
		}
		key, _ := token.(string) // checkSyntax has made sure of that
		if _, twice := object[key]; twice {
			return nil, invalidLine("[" + term(key) + "] duplicate keys not allowed")
		}
		if object[key], err = decodeValue(d, depth); err != nil {
			return nil, err
		}
	}
	_, err := d.Token()
	return object, err
}

func decodeArray(d *json.Decoder, depth int) (any, error) {
	array := []any{}
	for d.More() {
		v, err := decodeValue(d, depth)
		if err != nil {
			return nil, err
		}
		array = append(array, v)
	}
	_, err := d.Token()
	return array, err
}

func decodeNumber(n string) (any, error) {
	if !strings.ContainsAny(n, ".eE") {
		i, err := strconv.ParseInt(n, 10, 64)
		if err != nil {
			return digits(n), nil
		}
		return i, nil
	}
	f, err := strconv.ParseFloat(n, 64)
	if err != nil {
		return nil, fmt.Errorf("%w: number %s is out of range", ErrNotJSON, shorten(n))
	}
	return f, nil
}
