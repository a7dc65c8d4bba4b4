package journal

import (
	"cmp"

	"github.com/curfewmq/curfew/core/telemetry"
	"github.com/curfewmq/curfew/core/wlog"
)

// Options are what a shard is told when it is opened. The callbacks may be nil;
// they are called from the shard's goroutine and must not block, nor call Sync or
// Close.
type Options struct {
	Extent  int64 // bytes of log that are accounted, and trimmed, together; 0 = 16 MiB
	Entry   int   // bytes of an entry beyond which the next one begins; 0 = 4 MiB
	Pending int64 // bytes waiting to be durable with which the shard is behind; 0 = 16 MiB
	Slack   int64 // bytes by which the log may always exceed the live bytes; 0 = 16 MiB

	// Size is what an entry with so many bytes of operations takes in the log; nil =
	// no more than those.
	Size func(ops int) int64

	// Purpose is what commits are for at least. With Bringing, which is 0, those
	// that bring more are refused what is kept for others.
	Purpose wlog.Purpose

	// OnFull says that a commit does not fit the log, and later that it did. In
	// between only what overtakes it becomes durable, and nothing is lost. If Low is
	// called when the engine warns that space is short, it need not come to this.
	OnFull func(full bool)
	// OnFailed says that the log has failed, once, before anybody is told that
	// operations failed.
	OnFailed func(err error)
	// Reclaim asks for every live record accounted to extents up to upTo to be
	// written again, by Move, with its old place taken off the live bytes in the
	// same call. Calls should be of some tens of KiB, which fit the log even when
	// space is short, and wait for Moved. It asks again if that takes long; what was moved already is
	// not meant then. Without it the log only shrinks from its oldest end.
	Reclaim func(upTo uint32)
}

func (o Options) withDefaults() Options {
	o.Extent = cmp.Or(o.Extent, 16<<20)
	o.Entry = cmp.Or(o.Entry, 4<<20)
	o.Pending = cmp.Or(o.Pending, 16<<20)
	o.Slack = cmp.Or(o.Slack, 16<<20)
	if o.Size == nil {
		o.Size = func(ops int) int64 { return int64(ops) }
	}
	return o
}

// Stats are counts since the shard was opened, and its present size.
type Stats struct {
	Commits  uint64
	Appends  uint64
	Bytes    uint64 // appended
	Reclaims uint64 // requests to move live records
	Pending  int64  // bytes committed and not yet durable
	Live     int64  // bytes of records that are needed
	LogBytes int64  // bytes of entries that were not trimmed
	Extents  int
	Low      bool
	Full     bool

	// Of entries: how long each took from when it was complete until it was durable, in seconds, how many commits it was
	// made of, and its bytes.
	Latency, Group, Size telemetry.Distribution
}

// Stats returns the counts.
func (s *Writer) Stats() Stats {
	st := s.counts()
	st.Latency, st.Group, st.Size = s.entries.latency.Read(), s.entries.group.Read(), s.entries.size.Read()
	return st
}

func (s *Writer) counts() Stats {
	s.mu.Lock()
	defer s.mu.Unlock()
	st := s.stats
	st.Pending, st.Low, st.Full = s.pending, s.low, s.full
	st.Live, st.LogBytes, st.Extents = s.extents.live, s.extents.bytes, len(s.extents.list)
	return st
}

// measures are what is known of the entries that were appended.
type measures struct{ latency, group, size *telemetry.Histogram }

var (
	groupBounds = []float64{1, 2, 4, 8, 16, 32, 64, 128, 256, 1 << 10, 4 << 10, 16 << 10}                     // commits
	sizeBounds  = []float64{256, 1 << 10, 4 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20, 4 << 20, 16 << 20} // bytes
)

func newMeasures() measures {
	return measures{
		latency: telemetry.NewHistogram(telemetry.Latencies),
		group:   telemetry.NewHistogram(groupBounds),
		size:    telemetry.NewHistogram(sizeBounds),
	}
}

// add takes in a batch that became durable within so many seconds.
func (m *measures) add(b *commitGroup, seconds float64) {
	if len(b.entry) == 0 {
		return
	}
	m.latency.Add(seconds, 1)
	m.group.Add(float64(len(b.commits)), 1)
	m.size.Add(float64(len(b.entry)), 1)
}
