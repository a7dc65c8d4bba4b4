package seg

import (
	"errors"
	"sync"

	"github.com/curfewmq/curfew/core/wlog"
)

// Files that wait to become segments: so many are kept while the log has closed
// segments, and so many once it has none.
const (
	idleInUse   = 2
	idleDrained = 1
)

// reclaimer gives up segments at the beginning of the log.
type reclaimer struct {
	*storage
	table *table
	pool  *pool

	mu      sync.Mutex // held while segments are given up; guards stopped
	stopped bool
}

// trim gives up all segments that hold nothing from an index on, the oldest
// first.
func (r *reclaimer) trim(before wlog.Index) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	for gave := false; !r.stopped; gave = true {
		g, left, read := r.table.drop(before)
		if g == nil {
			err := r.shrink(left)
			if gave {
				r.pool.look()
			}
			return err
		}
		if err := r.reclaim(g, left, read); err != nil {
			return err
		}
	}
	return nil
}

// reclaim takes a file out of the log for good before the next is touched: else
// a loss of power could leave a gap. A file that somebody still reads from is
// not used again.
func (r *reclaimer) reclaim(g *segment, left int, read bool) error {
	spare := named{shard: r.shard, number: g.number, kind: spareFile}
	spare.Name, spare.Size = fileName(r.shard, g.number, spareFile), g.size
	if err := r.fs.Rename(g.name, spare.Name); err != nil {
		return err
	}
	if err := r.fs.Sync(); err != nil {
		return err
	}
	if read {
		return r.fs.Remove(spare.Name)
	}
	if err := g.file.Close(); err != nil {
		return err
	}
	if r.pool.keep(spare, mostIdle(left)) {
		return nil
	}
	return r.fs.Remove(spare.Name)
}

// shrink removes spare files that a log with so many closed segments has no use
// for.
func (r *reclaimer) shrink(left int) error {
	var all error
	for _, f := range r.pool.surplus(mostIdle(left)) {
		all = errors.Join(all, r.fs.Remove(f.Name))
	}
	return all
}

func mostIdle(closed int) int {
	if closed == 0 {
		return idleDrained
	}
	return idleInUse
}

// stop waits for a trim in progress and lets no other begin.
func (r *reclaimer) stop() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.stopped = true
}
