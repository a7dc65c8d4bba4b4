package journal

import (
	"errors"
	"fmt"
	"time"

	"github.com/curfewmq/curfew/core/wlog"
)

// flights are the groups whose entries are on their way, in order. They belong to run.
//
// In a log with a depth above 1, at most two entries are on their way, the second half a
// journey behind the first. With one entry at a time, publishers that limit their
// unconfirmed messages would all wait for the same journey, and then the log would wait for
// them. If the second entry began at once, it would have only the first of many commits. In
// a log with depth 1, entries follow one another.
type flights struct {
	pipeline wlog.Log // nil = its depth is 1
	list     []flight
	bytes    int           // of their entries
	began    time.Time     // when the latest journey began
	took     time.Duration // how long the latest journey took that has ended
	timer    *time.Timer   // wakes run when the next group may begin
	poke     chan struct{} // has a token when run should look for a group
}

// flight is a group on its way.
type flight struct {
	group *commitGroup
	began time.Time
	done  <-chan wlog.Appended // nil = the group has no entry, and is done when those before it are
}

const (
	maxFlights     = 2
	maxFlightBytes = 2 << 20 // of the entries on their way, unless one alone has more
	enoughBytes    = 1 << 20 // with so many bytes waiting, the next entry begins at once
)

func newFlights(l wlog.Log) (f flights) {
	if l.Depth() > 1 {
		f = flights{pipeline: l, timer: time.NewTimer(0), poke: make(chan struct{}, 1)}
		f.timer.Stop()
	}
	return f
}

// full reports whether a flight has to end before the next group may begin.
func (f *flights) full() bool { return len(f.list) >= maxFlights || f.bytes >= maxFlightBytes }

// earliest returns when the next group may begin behind those on their way.
func (f *flights) earliest(most time.Duration) time.Time {
	return f.began.Add(min(f.took/maxFlights, most))
}

// launch begins a group behind those on their way. It returns false if these have to end
// first.
func (w *Writer) launch(g *commitGroup) (launched bool, err error) {
	f := &w.flights
	if f.pipeline == nil || w.stuck || w.failure != nil {
		return false, nil
	}
	next := flight{group: g, began: time.Now()}
	if len(g.entry) > 0 {
		next.done, err = f.pipeline.Begin(g.entry, wlog.Settling)
		if errors.Is(err, wlog.ErrFull) {
			return false, nil
		}
		if err != nil {
			return false, fmt.Errorf("journal: append: %w", err)
		}
		f.began = next.began
	}
	f.list, f.bytes = append(f.list, next), f.bytes+len(g.entry)
	return true, nil
}

// land waits until the first flight has ended, and settles it.
func (w *Writer) land() {
	f := &w.flights
	first := f.list[0]
	if first.done == nil {
		w.landed(wlog.Appended{})
		return
	}
	w.landed(<-first.done)
}

func (w *Writer) landAll() {
	for len(w.flights.list) > 0 {
		w.land()
	}
}

// landed settles the first flight.
func (w *Writer) landed(a wlog.Appended) {
	f := &w.flights
	first := f.list[0]
	f.list[0] = flight{}
	f.list, f.bytes = append(f.list[:0], f.list[1:]...), f.bytes-len(first.group.entry)
	switch {
	case w.failure != nil:
		a.Err = w.failure
	case first.done == nil:
		a.Err = w.lost()
	case a.Err != nil:
		a.Err = fmt.Errorf("journal: append: %w", a.Err)
	default:
		f.took = time.Since(first.began)
	}
	w.settle(first.group, first.began, a, len(first.group.entry))
}

// await waits until the first flight has ended, and settles it, or until a group may begin.
func (w *Writer) await() {
	f := &w.flights
	if f.list[0].done == nil {
		w.landed(wlog.Appended{})
		return
	}
	select {
	case a := <-f.list[0].done:
		w.landed(a)
	case <-f.timer.C:
	case <-f.poke:
	}
}

// pause returns how long the first group in the queue has to wait. The caller holds mu.
func (w *Writer) pause() time.Duration {
	f := &w.flights
	if len(f.list) == 0 || w.pending-int64(f.bytes) >= enoughBytes || w.shutting() {
		return 0
	}
	return time.Until(f.earliest(w.o.Gather))
}

// expect makes the next commit call expected. The caller holds mu.
func (w *Writer) expect() {
	w.expecting = true
	w.earliest = w.flights.earliest(w.o.Gather)
}

// expected wakes run, at once or when the next entry may begin. The caller holds mu.
func (w *Writer) expected() {
	w.expecting = false
	if pause := time.Until(w.earliest); pause > 0 && !w.shutting() {
		w.flights.timer.Reset(pause)
		return
	}
	w.flights.hurry()
}

// hurry makes await return.
func (f *flights) hurry() {
	select {
	case f.poke <- struct{}{}:
	default:
	}
}
