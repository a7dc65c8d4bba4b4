package journal

import "cmp"

// Options are what a shard is told when it is opened. The callbacks may be nil;
// they are called from the shard's goroutine and must not block, nor call Sync or
// Close.
type Options struct {
	Extent  int64 // bytes of log that are accounted, and trimmed, together; 0 = 16 MiB
	Header  int64 // bytes an entry takes in the log besides its operations
	Entry   int   // bytes of an entry beyond which the next one begins; 0 = 4 MiB
	Pending int64 // bytes waiting to be durable with which the shard is behind; 0 = 16 MiB
	Slack   int64 // bytes by which the log may always exceed the live bytes; 0 = 16 MiB

	// OnFull says that a commit does not fit the log, and later that it did. In
	// between nothing becomes durable, and nothing is lost. If Low is called when
	// the engine warns that space is short, it need not come to this.
	OnFull func(full bool)
	// OnFailed says that the log has failed, once, before anybody is told that
	// operations failed.
	OnFailed func(err error)
	// Reclaim asks for every live record accounted to extents up to upTo to be
	// committed again, with its old place taken off the live bytes in the same
	// commit. Commits should be of some tens of KiB, which fit the log even when
	// space is short. It asks again if that takes long; what was moved already is
	// not meant then. Without it the log only shrinks from its oldest end.
	Reclaim func(upTo uint32)
}

func (o Options) withDefaults() Options {
	o.Extent = cmp.Or(o.Extent, 16<<20)
	o.Entry = cmp.Or(o.Entry, 4<<20)
	o.Pending = cmp.Or(o.Pending, 16<<20)
	o.Slack = cmp.Or(o.Slack, 16<<20)
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
}

// Stats returns the counts.
func (s *Shard) Stats() Stats {
	s.mu.Lock()
	defer s.mu.Unlock()
	st := s.stats
	st.Pending, st.Low, st.Full = s.pending, s.low, s.full
	st.Live, st.LogBytes, st.Extents = s.extents.live, s.extents.bytes, len(s.extents.list)
	return st
}
