// Package definition defines the format of durable declarations: of vhosts and their contents, of users, of global parameters.
//
// A definition is an AMQP field table [AMQP 4.2.5.5], preceded by its length. Its field "op" says what was
// declared, changed or deleted. A vhost's definitions also have the field "vhost"; the other fields depend on op.
// Each package that writes definitions documents its own.
package definition

import (
	"fmt"
	"iter"
	"sync"

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

// Lock is a mutex for changes. Its holder waits until the changes are durable, on a disk or
// at other nodes. Goroutines get the lock in the order in which they asked for it. Tests
// that simulate time can wait for a Lock, but not for a [sync.Mutex], where time would
// stand still. The zero value is unlocked.
type Lock struct {
	mu      sync.Mutex // guards the fields below
	held    bool
	waiting []chan struct{} // closed for the next holder
}

// Lock waits until it is the caller's turn.
func (l *Lock) Lock() {
	if turn := l.enter(); turn != nil {
		<-turn
	}
}

// enter returns a channel to wait for; nil = the caller holds the Lock.
func (l *Lock) enter() (turn chan struct{}) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.held {
		l.held = true
		return nil
	}
	turn = make(chan struct{})
	l.waiting = append(l.waiting, turn)
	return turn
}

// Unlock passes the Lock to the goroutine that has waited longest. The Lock must be locked.
func (l *Lock) Unlock() {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case !l.held:
		panic("definition: unlock of an unlocked Lock")
	case len(l.waiting) == 0:
		l.held, l.waiting = false, nil
	default:
		close(l.waiting[0])
		l.waiting = l.waiting[1:]
	}
}

// Log stores the definitions of one vhost, of the users or of the global parameters. Its methods are safe for
// concurrent use; only WaitDurable waits for the disk.
type Log interface {
	// Write appends definitions, all of them or none. The caller may reuse defs afterwards.
	Write(defs []byte)
	// NeedsCompaction reports whether the log has grown so much that a Rewrite pays.
	NeedsCompaction() bool
	// Rewrite replaces the whole log by the parts together: by all of them or, after a crash, by none. The first
	// definition voids earlier ones. Each part is written before the next one is requested, and may be reused then.
	// Definitions written between two parts come after the first and before the second.
	Rewrite(parts iter.Seq[[]byte])
	// WaitDurable returns when all earlier writes are durable. After an error they may or may not be.
	WaitDurable() error
}

// PartSize is the approximate size of a part of a rewrite, in bytes.
const PartSize = 32 << 10

// Parts joins definitions into the parts of a rewrite. A part is valid until the next one is requested.
func Parts(all iter.Seq[amqp.Table]) iter.Seq[[]byte] {
	return func(yield func([]byte) bool) {
		var b []byte
		for d := range all {
			if b = amqp.AppendTable(b, d); len(b) < PartSize {
				continue
			}
			if !yield(b) {
				return
			}
			b = b[:0]
		}
		yield(b)
	}
}
