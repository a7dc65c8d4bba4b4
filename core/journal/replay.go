package journal

import (
	"context"

	"github.com/curfewmq/curfew/core/wlog"
)

// Replay accounts for the replayed entries of a log, from the first one on. A node that
// does not own the shard makes a Replay to do this ahead of time, see [Options.Replay]. It
// belongs to one goroutine.
type Replay struct {
	extents extents
	size    func(ops int) int64
	last    wlog.Index
	standby wlog.Standby // whose Resume replays the rest; nil = Open made the Replay
}

// NewReplay returns a Replay for a log of engine. The log has to be opened with the Extent
// and Size of o.
func NewReplay(engine wlog.Standby, o Options) *Replay {
	o = o.withDefaults()
	return &Replay{extents: newExtents(o.Extent), size: o.Size, standby: engine}
}

// Entry accounts for the next entry, and returns its extent.
func (r *Replay) Entry(at wlog.Index, ops []byte) (extent uint32) {
	r.last = at
	r.extents.note(int64(len(ops)))
	return r.extents.replay(at, r.size(len(ops)))
}

// Last returns the index of the last entry; 0 = there was none.
func (r *Replay) Last() wlog.Index { return r.last }

// open opens the shard, and replays the entries behind the last one.
func (r *Replay) open(ctx context.Context, engine wlog.Engine, shard uint32, fn func(extent uint32, at wlog.Index, ops []byte) error) (wlog.Log, error) {
	entry := func(at wlog.Index, ops []byte) error { return fn(r.Entry(at, ops), at, ops) }
	if r.last == 0 {
		return engine.Open(ctx, shard, entry)
	}
	return r.standby.Resume(ctx, shard, r.last, entry)
}
