package seg

import (
	"errors"
	"sync"

	"github.com/curfewmq/curfew/core/wlog"
	"github.com/curfewmq/curfew/core/wlog/vfs"
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

	mu      sync.Mutex // held while segments are given up; guards what follows
	first   uint32     // as it is written down, see beginning
	stopped bool
}

// trim gives up all segments that hold nothing from an index on, the oldest
// first.
func (r *reclaimer) trim(before wlog.Index) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.stopped {
		return nil
	}
	first, dead, left := r.table.keeps(before)
	if dead == 0 {
		return r.shrink(left)
	}
	if err := r.mark(first); err != nil {
		return err
	}
	for range dead {
		g, left, read := r.table.drop()
		if err := r.reclaim(g, left, read); err != nil {
			return err
		}
	}
	r.pool.look()
	return r.shrink(left)
}

// begin sees to it that it is written down which segment the log begins with.
func (r *reclaimer) begin() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	first, _, _ := r.table.keeps(0)
	return r.mark(max(first, r.first))
}

// mark writes down, durably, which segment the log begins with. Older ones may go
// after that. A disk too full for another name, which takes no space with most file
// systems, must not keep them.
func (r *reclaimer) mark(first uint32) error {
	if first == r.first {
		return nil
	}
	if err := r.write(first); err != nil {
		if r.first == 0 && vfs.NoSpace(err) {
			return nil
		}
		return err
	}
	r.first = first
	return r.fs.Sync()
}

func (r *reclaimer) write(first uint32) error {
	name := fileName(r.shard, first, firstFile)
	if r.first != 0 {
		return r.fs.Rename(fileName(r.shard, r.first, firstFile), name)
	}
	f, err := r.fs.Open(name, vfs.Create)
	if err != nil {
		return err
	}
	return f.Close()
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
