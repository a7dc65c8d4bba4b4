package seg

import "github.com/curfewmq/curfew/core/telemetry"

// Stats describes the files of a shard, and how fast the disk syncs them.
type Stats struct {
	Segments   int   // number of files that hold the log
	Bytes      int64 // of these files, which have their full length from the beginning
	Spares     int   // number of files that will be used next
	SpareBytes int64
	// PinnedBytes are the bytes of files that were removed from the log and whose space a [Snapshot] still holds.
	PinnedBytes int64
	// Syncs are the seconds that the disk took to make writes durable, since the shard was opened. With Flush, segments are synced only when
	// they are closed.
	Syncs telemetry.Distribution
}

// Stats returns the state of a shard; ok is false if it is not open. It does not wait for a shard that is being opened.
func (e *Engine) Stats(shard uint32) (st Stats, ok bool) {
	e.mu.Lock()
	s := e.shards[shard]
	e.mu.Unlock()
	if s == nil {
		return Stats{}, false
	}
	l := s.current.Load()
	if l == nil {
		return Stats{}, false
	}
	st.Syncs = l.syncs.Read()
	st.Segments, st.Bytes = l.table.size()
	st.Spares, st.SpareBytes = l.pool.idleFiles()
	st.PinnedBytes = l.table.pinnedBytes()
	return st, true
}
