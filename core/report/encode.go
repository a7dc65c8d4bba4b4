package report

import (
	"bytes"
	"encoding/gob"
	"encoding/json"
	"errors"
	"io"
	"iter"

	"github.com/curfewmq/curfew/core/amqp"
	"github.com/curfewmq/curfew/policies"
	"github.com/curfewmq/curfew/sdk/hook"
)

// Version and Type are those of rows as they are sent. A node that does not know the version answers in JSON.
//
// Rows are a stream of package gob, which leaves out zeros and lets a node of another version lack a field or have one more. So fields keep
// their names and types; otherwise the version rises.
const (
	Version = "1"
	Type    = "application/x-curfew-rows"
)

// batched is how many rows are sent together.
const batched = 64

// batch is rows that are sent together.
type batch[T any] struct {
	Rows []sent[T]
	Last bool // no batch follows
}

// sent is a row as it is sent.
type sent[T any] struct {
	Keys
	N     int
	Value T
}

// Write writes rows, whose values are of type T or, for rows that stand for many, nil.
func Write[T any](w io.Writer, rows iter.Seq[Row]) error {
	out, b := gob.NewEncoder(w), batch[T]{}
	for r := range rows {
		if len(b.Rows) == batched {
			if err := out.Encode(&b); err != nil {
				return err
			}
			b.Rows = b.Rows[:0]
		}
		value, _ := r.Value.(T)
		b.Rows = append(b.Rows, sent[T]{r.Keys, r.N, value})
	}
	b.Last = true
	return out.Encode(&b)
}

// Read returns a function that reads the next row that [Write] has written; nil at the end. Values are of type T.
func Read[T any](r io.Reader) func() (*Row, error) {
	in, b := gob.NewDecoder(r), batch[T]{}
	return func() (*Row, error) {
		for len(b.Rows) == 0 {
			if b.Last {
				return nil, nil //nolint:nilnil // the end
			}
			if err := in.Decode(&b); err != nil {
				if errors.Is(err, io.EOF) { // the last batch is missing
					err = io.ErrUnexpectedEOF
				}
				return nil, err
			}
		}
		s := b.Rows[0]
		b.Rows = b.Rows[1:]
		if len(b.Rows) == 0 {
			b.Rows = nil // the next batch must find no values
		}
		return &Row{s.Keys, s.N, s.Value}, nil
	}
}

// Args are the arguments of a declaration.
type Args hook.Args

// GobEncode implements [gob.GobEncoder].
func (a Args) GobEncode() ([]byte, error) {
	t := make(amqp.Table, len(a))
	for i := range a {
		t[i] = amqp.Field{Key: a[i].Name, Value: a[i].Value}
	}
	return amqp.AppendTable(nil, t), nil
}

// GobDecode implements [gob.GobDecoder].
func (a *Args) GobDecode(b []byte) error {
	t, _, err := amqp.ParseTable(b)
	*a = make(Args, len(t))
	for i := range t {
		(*a)[i].Name, (*a)[i].Value = t[i].Key, t[i].Value
	}
	return err
}

// Table is a field table.
type Table amqp.Table

// GobEncode implements [gob.GobEncoder].
func (t Table) GobEncode() ([]byte, error) { return amqp.AppendTable(nil, amqp.Table(t)), nil }

// GobDecode implements [gob.GobDecoder].
func (t *Table) GobDecode(b []byte) error {
	table, _, err := amqp.ParseTable(b)
	*t = Table(table)
	return err
}

// Definition is the settings of policies.
type Definition policies.Definition

// GobEncode implements [gob.GobEncoder].
func (d Definition) GobEncode() ([]byte, error) { return json.Marshal([]policies.Entry(d)) }

// GobDecode implements [gob.GobDecoder].
func (d *Definition) GobDecode(b []byte) error {
	in := json.NewDecoder(bytes.NewReader(b))
	in.UseNumber()
	return in.Decode((*[]policies.Entry)(d))
}
