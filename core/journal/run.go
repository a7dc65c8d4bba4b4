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

// next takes the group that may begin now. Without one, it is because of those on their way, or run ends.
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

// begin begins to append a group. It waits until it is appended, unless the log is a pipeline with space.
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

// settle accounts for a group with an entry of so many bytes that was appended, or was not, and tells its completers.
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
	w.mu.Lock()
	defer w.mu.Unlock()
	w.queue.give(g)
}

// append appends the group's entry, if it has one, and returns the size of what it appended. While the log is full, it tries
// with fewer commits. If one alone does not fit, it tries again and again, and lets others overtake it.
func (w *Writer) append(g *commitGroup) (at wlog.Index, size int, err error) {
	if w.failure != nil {
		return 0, 0, w.failure
	}
	paused := false
	for len(g.entry) > 0 {
		entry, purpose := w.wholeEntry(g)
		at, err = w.log.Append(w.ctx, entry, purpose)
		if err == nil {
			w.appendFits(paused)
			return at, len(entry), nil
		}
		full := errors.Is(err, wlog.ErrFull)
		if full && w.split(g) {
			continue
		}
		if full {
			err = w.retreat(g)
			paused = true
		}
		if err != nil && !errors.Is(err, wlog.ErrFull) {
			w.setFull(false)
		}
		if err != nil {
			return 0, 0, fmt.Errorf("journal: append: %w", err)
		}
	}
	w.appendFits(true) // nothing more may come that would clear full, as the group may have overtaken itself
	return 0, 0, w.lost()
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

// appendFits records that a group fits the log, or needs no space. Without a pause it does not clear full while the queue holds
// operations: whether they fit shows soon, and the alarm must not clear in between.
func (w *Writer) appendFits(paused bool) {
	if w.full && !(paused && w.hasOperations()) {
		w.setFull(false)
	}
}

func (w *Writer) hasOperations() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.ContainsFunc(w.queue.groups, func(g *commitGroup) bool { return len(g.entry) > 0 })
}

// split puts half of the group back into the queue. It returns false if the group is one commit.
func (w *Writer) split(g *commitGroup) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.queue.split(g)
}

// retreat waits before the next attempt to append a group, and lets others overtake it. With an error there is to be none.
func (w *Writer) retreat(g *commitGroup) error {
	const (
		idle = 100 * time.Millisecond
		busy = idle / 10 // while commits overtake: more of them are gathered meanwhile
	)
	w.setFull(true)
	some, err := w.overtake(g)
	if err != nil {
		return err
	}
	interval := idle
	if some {
		interval = busy
	}
	w.mu.Lock()
	due := w.due()
	w.mu.Unlock()
	w.carryOut(due)
	select {
	case <-time.After(interval):
		return nil
	case <-w.closing:
	}
	for some := true; some && err == nil; { // write what still can be
		some, err = w.overtake(g)
	}
	return cmp.Or(err, wlog.ErrFull)
}

func (w *Writer) setFull(full bool) {
	if w.full == full {
		return // only run changes it
	}
	w.mu.Lock()
	w.full = full
	w.updateVouchers()
	if !full {
		w.gone = nil
	}
	w.updateCaughtUp()
	w.mu.Unlock()
	if w.o.OnFull != nil {
		w.o.OnFull(full)
	}
}

// due lists what to do after an append.
type due struct {
	trim   bool
	before wlog.Index // where to trim to
	upTo   uint32     // what to ask Reclaim for; 0 = nothing
}

// finish accounts for a group that was appended, or with an error was not.
func (w *Writer) finish(g *commitGroup, at wlog.Index, size int, err error) due {
	if err != nil {
		w.fail(err)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.pending -= int64(len(g.entry))
	w.o.Waiting.Add(-int64(len(g.entry)))
	if err != nil {
		return due{}
	}
	in := w.appended(at, size)
	w.extents.apply(g.freed, in)
	if w.overtaken {
		w.prune(slices.Values(w.queue.groups))
	}
	return w.due()
}

// appended accounts for an entry of so many bytes; 0 = none was appended. The caller holds mu.
func (w *Writer) appended(at wlog.Index, size int) (in uint32) {
	if size == 0 {
		return w.extents.current()
	}
	w.stats.Appends++
	w.stats.Bytes += uint64(size)
	in = w.extents.append(at, w.o.Size(size))
	w.extent.Store(w.extents.current())
	return in
}

// due returns what to do now. The caller holds mu.
func (w *Writer) due() (d due) {
	if w.recovered {
		d.before, d.trim = w.extents.trim()
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
	w.round.end()
	w.updateCaughtUp()
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
