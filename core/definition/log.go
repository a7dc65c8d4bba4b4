package definition

import (
	"iter"

	"github.com/curfewmq/curfew/core/amqp"
)

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
