package seg

import "github.com/curfewmq/curfew/core/telemetry"

// Stats is what a shard takes on the disk, and how fast that is.
type Stats struct {
	Segments   int   // files that hold the log
	Bytes      int64 // of them: they are as long as they can become from the beginning
	Spares     int   // files that are to be used next
	SpareBytes int64
	// Syncs is how long the disk took to make what was written durable, in seconds, since the shard was opened. With Flush
	// that is done only when a segment is closed.
	Syncs telemetry.Distribution
}

// Stats returns the state of a shard; ok is false if it is not open. It does not
// wait for one that is being opened.
func (e *Engine) Stats(shard uint32) (st Stats, ok bool) {
	e.mu.Lock()
	s := e.slots[shard]
	e.mu.Unlock()
	if s == nil {
		return Stats{}, false
	}
	j := s.current.Load()
	if j == nil {
		return Stats{}, false
	}
	st.Syncs = j.syncs.Read()
	st.Segments, st.Bytes = j.table.extent()
	st.Spares, st.SpareBytes = j.pool.extent()
	return st, true
}

// extent is how many segments there are, and the size of their files.
func (t *table) extent() (n int, bytes int64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, g := range t.segments {
		bytes += g.size
	}
	return len(t.segments), bytes
}

// extent is how many files are there to be used, and their size.
func (p *pool) extent() (n int, bytes int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, f := range p.spares {
		bytes += f.Size
	}
	if p.next == nil {
		return len(p.spares), bytes
	}
	return len(p.spares) + 1, bytes + p.next.size
}
