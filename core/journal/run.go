package journal

import (
	"cmp"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"time"

	"github.com/curfewmq/curfew/core/wlog"
)

// run is the shard's goroutine: it appends batch after batch until there are
// none, and ends.
func (s *Writer) run() {
	for b := s.next(nil); b != nil; b = s.next(b) {
		began := time.Now()
		at, size, err := s.append(b)
		if err == nil {
			s.entries.add(b, time.Since(began).Seconds())
		}
		due := s.finish(b, at, size, err)
		b.complete(err)
		s.carryOut(due)
		runtime.Gosched() // to those who were told: the next append keeps the processor while it waits for the disk
	}
}

// next gives done back and takes the next batch. Without one the shard rests.
func (s *Writer) next(done *commitGroup) *commitGroup {
	s.mu.Lock()
	defer s.mu.Unlock()
	if done != nil {
		s.gather.give(done)
	}
	b := s.gather.take()
	if b == nil {
		s.gather.rest()
		s.running = false
		s.resting.Broadcast()
	}
	return b
}

// append appends the batch's entry, if it has one, and returns how much that was.
// While the log is full it tries with fewer commits, and, when one alone does not fit,
// again and again, and lets others overtake it.
func (s *Writer) append(b *commitGroup) (at wlog.Index, size int, err error) {
	if s.broken != nil {
		return 0, 0, s.broken
	}
	for paused := false; ; paused = true {
		if len(b.entry) == 0 { // or it overtook itself: then perhaps nothing comes that would say that nothing waits any more
			s.fits(true)
			return 0, 0, s.lost()
		}
		at, size, err = s.attempt(b)
		if err == nil {
			s.fits(paused)
			return at, size, nil
		}
		if errors.Is(err, wlog.ErrFull) {
			err = s.pause(b)
		}
		if err != nil {
			return 0, 0, s.unwritten(err)
		}
	}
}

// attempt appends the batch's entry, or, if that does not fit, as much of it as does.
func (s *Writer) attempt(b *commitGroup) (at wlog.Index, size int, err error) {
	for {
		entry, purpose := s.whole(b)
		at, err = s.log.Append(s.ctx, entry, purpose)
		if !errors.Is(err, wlog.ErrFull) || !s.shorten(b) {
			return at, len(entry), err
		}
	}
}

// fits notes that the batch at hand needs no space, or no more than there is. What
// stands in the line shows by itself, without a pause, whether that is so for it, too:
// the alarm must not end in between.
func (s *Writer) fits(paused bool) {
	if s.full && !(paused && s.waits()) {
		s.setFull(false)
	}
}

// waits reports whether there is anything to be written in the line.
func (s *Writer) waits() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.ContainsFunc(s.gather.line, func(b *commitGroup) bool { return len(b.entry) > 0 })
}

// unwritten wraps why a batch is not appended.
func (s *Writer) unwritten(err error) error {
	if !errors.Is(err, wlog.ErrFull) {
		s.setFull(false)
	}
	return fmt.Errorf("journal: append: %w", err)
}

// lost returns an error if the log is lost.
func (s *Writer) lost() error {
	select {
	case <-s.log.Lost():
		return fmt.Errorf("journal: %w", wlog.ErrLost)
	default:
		return nil
	}
}

// shorten puts part of the batch back into the line, if it can be divided.
func (s *Writer) shorten(b *commitGroup) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.gather.shorten(b)
}

// pause waits before the next attempt, during which others overtake the batch. An
// error says that there is to be none.
func (s *Writer) pause(b *commitGroup) error {
	const (
		idle = 100 * time.Millisecond
		busy = idle / 10 // while there are some that overtake, which are to be gathered, too
	)
	s.setFull(true)
	some, err := s.relieve(b)
	if err != nil {
		return err
	}
	interval := idle
	if some {
		interval = busy
	}
	s.seek()
	select {
	case <-time.After(interval):
		return nil
	case <-s.closing:
		return s.leave(b)
	}
}

// seek looks whether there is something to trim or to reclaim.
func (s *Writer) seek() {
	s.mu.Lock()
	d := s.due()
	s.mu.Unlock()
	s.carryOut(d)
}

// leave writes what can still be written of a shard that is closed while it is
// full, and returns why the rest is not.
func (s *Writer) leave(b *commitGroup) error {
	for {
		if some, err := s.relieve(b); err != nil || !some {
			return cmp.Or(err, wlog.ErrFull)
		}
	}
}

func (s *Writer) setFull(full bool) {
	if s.full == full {
		return // nobody else changes it
	}
	s.mu.Lock()
	s.full = full
	s.pace()
	s.mu.Unlock()
	if s.o.OnFull != nil {
		s.o.OnFull(full)
	}
}

// due is what an append made necessary.
type due struct {
	trim   bool
	before wlog.Index // where to trim to
	upTo   uint32     // what to ask Reclaim for; 0 = nothing
}

// finish accounts for a batch that was appended, or was not.
func (s *Writer) finish(b *commitGroup, at wlog.Index, size int, err error) (d due) {
	if err != nil {
		s.fail(err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.pending -= int64(len(b.entry))
	waiting.Add(-int64(len(b.entry)))
	if err != nil {
		return due{}
	}
	s.appended(at, size)
	s.extents.freeAll(b.freed)
	if s.owed {
		s.prune(slices.Values(s.gather.line))
	}
	return s.due()
}

// appended accounts for an entry of so many bytes, which may be none. The caller holds mu.
func (s *Writer) appended(at wlog.Index, size int) {
	if size == 0 {
		return
	}
	s.stats.Appends++
	s.stats.Bytes += uint64(size)
	s.extents.append(at, s.o.Size(size))
	s.extent.Store(s.extents.current())
}

// due says what is to be done now. The caller holds mu.
func (s *Writer) due() (d due) {
	if s.recovered {
		d.before, d.trim = s.extents.trim()
		d.upTo = s.reclaim()
	}
	s.pace()
	return d
}

// fail ends the shard, once: nothing is appended or trimmed any more.
func (s *Writer) fail(err error) {
	if s.broken != nil {
		return
	}
	s.mu.Lock()
	s.broken, s.err = err, err
	s.ended.Store(true)
	s.round.end()
	s.pace()
	s.mu.Unlock()
	if s.o.OnFailed != nil && !errors.Is(err, wlog.ErrFull) { // which it is only when it is closed
		s.o.OnFailed(err)
	}
}

// applyVerdicts does what finish found due.
func (s *Writer) carryOut(d due) {
	if d.trim {
		if err := s.log.Trim(d.before); err != nil {
			s.fail(fmt.Errorf("journal: trim: %w", err))
			return
		}
	}
	if d.upTo != 0 {
		s.o.Reclaim(d.upTo)
	}
}
