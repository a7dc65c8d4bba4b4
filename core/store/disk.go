package store

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/curfewmq/curfew/core/wlog/vfs"
)

// disk watches how much space the disk has left besides what the logs have set aside. Below the limit publishers wait, before
// any log does: others may need the disk, too.
type disk struct {
	dir     vfs.FS
	limit   atomic.Int64  // bytes; 0 = none
	changed chan struct{} // the limit has; capacity 1
	ended   chan struct{} // closed by end
	once    sync.Once     // closes ended
}

// end ends the watch, however often it is called.
func (d *disk) end() { d.once.Do(func() { close(d.ended) }) }

// Space left is looked at the sooner the less there is: as often as it could be used up at this rate, bytes a second.
const (
	fastest  = 250 << 20
	soonest  = 100 * time.Millisecond
	seldom   = 10 * time.Second
	relooked = 250 * time.Millisecond // while there is too little
)

// nextLook is when to look again with so much space left.
func nextLook(free, limit int64) time.Duration {
	if free < limit {
		return relooked
	}
	return min(max(time.Duration((free-limit)/(fastest/1000))*time.Millisecond, soonest), seldom)
}

// SetDiskLimit sets below how many bytes of free space publishers wait, from now on; 0 = they do not. It returns when that is
// in force.
func (s *Store) SetDiskLimit(bytes int64) {
	s.disk.limit.Store(max(bytes, 0))
	s.look()
	select {
	case s.disk.changed <- struct{}{}:
	default:
	}
}

// DiskLimit returns below how many bytes of free space publishers wait.
func (s *Store) DiskLimit() int64 { return s.disk.limit.Load() }

// watchDisk looks at the disk until the store is closed. Without a disk that says how much space it has it does nothing.
func (s *Store) watchDisk() {
	wait, known := s.look()
	if !known {
		return
	}
	s.running.Go(func() {
		timer := time.NewTimer(wait)
		defer timer.Stop()
		for {
			select {
			case <-timer.C:
			case <-s.disk.changed:
			case <-s.disk.ended:
				return
			}
			wait, _ = s.look()
			timer.Reset(wait)
		}
	})
}

// look compares what is free with the limit, and returns when to do so again. What a log has set aside for what comes next counts
// as free: it is of no use to anybody else, and would keep an alarm up that nothing could end.
func (s *Store) look() (wait time.Duration, known bool) {
	room, known := vfs.SpaceOf(s.disk.dir)
	if !known {
		return seldom, false
	}
	for _, l := range s.Logs() {
		room.Free += l.Disk.SpareBytes
	}
	limit := s.disk.limit.Load()
	var low *Shortage
	if room.Free < limit {
		low = &Shortage{Path: room.Path, Free: room.Free, Needed: limit}
	}
	s.alarms.limit(low)
	return nextLook(room.Free, limit), true
}
