package journal

import (
	"cmp"
	"iter"
	"sync/atomic"
	"time"

	"github.com/curfewmq/curfew/core/wlog"
)

// Options are what a log is opened with. The callbacks may be nil. They are called from the writer's goroutine, and must neither
// block nor call Sync or Close.
type Options struct {
	Extent  int64 // bytes of an extent; 0 = 16 MiB
	Entry   int   // bytes of an entry beyond which the next one begins; 0 = 4 MiB
	Pending int64 // bytes waiting to be durable from which on CaughtUp makes publishers wait; 0 = 16 MiB

	// Waiting counts the bytes that were committed and are not durable, of all logs that have it; nil = nobody asks.
	Waiting *atomic.Int64

	Slack int64 // bytes by which the log may always exceed the live bytes; 0 = 16 MiB

	// Gather bounds how long commits wait for others, while an entry is on its way in a log that has several at a time: the next one begins half a journey
	// later, at most by Gather. Other logs have no use for it. 0 = the next entry begins at once.
	Gather time.Duration

	// Size returns what an entry with so many bytes of operations takes in the log; nil = only those bytes.
	Size func(ops int) int64

	// Operations serve to write less while the log is full. Without them, operations are written whole, and repeated whole.
	Operations Operations

	// Purpose is the least purpose of commits, see also CommitAs. With Bringing, which is 0, commits that bring more are refused the space that is
	// reserved for others.
	Purpose wlog.Purpose

	// Replay has got the first entries of the log. Open takes it over, unless it fails. nil = it replays all of them.
	Replay *Replay

	// OnFull reports that a commit does not fit the log, and later that it did. In between only commits that overtake it become
	// durable, and nothing is lost. SetLowSpace, called when the engine warns, usually prevents this.
	OnFull func(full bool)
	// OnFailed reports that the log has failed, once, and before any completer is called.
	OnFailed func(err error)
	// OnLost is called instead of OnFailed if the log has ended because another owner has taken the shard over, also while nothing is
	// committed. Commits fail with a [wlog.ErrNotOwner] then. nil means that owners do not change: such an end is a failure.
	OnLost func()
	// Reclaim asks for all live records that are accounted to extents up to upTo to be relocated: written again with Relocate,
	// which takes their old places off the live bytes. Calls of Relocate should be of some tens of KiB, which fit the log even
	// when space is short, and wait with WaitRelocated. Reclaim is called again if that takes long, and then means only records
	// that were not relocated yet. Without it the log shrinks only from its oldest end.
	Reclaim func(upTo uint32)
}

// Operations tell what the operations in commits do. There are all of the functions, or none.
type Operations struct {
	// Without returns operations without some parts, the others in the same order. It may use the memory of ops for that.
	Without func(ops []byte, parts Parts) []byte
	// Records returns the records that operations bring, and those that they settle.
	Records func(ops []byte) (brought iter.Seq[Record], settled iter.Seq[Run])
	// Marks returns the marks among operations.
	Marks func(ops []byte) iter.Seq[Mark]
}

// Record names a record.
type Record struct{ Queue, Ref uint64 }

// Mark is an operation that says something about records: those of the queue from Ref on, and below Before. It says the same whether it
// lies before or behind them. One that has the same Record and the same Before, or a higher one, says as much.
type Mark struct {
	Record
	Before uint64
}

// Parts are kinds of operations in a commit.
type Parts uint8

// The parts.
const (
	// Records are operations that bring records, or copies of them.
	Records Parts = 1 << iota
	// Settlements are operations that settle records and do nothing else. The deltas of their commit free all of these records.
	Settlements
	// Marks are operations that a [Mark] describes. They come in commits behind those that bring their records, or in the same.
	Marks
)

func (o Options) withDefaults() Options {
	o.Extent = cmp.Or(o.Extent, 16<<20)
	o.Entry = cmp.Or(o.Entry, 4<<20)
	o.Pending = cmp.Or(o.Pending, 16<<20)
	o.Slack = cmp.Or(o.Slack, 16<<20)
	if o.Waiting == nil {
		o.Waiting = new(atomic.Int64)
	}
	if o.Size == nil {
		o.Size = func(ops int) int64 { return int64(ops) }
	}
	return o
}
