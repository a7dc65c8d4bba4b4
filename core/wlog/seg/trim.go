package seg

import (
	"sync"

	"github.com/curfewmq/curfew/core/wlog"
	"github.com/curfewmq/curfew/core/wlog/vfs"
)

// The number of idle files that are kept while the log has closed segments, and once it has none.
const (
	idleInUse   = 2
	idleDrained = 1
)

// reclaimer removes segments from the beginning of the log.
type reclaimer struct {
	*storage
	table *table
	pool  *pool

	mu      sync.Mutex // held while segments are removed; guards the rest
	first   uint32     // as recorded on disk, see recordedFirst
	stopped bool
}

// trim removes all segments that hold no entry at or behind an index, the oldest first.
func (r *reclaimer) trim(before wlog.Index) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.stopped {
		return nil
	}
	dead, first, left := r.table.dead(before)
	if dead > 0 {
		if err := r.recordFirst(first); err != nil {
			return err
		}
		for range dead {
			if err := r.reclaim(r.table.drop()); err != nil {
				return err
			}
		}
		r.pool.checkSpace()
	}
	_, err := r.pool.removeSurplus(mostIdle(left))
	return err
}

// begin makes sure that the log's first segment is recorded.
func (r *reclaimer) begin() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	_, first, _ := r.table.dead(0)
	return r.recordFirst(max(first, r.first))
}

// recordFirst records durably which segment the log begins with; older ones may be removed after that. On most file systems a name takes no
// space. If there is no space for it nevertheless, or no file can be opened, the log is trimmed without a record.
func (r *reclaimer) recordFirst(first uint32) error {
	if first == r.first {
		return nil
	}
	name := fileName(r.shard, first, firstFile)
	var err error
	if r.first != 0 {
		err = r.fs.Rename(fileName(r.shard, r.first, firstFile), name)
	} else {
		var f vfs.File
		if f, err = r.fs.Open(name, vfs.Create); err == nil {
			err = f.Close()
		}
		if vfs.Scarce(err) {
			return nil
		}
	}
	if err != nil {
		return err
	}
	r.first = first
	return r.fs.Sync()
}

// reclaim removes a file from the log durably before the next one is touched: otherwise a loss of power could leave a gap. A borrowed file
// is not reused.
func (r *reclaimer) reclaim(g *segment, left int, borrowed bool) error {
	spare := named{shard: r.shard, number: g.number, kind: spareFile}
	spare.Name, spare.Size = fileName(r.shard, g.number, spareFile), g.size
	if err := r.fs.Rename(g.name, spare.Name); err != nil {
		return err
	}
	if err := r.fs.Sync(); err != nil {
		return err
	}
	if borrowed {
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

// mostIdle returns how many idle files a log with closed segments keeps; closed is their number.
func mostIdle(closed int) int {
	if closed == 0 {
		return idleDrained
	}
	return idleInUse
}

// stop waits for a trim in progress, and prevents further ones.
func (r *reclaimer) stop() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.stopped = true
}
