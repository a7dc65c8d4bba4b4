package store

import (
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/curfewmq/curfew/core/journal"
	"github.com/curfewmq/curfew/core/queue"
	"github.com/curfewmq/curfew/core/wlog"
	"github.com/curfewmq/curfew/sdk/hook"
)

// shard is a log that queues keep their messages in.
type shard struct {
	number  uint32
	journal *journal.Shard // nil until it was opened
	store   *Store
	upTo    atomic.Uint32 // what is to be moved out of the way
	moving  atomic.Bool

	mu     sync.Mutex // guards what follows
	low    bool       // the disk has little space left
	opened bool       // journal is there
}

var _ queue.Journal = (*shard)(nil)

// Commit implements [queue.Journal].
func (s *shard) Commit(ops []byte, c queue.Completer) {
	if c == nil {
		s.journal.Commit(ops, nil, nil)
		return
	}
	s.journal.Commit(ops, nil, completer{c})
}

// completer passes on to a queue what became of operations.
type completer struct{ queue.Completer }

func (c completer) Durable(wlog.Index, int) { c.Completer.Durable() }

// Extent implements [queue.Journal].
func (s *shard) Extent() uint32 { return s.journal.Extent() }

// Account implements [queue.Journal].
func (s *shard) Account(ds []queue.Delta) {
	if len(ds) == 0 {
		return
	}
	live := make([]journal.Delta, len(ds))
	for i, d := range ds {
		live[i] = journal.Delta(d)
	}
	s.journal.Commit(nil, live, nil)
}

// Behind returns nil, or, while the log does not keep up, what is closed when it does.
func (s *shard) Behind() <-chan struct{} { return s.journal.Behind() }

// Sync waits until everything committed so far is durable.
func (s *shard) Sync() error { return s.journal.Sync() }

// open takes the journal into use.
func (s *shard) open(j *journal.Shard) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.journal, s.opened = j, true
	if s.low {
		j.Low(true)
	}
}

// space notes that the disk has little space left for the shard, or has enough.
func (s *shard) space(low bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.low = low
	if s.opened {
		s.journal.Low(low)
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
			gone := q.Do(func(q *queue.Queue, _ hook.Instant) { more = q.Move(s.upTo.Load()) })
			if gone != nil {
				break
			}
			if more && s.Sync() != nil {
				return
			}
		}
	}
}

// failed is called when the log can no longer be written.
func (s *shard) failed(err error) {
	s.store.alarms.fail(s.number)
	s.store.log.Error("a log failed: what is kept in it cannot be changed until the broker is started again",
		"shard", s.number, "error", err)
}

func (s *shard) String() string { return fmt.Sprintf("shard %d", s.number) }
