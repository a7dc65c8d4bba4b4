package journal

import "github.com/curfewmq/curfew/core/telemetry"

// Stats counts what happened since the log was opened, and describes its present size.
type Stats struct {
	Commits  uint64
	Appends  uint64
	Bytes    uint64 // appended
	Reclaims uint64 // calls of Options.Reclaim
	Pending  int64  // bytes committed and not yet durable
	Live     int64  // bytes of live records
	LogBytes int64  // bytes of entries that were not trimmed
	Extents  int
	Low      bool // see SetLowSpace
	Full     bool // see Options.OnFull

	// Of entries: the seconds from when each was complete until it was durable, its commits, and its bytes.
	Latency, Group, Size telemetry.Distribution
}

var (
	groupBounds = []float64{1, 2, 4, 8, 16, 32, 64, 128, 256, 1 << 10, 4 << 10, 16 << 10}                     // commits
	sizeBounds  = []float64{256, 1 << 10, 4 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20, 4 << 20, 16 << 20} // bytes
)

// Stats returns the current statistics.
func (w *Writer) Stats() Stats {
	w.mu.Lock()
	st := w.stats
	st.Pending, st.Low, st.Full = w.pending, w.lowSpace, w.full
	st.Live, st.LogBytes, st.Extents = w.extents.live, w.extents.bytes, len(w.extents.list)
	w.mu.Unlock()
	st.Latency, st.Group, st.Size = w.latency.Read(), w.groupSize.Read(), w.entrySize.Read()
	return st
}
