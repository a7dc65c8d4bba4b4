package journal

import (
	"time"

	"github.com/curfewmq/curfew/core/wlog"
)

// reclaimRound is one request to relocate live records out of the oldest extents. It ends
// when those extents are dead, or after roundTimeout; if the log is still too large then,
// another one begins.
type reclaimRound struct {
	upTo  uint32 // 0 = none is in progress
	taken int64  // bytes of the space that the round has taken for copies, and not used yet
	timer *time.Timer
}

const roundTimeout = time.Second

// reclaim begins a round if the log is too large and none is in progress. It returns the
// extent up to which to call Reclaim; 0 = no call. The caller holds mu.
func (w *Writer) reclaim() (upTo uint32) {
	if w.o.Reclaim == nil || w.Err() != nil || w.round.upTo >= w.extents.base {
		return 0
	}
	if w.round.upTo != 0 {
		w.pressedAt = w.extents.base // the round has moved the front, so isPressed does not begin anew
	}
	w.round.end(w.o.Space)
	switch {
	case w.isPressed():
		upTo = w.extents.planLowSpace(w.extents.size)
	case w.lowSpace || w.full || w.waits.Load():
		upTo = w.extents.planLowSpace(4 * w.extents.size)
	case w.tight:
		upTo = w.extents.plan(w.extents.excessTight(), w.o.Extent)
	default:
		upTo = w.extents.plan(w.extents.excess(w.o.Slack), w.o.Extent)
	}
	if upTo = w.affordable(upTo); upTo == 0 {
		return 0
	}
	w.round.taken = w.extents.liveUpTo(upTo)
	w.o.Space.inflight.Add(w.round.taken)
	w.stats.Reclaims++
	w.round.upTo = upTo
	if w.round.timer == nil {
		w.round.timer = time.AfterFunc(roundTimeout, w.roundTimedOut)
	} else {
		w.round.timer.Reset(roundTimeout)
	}
	return upTo
}

// isPressed reports whether dead letters have waited, or space has been scarce, for
// roundTimeout, in which no records that left have freed the front of the log. As long as
// they do, relocation would only harm: copies of records that leave soon are dead bytes
// behind all others. The caller holds mu.
func (w *Writer) isPressed() bool {
	if !w.movesWait.Load() && !w.scarce.Load() {
		w.pressed = time.Time{}
		return false
	}
	if w.pressed.IsZero() || w.extents.base != w.pressedAt {
		w.pressed, w.pressedAt = time.Now(), w.extents.base
	}
	return time.Since(w.pressed) >= roundTimeout
}

// affordable returns the last extent, at most upTo, up to which there is space to relocate
// records; 0 = none. The caller holds mu.
func (w *Writer) affordable(upTo uint32) uint32 {
	for ; w.least <= wlog.Moving && upTo >= w.extents.base; upTo-- {
		left := w.left - w.o.Space.inflight.Load() - w.extents.liveUpTo(upTo) - w.o.Unit
		if left >= w.left-w.free() || left >= 0 && w.scarce.Load() {
			return upTo
		}
	}
	return 0
}

// give gives back the space that was taken for records, once they are committed.
func (r *reclaimRound) give(s *Space, bytes int64) {
	bytes = min(bytes, r.taken)
	r.taken -= bytes
	s.inflight.Add(-bytes)
}

func (r *reclaimRound) end(s *Space) {
	r.give(s, r.taken)
	if r.upTo != 0 {
		r.upTo = 0
		r.timer.Stop()
	}
}

func (w *Writer) roundTimedOut() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.round.upTo = 0
	w.round.give(w.o.Space, w.round.taken)
	w.wakeRunner()
}

// wakeRunner makes run check whether there is something to trim or to reclaim. The caller holds mu.
func (w *Writer) wakeRunner() {
	w.queue.last(0, &w.extents)
	w.start()
}

// SetLowSpace passes on that the engine has little space left, or enough again. While it
// has little, CaughtUp makes publishers wait, and live records are relocated only where
// that frees much more than it takes. If the engine warns before Open has returned, call
// SetLowSpace afterwards.
func (w *Writer) SetLowSpace(low bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.lowSpace = low
	w.updateCeilings()
	w.updateCaughtUp()
	w.wakeRunner()
}

// SetTight passes on that another node, which has a copy of the log, has little space left
// for it, or enough again. Meanwhile the log is kept smaller than otherwise, which takes
// more writing. Publishers do not wait for that.
func (w *Writer) SetTight(tight bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.tight = tight; tight {
		w.wakeRunner()
	}
}

// updateCaughtUp updates the channel of CaughtUp. The caller holds mu.
func (w *Writer) updateCaughtUp() {
	c := w.caughtUp.Load()
	switch throttle := w.throttles(c != nil); {
	case throttle && c == nil:
		caughtUp := make(chan struct{})
		w.caughtUp.Store(&caughtUp)
	case !throttle && c != nil:
		w.caughtUp.Store(nil)
		close(*c)
	}
}

// throttles reports whether publishers are to wait: for the disk, for space, or for live
// records that are being relocated. If they wait already, they wait until half as many
// bytes are pending.
func (w *Writer) throttles(already bool) bool {
	most := w.o.Pending
	if already {
		most /= 2
	}
	return w.Err() == nil && (w.lowSpace || w.full || w.waits.Load() || w.pending > most || w.round.upTo != 0 && w.extents.oversize(2*w.o.Slack))
}
