package store

import (
	"sync"
	"sync/atomic"

	"github.com/curfewmq/curfew/core/journal"
	"github.com/curfewmq/curfew/core/queue"
	"github.com/curfewmq/curfew/sdk/hook"
)

// shard is a log of messages.
type shard struct {
	*journal.Writer // nil until the log is open

	number     uint32
	store      *Store
	upTo       atomic.Uint32 // the last extent to relocate messages from
	relocating atomic.Bool

	mu       sync.Mutex // guards what follows
	lowSpace bool
	isOpen   bool // Writer is set
}

var _ queue.Journal = (*shard)(nil)

// storage returns the storage of the queue with a number.
func (s *shard) storage(id uint64) *queue.Storage {
	return &queue.Storage{Journal: s, ID: id, Shard: s.number}
}

// Err implements [queue.Journal].
func (s *shard) Err() error {
	if err := s.Writer.Err(); err != nil {
		return errorOf(s.number, err)
	}
	return nil
}

// opened sets the writer, and passes on that the disk was low on space while the log was opened.
func (s *shard) opened(w *journal.Writer) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.Writer, s.isOpen = w, true
	if s.lowSpace {
		w.SetLowSpace(true)
	}
}

func (s *shard) setLowSpace(low bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lowSpace = low
	if s.isOpen {
		s.SetLowSpace(low)
	}
}

// reclaim has live messages in extents up to upTo relocated. It does not wait.
func (s *shard) reclaim(upTo uint32) {
	s.upTo.Store(upTo)
	if s.relocating.CompareAndSwap(false, true) {
		s.store.running.Go(s.relocate)
	}
}

// relocate goes through the shard's queues. Each relocates a batch per turn, so that the queue has time for its clients, and
// waits for the disk in between, so that their commits are written, too.
func (s *shard) relocate() {
	defer s.relocating.Store(false)
	for _, q := range s.store.queuesOf(s) {
		for more := true; more; {
			deleted := q.Do(func(q *queue.Queue, _ hook.Instant) { more = q.Relocate(s.upTo.Load()) })
			if deleted != nil {
				break
			}
			if more && s.WaitRelocated() != nil {
				return
			}
		}
	}
}

// failed is called when the log cannot be written any more. It does not wait.
func (s *shard) failed(err error) {
	s.store.alarms.fail(s.number)
	s.store.log.Error("a log failed: its queues are stopped until the broker is started again", "shard", s.number, "error", err)
	s.store.running.Go(func() {
		queues := 0
		for _, v := range s.store.VHosts() {
			queues += v.StopShard(s.number)
		}
		s.store.log.Error("queues are stopped", "shard", s.number, "queues", queues)
	})
}
