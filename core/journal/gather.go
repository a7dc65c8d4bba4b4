package journal

import "time"

// gathering spaces the appends of a log, see [Options.Gather]. It belongs to run.
type gathering struct {
	until time.Time // when the next append may begin; zero = at once
}

const (
	manyCommits = 32       // of many publishers, or batches of one that does not wait for each confirm
	manyBytes   = 32 << 10 // of such batches
	enoughBytes = 1 << 20  // that wait: they are not kept waiting for more
)

// appended notes that a group was appended.
func (a *gathering) appended(g *commitGroup, began time.Time, most time.Duration) {
	a.until = time.Time{}
	if most == 0 || len(g.commits) < manyCommits && len(g.entry) < manyBytes {
		return
	}
	now := time.Now()
	a.until = now.Add(min(now.Sub(began), most))
}

// wait waits until the next append may begin, if something is to be appended.
func (a *gathering) wait(w *Writer) {
	if a.until.IsZero() {
		return
	}
	pause := time.Until(a.until)
	if pause <= 0 || !w.gathers() {
		return
	}
	select {
	case <-time.After(pause):
	case <-w.closing:
	}
}

// gathers reports whether something waits, and not much.
func (w *Writer) gathers() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.queue.groups) > 0 && w.pending < enoughBytes && w.failure == nil
}
