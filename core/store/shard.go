package store

import (
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/curfewmq/curfew/core/journal"
	"github.com/curfewmq/curfew/core/queue"
	"github.com/curfewmq/curfew/sdk/hook"
)

// shard is a log that queues keep their messages in.
type shard struct {
	*journal.Writer // nil until it was opened

	number uint32
	store  *Store
	upTo   atomic.Uint32 // what is to be moved out of the way
	moving atomic.Bool

	mu     sync.Mutex // guards what follows
	low    bool       // the disk has little space left
	opened bool       // the journal is there
}

var _ queue.Journal = (*shard)(nil)

// record is the place of the queue with a number.
func (s *shard) record(id uint64) *queue.Storage {
	return &queue.Storage{Journal: s, ID: id, Shard: s.number}
}

// Err implements [queue.Journal].
func (s *shard) Err() error {
	if err := s.Writer.Err(); err != nil {
		return errorOf(s.number, err)
	}
	return nil
}

// open takes the journal into use.
func (s *shard) open(j *journal.Writer) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.Writer, s.opened = j, true
	if s.low {
		j.SetLowSpace(true)
	}
}

// space notes that the disk has little space left for the shard, or has enough.
func (s *shard) space(low bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.low = low
	if s.opened {
		s.SetLowSpace(low)
	}
}

// reclaim has what is live up to an extent written again. It does not wait.
func (s *shard) reclaim(upTo uint32) {
	s.upTo.Store(upTo)
	if s.moving.CompareAndSwap(false, true) {
		s.store.running.Go(s.move)
	}
}

// move goes through the shard's queues. It takes from each in turns, so that the queue has time for its clients, and waits
// for the disk in between, so that they have the disk.
func (s *shard) move() {
	defer s.moving.Store(false)
	for _, q := range s.store.queuesOf(s) {
		for more := true; more; {
			gone := q.Do(func(q *queue.Queue, _ hook.Instant) { more = q.Relocate(s.upTo.Load()) })
			if gone != nil {
				break
			}
			if more && s.Moved() != nil {
				return
			}
		}
	}
}

// failed is called when the log can no longer be written. It does not wait.
func (s *shard) failed(err error) {
	s.store.alarms.fail(s.number)
	s.store.log.Error("a log failed: its queues are stopped until the broker is started again", "shard", s.number, "error", err)
	s.store.running.Go(s.stop)
}

// stop has the queues take notice, which they else do when there is something to do for them.
func (s *shard) stop() {
	queues := 0
	for _, v := range s.store.VHosts() {
		queues += v.StopShard(s.number)
	}
	s.store.log.Error("queues are stopped", "shard", s.number, "queues", queues)
}

func (s *shard) String() string { return fmt.Sprintf("shard %d", s.number) }
