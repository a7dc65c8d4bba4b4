// Package definition defines the format of durable declarations: of vhosts and their contents, of users, of global parameters.
//
// A definition is an AMQP field table [AMQP 4.2.5.5], preceded by its length. Its field "op" says what was
// declared, changed or deleted. A vhost's definitions also have the field "vhost"; the other fields depend on op.
// Each package that writes definitions documents its own.
package definition

import (
	"fmt"
	"iter"

	"github.com/curfewmq/curfew/core/amqp"
)

const (
	fieldOp    = "op"
	fieldVHost = "vhost"
)

// Definition is a decoded definition.
type Definition struct {
	Op, VHost string // VHost is "" if the definition has none
	Size      int    // of the encoded definition, bytes
	Fields    amqp.Table
}

// New returns a definition to be encoded.
func New(op string, more ...amqp.Field) amqp.Table {
	return append(amqp.Table{{Key: fieldOp, Value: op}}, more...)
}

// Parse reads consecutive definitions. It stops at the first one that cannot be read.
func Parse(b []byte) iter.Seq2[*Definition, error] {
	return func(yield func(*Definition, error) bool) {
		for len(b) > 0 {
			d, rest, err := Next(b)
			if !yield(d, err) || err != nil {
				return
			}
			b = rest
		}
	}
}

// Next reads the first of consecutive definitions, and returns the bytes after it.
func Next(b []byte) (d *Definition, rest []byte, err error) {
	fields, n, err := amqp.ParseTable(b)
	if err != nil {
		return nil, nil, fmt.Errorf("definition: %w", err)
	}
	d = &Definition{Size: n, Fields: fields}
	Read(d, fieldOp, &d.Op, &err)
	if _, has := fields.Lookup(fieldVHost); has {
		Read(d, fieldVHost, &d.VHost, &err)
	}
	return d, b[n:], err
}

// Read reads a field into a variable, unless *err is set because an earlier field could not be read. It sets *err if this field is
// missing or has another type.
func Read[T any](d *Definition, key string, into *T, err *error) {
	if *err != nil {
		return
	}
	raw, ok := d.Fields.Lookup(key)
	if !ok {
		*err = d.Missing(key)
		return
	}
	if *into, ok = raw.(T); !ok {
		*err = fmt.Errorf("definition %q: %s is of type %s", d.Op, key, amqp.TypeName(raw))
	}
}

// Missing returns the error for a definition without a field.
func (d *Definition) Missing(key string) error {
	return fmt.Errorf("definition %q: %s is missing", d.Op, key)
}

// Unknown returns the error for a definition with an unknown op.
func (d *Definition) Unknown() error { return fmt.Errorf("definition %q: is unknown", d.Op) }
