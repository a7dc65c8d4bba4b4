package jsonobj

import (
	"bytes"
	"encoding/json"
	"errors"
)

// ErrNotObject is the error of a value that is no object, or nests too deep.
var ErrNotObject = errors.New("not a JSON object")

// ParseObject reads one JSON object and keeps the order of its members. Its values are like those of [Parse], with objects as [Object] and
// lists of objects as []Object.
func ParseObject(b []byte) (Object, error) {
	if deepest, _ := shape(b); deepest > maxDepth || !json.Valid(b) {
		return nil, ErrNotObject
	}
	d := json.NewDecoder(bytes.NewReader(b))
	d.UseNumber()
	v := ordered(d)
	o, ok := v.(Object)
	if !ok {
		return nil, ErrNotObject
	}
	return o, nil
}

// ParseItems splits a JSON list into its items, which it does not read: use [ParseObject].
func ParseItems(b []byte) (items []json.RawMessage, err error) {
	if deepest, _ := shape(b); deepest > maxDepth {
		return nil, ErrNotObject
	}
	if err := json.Unmarshal(b, &items); err != nil {
		return nil, err
	}
	for _, it := range items {
		if len(it) == 0 || it[0] != '{' {
			return nil, ErrNotObject
		}
	}
	return items, nil
}

// opened returns a value with its members, if it is JSON that was not read yet.
func opened(v any) any {
	raw, ok := v.(json.RawMessage)
	if !ok {
		return v
	}
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()
	return ordered(d)
}

// ordered reads the next value of valid JSON.
func ordered(d *json.Decoder) any {
	t, err := d.Token()
	if err != nil {
		return nil // the JSON is valid
	}
	switch t {
	case json.Delim('{'):
		o := Object{}
		for d.More() {
			name, _ := d.Token()
			o.Add(name.(string), ordered(d))
		}
		_, _ = d.Token() // the end
		return o
	case json.Delim('['):
		return orderedList(d)
	}
	return t
}

// orderedList reads the rest of a list. One of objects alone is an []Object, from which members can be picked.
func orderedList(d *json.Decoder) any {
	all, objects := []any{}, []Object{}
	for d.More() {
		v := ordered(d)
		all = append(all, v)
		if o, ok := v.(Object); ok {
			objects = append(objects, o)
		}
	}
	_, _ = d.Token() // the end
	if len(all) > 0 && len(objects) == len(all) {
		return objects
	}
	return all
}
