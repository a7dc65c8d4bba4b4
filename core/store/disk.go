package store

import (
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/curfewmq/curfew/core/journal"
	"github.com/curfewmq/curfew/core/queue"
	"github.com/curfewmq/curfew/core/wlog/vfs"
)

// disk watches the free space of the data directory's disk. Below the limit publishers
// wait, before any log lacks space, because other programs may need the disk, too.
type disk struct {
	dir     vfs.FS
	limit   atomic.Int64  // bytes; 0 = none
	changed chan struct{} // capacity 1: receives when the limit changed
	ended   chan struct{} // closed by end
	once    sync.Once     // closes ended
}

func (d *disk) end() { d.once.Do(func() { close(d.ended) }) }

// The free space is checked again before it could be used up at a rate of fillRate.
const (
	fillRate    = 250 << 20 // bytes per second
	minInterval = 100 * time.Millisecond
	maxInterval = 10 * time.Second
	lowInterval = 250 * time.Millisecond // while there is too little
)

// checkInterval returns how long to wait until the next check.
func checkInterval(free, limit int64) time.Duration {
	if free < limit {
		return lowInterval
	}
	return min(max(time.Duration((free-limit)/(fillRate/1000))*time.Millisecond, minInterval), maxInterval)
}

// SetDiskLimit sets the free space in bytes below which publishers wait; 0 = they do not.
// It is in force when SetDiskLimit returns.
func (s *Store) SetDiskLimit(bytes int64) {
	s.disk.limit.Store(max(bytes, 0))
	s.checkDisk()
	select {
	case s.disk.changed <- struct{}{}:
	default:
	}
}

// DiskLimit returns the free space in bytes below which publishers wait.
func (s *Store) DiskLimit() int64 { return s.disk.limit.Load() }

// mostGranted returns the bytes of the largest grant that an empty disk allows. It does not
// subtract the present files of others: they may go, so they are no reason to refuse a
// message for good.
func (s *Store) mostGranted() int64 {
	if s.disk.dir == nil {
		return math.MaxInt64
	}
	space, ok := vfs.SpaceOf(s.disk.dir)
	if !ok {
		return math.MaxInt64
	}
	return journal.MostGranted(space.Total, s.segmentSize()/extentsPerSegment, queue.MovedBytes, len(s.cluster.seats))
}

// LargestMessage returns how many bytes the body of a message may have. A larger message
// would wait for space for ever, and so would all messages behind it.
func (s *Store) LargestMessage() int64 {
	const others = 256 << 10 // bytes that are written along with a body
	return max(s.mostGranted()-others, 0)
}

// watchDisk checks the disk until the store is closed, unless the file system does not report its free space.
func (s *Store) watchDisk() {
	wait, known := s.checkDisk()
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
			wait, _ = s.checkDisk()
			timer.Reset(wait)
		}
	})
}

// checkDisk compares the free space with the limit, and returns how long to wait until the
// next check. Spare files of the logs count as free space: otherwise they could raise an
// alarm that nothing would clear.
func (s *Store) checkDisk() (wait time.Duration, known bool) {
	space, known := vfs.SpaceOf(s.disk.dir)
	if !known {
		return maxInterval, false
	}
	for number := range s.numbers {
		space.Free += s.fileStats(number).SpareBytes
	}
	limit := s.disk.limit.Load()
	var low *Shortage
	if space.Free < limit {
		low = &Shortage{Path: space.Path, Free: space.Free, Needed: limit}
	}
	s.alarms.setLimit(low)
	return checkInterval(space.Free, limit), true
}
