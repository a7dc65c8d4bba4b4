package jsonobj

import (
	"encoding/json"
	"maps"
	"slices"
	"strconv"

	"github.com/curfewmq/curfew/core/amqp"
	"github.com/curfewmq/curfew/sdk/hook"
)

// OfTable returns a field table as an object, sorted by name.
func OfTable(t amqp.Table) Object {
	o := make(Object, len(t))
	for i, f := range t {
		o[i] = Member{f.Key, ofField(f.Value)}
	}
	o.sort()
	return o
}

// OfArgs returns the arguments of a declaration as an object, sorted by name.
func OfArgs(args hook.Args) Object {
	o := make(Object, len(args))
	for i, a := range args {
		o[i] = Member{a.Name, ofField(a.Value)}
	}
	o.sort()
	return o
}

func ofField(v any) any {
	if n, ok := amqp.Integer(v); ok {
		return n
	}
	switch v := v.(type) {
	case bool, string, float64:
		return v
	case float32:
		return float64(v)
	case []byte:
		return string(v)
	case amqp.Timestamp:
		return uint64(v)
	case amqp.Decimal:
		return strconv.FormatInt(int64(v.Value), 10) + "e-" + strconv.Itoa(int(v.Scale))
	case amqp.Array:
		all := make([]any, len(v))
		for i := range v {
			all[i] = ofField(v[i])
		}
		return all
	case amqp.Table:
		return OfTable(v)
	}
	return nil
}

// Table returns an inner object as a field table, sorted by name; nil if it is empty.
func (r *Reader) Table(key string) amqp.Table {
	t, err := tableOf(r.Object(key).members)
	r.Fail(err)
	if len(t) == 0 {
		return nil
	}
	return t
}

func tableOf(members map[string]any) (amqp.Table, error) {
	t := make(amqp.Table, 0, len(members))
	for _, name := range slices.Sorted(maps.Keys(members)) {
		if err := CheckName("an argument's name", name); err != nil {
			return nil, err
		}
		v, err := fieldOf(members[name])
		if err != nil {
			return nil, Errorf("argument %q: %v", name, err)
		}
		t = append(t, amqp.Field{Key: name, Value: v})
	}
	return t, nil
}

// fieldOf returns a JSON value as a field table has it. Whole numbers are signed 64-bit integers, as RabbitMQ makes them.
func fieldOf(v any) (any, error) {
	switch v := v.(type) {
	case json.Number:
		if n, ok := integer(v); ok {
			return n, nil
		}
		return v.Float64()
	case []any:
		a := make(amqp.Array, len(v))
		var err error
		for i := range v {
			if a[i], err = fieldOf(v[i]); err != nil {
				return nil, err
			}
		}
		return a, nil
	case map[string]any:
		return tableOf(v)
	}
	return v, nil // null, a boolean or a string
}
