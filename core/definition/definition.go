// Package definition is the format of durable declarations: of vhosts and what is in them, of users, of global parameters.
//
// A definition is a field table as AMQP has them [AMQP 4.2.5.5], with its length in front. Its field "op" says what was
// declared, changed or deleted. A vhost's definitions also have the field "vhost"; which other fields there are depends on op.
// The packages that write definitions document theirs.
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

// Definition is one definition that was read back.
type Definition struct {
	Op, VHost string // VHost is "" if the definition has none
	Size      int    // of the encoded definition, bytes
	Fields    amqp.Table
}

// New returns a definition to be encoded.
func New(op string, more ...amqp.Field) amqp.Table {
	return append(amqp.Table{{Key: fieldOp, Value: op}}, more...)
}

// Parse reads definitions that were written one after another. It stops at the first that cannot be read.
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

// Next reads the first of definitions that were written one after another, and returns what follows it.
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

// Read reads a field into a variable, unless *err says that an earlier one could not be read. It sets *err if this one is
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

// Missing is the error of a definition without a field.
func (d *Definition) Missing(key string) error {
	return fmt.Errorf("definition %q: %s is missing", d.Op, key)
}

// Unknown is the error of a definition with an unknown op.
func (d *Definition) Unknown() error { return fmt.Errorf("definition %q: is unknown", d.Op) }
