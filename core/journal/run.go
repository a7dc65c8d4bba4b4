package journal

import (
	"errors"
	"fmt"
	"runtime"
	"time"

	"github.com/curfewmq/curfew/core/wlog"
)

// run is the writer's goroutine. It appends group after group until the queue is empty, and ends.
func (w *Writer) run() {
	for {
		g, ended := w.next()
		switch {
		case ended:
			return
		case g == nil:
			w.await()
		default:
			w.begin(g)
		}
	}
}

// next takes the group that may begin now. It returns nil if run has to await a flight, a
// commit, or the time at which the next group may begin. ended reports that nothing is left
// to do.
func (w *Writer) next() (g *commitGroup, ended bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.expecting = false
	f := &w.flights
	if f.full() {
		return nil, false
	}
	if len(w.queue.groups) == 0 && len(f.list) > 0 {
		w.expect()
		return nil, false
	}
	if pause := w.pause(); pause > 0 {
		f.timer.Reset(pause)
		return nil, false
	}
	g = w.queue.take()
	if g == nil {
		w.queue.trimSpare()
		w.running = false
		w.changed.Broadcast()
	}
	return g, g == nil
}

// begin begins to append a group. Unless the log is a pipeline with space, begin waits
// until the group is appended.
func (w *Writer) begin(g *commitGroup) {
	launched, err := w.launch(g)
	if launched {
		return
	}
	w.landAll()
	began, size := time.Now(), 0
	var at wlog.Index
	if err == nil {
		at, size, err = w.append(g)
	}
	w.settle(g, began, wlog.Appended{At: at, Err: err}, size)
	runtime.Gosched() // let completers' goroutines run: the next append keeps the processor while it waits for the disk
}

// settle accounts for a group that was appended, with an entry of size bytes, or that
// failed, and calls its completers.
func (w *Writer) settle(g *commitGroup, began time.Time, a wlog.Appended, size int) {
	if a.Err == nil && len(g.entry) > 0 {
		w.latency.Add(time.Since(began).Seconds(), 1)
		w.groupSize.Add(float64(len(g.commits)), 1)
		w.entrySize.Add(float64(len(g.entry)), 1)
	}
	due := w.finish(g, a.At, size, a.Err)
	if a.Err != nil {
		a.Err = w.failure
	}
	g.complete(a.Err)
	w.carryOut(due)
	w.letIn()
	w.mu.Lock()
	defer w.mu.Unlock()
	w.queue.give(g)
}

// append appends the group's entry, if it has one. If there is no space for the entry,
// which another process must have used, append tries again and again, with fewer commits.
func (w *Writer) append(g *commitGroup) (at wlog.Index, size int, err error) {
	if w.failure != nil {
		return 0, 0, w.failure
	}
	for len(g.entry) > 0 {
		at, err = w.log.Append(w.ctx, g.entry, wlog.Settling)
		if err == nil {
			w.setStuck(false)
			return at, len(g.entry), nil
		}
		full := errors.Is(err, wlog.ErrFull)
		if full && w.split(g) {
			continue
		}
		if full {
			w.setStuck(true)
			err = w.pauseForSpace()
		}
		if err != nil {
			if !errors.Is(err, wlog.ErrFull) {
				w.setStuck(false)
				w.setFull(false)
			}
			return 0, 0, fmt.Errorf("journal: append: %w", err)
		}
	}
	return 0, 0, w.lost()
}

// pauseForSpace waits before the next attempt to append a group. It returns an error if
// there is to be no further attempt.
func (w *Writer) pauseForSpace() error {
	select {
	case <-time.After(spaceRetry):
		return nil
	case <-w.closing:
		return wlog.ErrFull
	}
}

// lost returns an error if the log was lost.
func (w *Writer) lost() error {
	select {
	case <-w.log.Lost():
		return fmt.Errorf("journal: %w", wlog.ErrLost)
	default:
		return nil
	}
}

// split puts half of the group back into the queue. It returns false if the group is one commit.
func (w *Writer) split(g *commitGroup) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.queue.split(g, &w.extents)
}

// setStuck notes whether the first group does not fit.
func (w *Writer) setStuck(stuck bool) {
	if w.stuck == stuck {
		return // only run changes it
	}
	w.mu.Lock()
	w.stuck = stuck
	w.mu.Unlock()
	w.setFull(w.full)
}

// setFull notes whether publishers or a commit wait for space, and reports a change.
func (w *Writer) setFull(full bool) {
	full = full || w.stuck
	if w.full == full {
		return // only run changes it
	}
	w.mu.Lock()
	w.full = full
	w.updateCeilings()
	w.updateCaughtUp()
	w.mu.Unlock()
	if w.o.OnFull != nil {
		w.o.OnFull(full)
	}
}

// due lists the work after an append.
type due struct {
	trim   bool
	before wlog.Index // where to trim to
	upTo   uint32     // the extent up to which to call Reclaim; 0 = no call
}

// finish accounts for a group. With an error, the group was not appended.
func (w *Writer) finish(g *commitGroup, at wlog.Index, size int, err error) due {
	if err != nil {
		w.fail(err)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.pending -= int64(len(g.entry))
	w.o.Waiting.Add(-int64(len(g.entry)))
	if err != nil {
		size = 0
	}
	w.appended(g.extent, at, size)
	w.o.Space.inflight.Add(-int64(len(g.entry)))
	if err != nil {
		return due{}
	}
	for _, d := range g.freed {
		w.extents.free(d)
	}
	return w.due()
}

// appended accounts for an entry of so many bytes; 0 = none was appended. The caller holds mu.
func (w *Writer) appended(in uint32, at wlog.Index, size int) {
	if size == 0 {
		w.extents.append(in, 0, 0)
		return
	}
	w.stats.Appends++
	w.stats.Bytes += uint64(size)
	w.used(w.o.Size(size))
	w.extents.append(in, at, w.o.Size(size))
}

// due returns the work that is due now. The caller holds mu.
func (w *Writer) due() (d due) {
	if w.recovered {
		if d.before, d.trim = w.extents.trim(); d.trim {
			if largest := w.extents.largest(); largest != w.largest.Load() {
				w.setLargest(largest)
			}
		}
		d.upTo = w.reclaim()
	}
	w.updateCaughtUp()
	return d
}

// fail ends the writer, once: nothing is appended or trimmed any more.
func (w *Writer) fail(err error) {
	if w.failure != nil {
		return
	}
	err = w.ended(err)
	w.mu.Lock()
	w.failure = err
	w.err.Store(&err)
	w.round.end(w.o.Space)
	w.updateCaughtUp()
	w.leaveSpace()
	w.mu.Unlock()
	switch {
	case w.o.OnLost != nil && errors.Is(err, wlog.ErrNotOwner):
		w.o.OnLost()
	case w.o.OnFailed != nil && !errors.Is(err, wlog.ErrFull): // ErrFull comes only from Close
		w.o.OnFailed(err)
	}
}

func (w *Writer) carryOut(d due) {
	if d.trim {
		if err := w.log.Trim(d.before); err != nil {
			w.fail(fmt.Errorf("journal: trim: %w", err))
			return
		}
	}
	if d.upTo != 0 {
		w.o.Reclaim(d.upTo)
	}
}
