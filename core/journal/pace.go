package journal

import "time"

// reclaimRound is one request to move live records out of the oldest extents. There is
// never more than one. It ends when those extents are dead or after patience,
// and then, if the log is still too large, another one begins.
type reclaimRound struct {
	upTo  uint32 // 0 = none is in progress
	timer *time.Timer
}

const patience = time.Second

// reclaim begins a round if the log is too large and none is in progress. It
// returns what to ask Reclaim for. The caller holds mu.
func (s *Writer) reclaim() (upTo uint32) {
	if s.o.Reclaim == nil || s.err != nil || s.round.upTo >= s.extents.base {
		return 0
	}
	s.round.end()
	if upTo = s.plan(); upTo == 0 {
		return 0
	}
	s.stats.Reclaims++
	s.round.begin(upTo, s.overdue)
	return upTo
}

func (s *Writer) plan() (upTo uint32) {
	if s.low {
		return s.extents.planLowSpace()
	}
	return s.extents.plan(s.o.Slack, s.o.Extent)
}

func (r *reclaimRound) begin(upTo uint32, overdue func()) {
	r.upTo = upTo
	if r.timer == nil {
		r.timer = time.AfterFunc(patience, overdue)
		return
	}
	r.timer.Reset(patience)
}

func (r *reclaimRound) end() {
	if r.upTo == 0 {
		return
	}
	r.upTo = 0
	r.timer.Stop()
}

// overdue ends a round that made no end of itself and has the shard look again.
func (s *Writer) overdue() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.round.upTo = 0
	s.wakeRunner()
}

// wakeRunner has run look whether there is something to trim or to reclaim. The caller
// holds mu.
func (s *Writer) wakeRunner() {
	s.gather.batch(0)
	s.start()
}

// SetLowSpace passes on that the engine has little space left, or enough again. While it
// has little, Behind holds new messages back, and live records are moved only
// where that gives much more back than it takes. A warning that comes before Open
// has returned is to be passed on then.
func (s *Writer) SetLowSpace(low bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.low = low
	s.pace()
	s.wakeRunner()
}

// pace keeps what Behind returns up to date. The caller holds mu.
func (s *Writer) pace() {
	c := s.behind.Load()
	switch late := s.late(c != nil); {
	case late && c == nil:
		fresh := make(chan struct{})
		s.behind.Store(&fresh)
	case !late && c != nil:
		s.behind.Store(nil)
		close(*c)
	}
}

// late reports whether new messages had better wait: for the disk, for space, or
// for live records that are being moved out of the way. Once behind, the shard
// stays so until half of the work is done.
func (s *Writer) late(already bool) bool {
	most := s.o.Pending
	if already {
		most /= 2
	}
	return s.err == nil && (s.low || s.full || s.pending > most || s.round.upTo != 0 && s.extents.oversize(2*s.o.Slack))
}
