package definition

import (
	"iter"

	"github.com/curfewmq/curfew/core/amqp"
)

// Log is where the definitions of one vhost, of the users or of the global parameters are written. Its methods are safe for
// concurrent use; only WaitDurable waits for the disk.
type Log interface {
	// Write adds definitions, all of them or none, to those written before. The caller may reuse defs afterwards.
	Write(defs []byte)
	// NeedsCompaction reports whether so much was written that a Rewrite pays.
	NeedsCompaction() bool
	// Rewrite replaces everything written so far by the parts together: by all of them or, after a crash, by none. The first
	// definition voids earlier ones. Each part is written before the next is asked for, and the caller may reuse it then.
	// What is written between two parts follows the first and precedes the second.
	Rewrite(parts iter.Seq[[]byte])
	// WaitDurable returns when everything written before is durable. After an error it may be or not.
	WaitDurable() error
}

// PartSize is about how many bytes of definitions a part of a rewrite has.
const PartSize = 32 << 10

// Parts joins definitions into the parts of a rewrite. A part is valid until the next is asked for.
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
