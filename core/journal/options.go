package journal

import (
	"cmp"
	"math"
	"sync/atomic"
	"time"
)

// Options configure a log. The callbacks may be nil. They are called from the writer's
// goroutine, and must neither block nor call Sync or Close.
type Options struct {
	Extent  int64 // bytes of an extent; 0 = 16 MiB
	Entry   int   // bytes of an entry beyond which the next one begins; 0 = 4 MiB
	Pending int64 // bytes waiting to be durable from which on CaughtUp makes publishers wait; 0 = 16 MiB

	// Waiting counts the bytes that were committed and are not durable, of all logs that have it; nil = not counted.
	Waiting *atomic.Int64

	Slack int64 // bytes by which the log may always exceed the live bytes; 0 = 16 MiB

	// Gather bounds how long commits wait for further commits while an entry is on its way,
	// in a log with a depth above 1: the next entry begins half a journey after that one,
	// but at most Gather after it. 0 = the next entry begins at once.
	Gather time.Duration

	// Size returns the bytes that an entry with ops bytes of operations takes in the log;
	// nil = only those bytes.
	Size func(ops int) int64

	// Space is shared by all logs on the disk; nil = the log is the only one.
	Space *Space
	// Unit is a quarter of the bytes of a segment, by which the log grows; 0 = Extent.
	Unit int64
	// Moves is about how many bytes of records a queue sends to another at a time; 0 = no
	// records move.
	Moves int64
	// Most is how many bytes can be granted at once, see [MostGranted]; 0 = any number.
	Most int64

	// Replay has the first entries of the log. Open takes it over, unless Open fails. nil =
	// Open replays all entries.
	Replay *Replay

	// OnFull reports that a grant, or a commit, waits for space, and later that none does.
	// Nothing is lost. SetLowSpace, called when the engine warns, usually comes first.
	OnFull func(full bool)
	// OnFailed reports that the log has failed, once, and before any completer is called.
	OnFailed func(err error)
	// OnLost is called instead of OnFailed if the log has ended because another owner has
	// taken the shard over, also while nothing is committed. Commits fail with a
	// [wlog.ErrNotOwner] then. nil means that owners do not change: such an end is a
	// failure.
	OnLost func()
	// Reclaim asks for all live records that are accounted to extents up to upTo to be
	// relocated: written again with Relocate, which takes their old places off the live
	// bytes. A call of Relocate should have some tens of KiB, which fit the log even when
	// space is short, and WaitRelocated should follow it. If relocating takes long, Reclaim
	// is called again, for the records that were not relocated yet. Without Reclaim the log
	// shrinks only at its front.
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
