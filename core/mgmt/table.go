package mgmt

import (
	"encoding/json"
	"maps"
	"slices"
	"strconv"

	"github.com/curfewmq/curfew/core/amqp"
	"github.com/curfewmq/curfew/sdk/hook"
)

// tableObject shows a field table, sorted by name.
func tableObject(t amqp.Table) object {
	o := make(object, len(t))
	for i, f := range t {
		o[i] = member{f.Key, tableValue(f.Value)}
	}
	o.sort()
	return o
}

// argsObject shows the arguments of a declaration.
func argsObject(args hook.Args) object {
	o := make(object, len(args))
	for i, a := range args {
		o[i] = member{a.Name, tableValue(a.Value)}
	}
	o.sort()
	return o
}

func (o object) sort() {
	slices.SortStableFunc(o, func(a, b member) int {
		switch {
		case a.name < b.name:
			return -1
		case a.name > b.name:
			return 1
		}
		return 0
	})
}

// tableValue shows a value of a field table.
func tableValue(v any) any {
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
			all[i] = tableValue(v[i])
		}
		return all
	case amqp.Table:
		return tableObject(v)
	}
	return nil
}

// table makes a field table of a JSON object, sorted by name.
func (f fields) table() (amqp.Table, error) {
	t := make(amqp.Table, 0, len(f))
	for _, name := range slices.Sorted(maps.Keys(f)) {
		if err := checkName("an argument's name", name); err != nil {
			return nil, err
		}
		v, err := fieldValue(f[name])
		if err != nil {
			return nil, badRequest("argument %q: %v", name, err)
		}
		t = append(t, amqp.Field{Key: name, Value: v})
	}
	return t, nil
}

// fieldValue is a JSON value as a field table has it: whole numbers are signed 64-bit integers, as RabbitMQ makes them.
func fieldValue(v any) (any, error) {
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
			if a[i], err = fieldValue(v[i]); err != nil {
				return nil, err
			}
		}
		return a, nil
	case map[string]any:
		return fields(v).table()
	}
	return v, nil // null, a truth value or a string
}

// arguments returns the member "arguments" as a field table.
func (f fields) arguments() (amqp.Table, error) {
	o, err := f.object("arguments")
	if err != nil {
		return nil, err
	}
	t, err := o.table()
	if len(t) == 0 {
		return nil, err
	}
	return t, err
}
