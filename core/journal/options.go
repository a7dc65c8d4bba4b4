package journal

import (
	"cmp"
	"math"
	"sync/atomic"
	"time"
)

// Options are what a log is opened with. The callbacks may be nil. They are called from the writer's goroutine, and must neither
// block nor call Sync or Close.
type Options struct {
	Extent  int64 // bytes of an extent; 0 = 16 MiB
	Entry   int   // bytes of an entry beyond which the next one begins; 0 = 4 MiB
	Pending int64 // bytes waiting to be durable from which on CaughtUp makes publishers wait; 0 = 16 MiB

	// Waiting counts the bytes that were committed and are not durable, of all logs that have it; nil = not counted.
	Waiting *atomic.Int64

	Slack int64 // bytes by which the log may always exceed the live bytes; 0 = 16 MiB

	// Gather bounds how long commits wait for others, while an entry is on its way in a log that has several at a time: the next one begins half a journey
	// later, at most by Gather. Other logs have no use for it. 0 = the next entry begins at once.
	Gather time.Duration

	// Size returns what an entry with so many bytes of operations takes in the log; nil = only those bytes.
	Size func(ops int) int64

	// Space is what the logs on the disk share; nil = there are no others.
	Space *Space
	// Unit is a quarter of what the log grows by; 0 = Extent.
	Unit int64
	// Moves is about how many bytes of records are sent from one queue to another at a time; 0 = none are.
	Moves int64
	// Most is how many bytes can be granted at once, see [MostGranted]; 0 = any number.
	Most int64

	// Replay has got the first entries of the log. Open takes it over, unless it fails. nil = it replays all of them.
	Replay *Replay

	// OnFull reports that a grant, or a commit, waits for space, and later that none does. Nothing is lost. SetLowSpace, called when the
	// engine warns, usually comes first.
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

func (o Options) withDefaults() Options {
	o.Extent = cmp.Or(o.Extent, 16<<20)
	o.Entry = cmp.Or(o.Entry, 4<<20)
	o.Pending = cmp.Or(o.Pending, 16<<20)
	o.Slack = cmp.Or(o.Slack, 16<<20)
	o.Unit = cmp.Or(o.Unit, o.Extent)
	o.Most = cmp.Or(o.Most, math.MaxInt64)
	if o.Space == nil {
		o.Space = new(Space)
	}
	if o.Waiting == nil {
		o.Waiting = new(atomic.Int64)
	}
	if o.Size == nil {
		o.Size = func(ops int) int64 { return int64(ops) }
	}
	return o
}
