package store

import (
	"sync"
	"sync/atomic"

	"github.com/curfewmq/curfew/core/journal"
	"github.com/curfewmq/curfew/core/queue"
	"github.com/curfewmq/curfew/sdk/hook"
)

// shard is a log of vhosts that this broker owns, from when it takes the log over until it drops it.
type shard struct {
	*journal.Writer // nil until the log is open
	*tenure

	number uint32
	store  *Store

	lastNumber atomic.Uint64 // the last number given to a queue whose definition is in this log
	ready      atomic.Bool   // the queues have been started
	stopping   atomic.Bool   // its log has failed
	upTo       atomic.Uint32 // the last extent that is to be freed
	compacting atomic.Bool
	relocating atomic.Bool
	running    sync.WaitGroup

	mu       sync.Mutex // guards the fields below
	lowSpace bool
	tight    bool // another node lacks space for its copy
	isOpen   bool // Writer is set
}

var (
	_ queue.Journal = (*shard)(nil)
	_ queue.Granter = (*shard)(nil)
)

// newShard returns a shard whose log is not open yet.
func newShard(s *Store, number uint32) *shard { return &shard{store: s, number: number} }

// newStorage gives a new queue whose definition is in this log a number and a log for its messages.
func (s *shard) newStorage() *queue.Storage {
	return s.storage(s.lastNumber.Add(1)<<shardBits | uint64(s.number))
}

// numberGiven records that a number was given to a queue.
func (s *shard) numberGiven(n uint64) { s.lastNumber.Store(max(s.lastNumber.Load(), n)) }

func (s *shard) storage(id uint64) *queue.Storage {
	return &queue.Storage{Journal: s, ID: id, Shard: s.number}
}

// sync makes all entries of the log durable, if it usually leaves that to the operating
// system. A nil shard has no entries.
func (s *shard) sync() error {
	if s == nil || s.store.alone == nil || s.store.alone.sync == nil {
		return nil
	}
	return s.store.alone.sync(s.number)
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
	if s.tight {
		w.SetTight(true)
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

func (s *shard) setTight(tight bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.tight = tight
	if s.isOpen {
		s.SetTight(tight)
	}
}

// reclaim begins to relocate live messages in extents up to upTo, and to rewrite the scopes
// that have definitions there. It does not wait, and the two do not wait for each other,
// because either may make the space that the other needs. Before the queues are started,
// reclaim only notes upTo, and takeover.start calls it again: until then the queues run no
// task, and a start that fails must not wait for one.
func (s *shard) reclaim(upTo uint32) {
	s.upTo.Store(upTo)
	if !s.ready.Load() {
		return
	}
	if s.compacting.CompareAndSwap(false, true) {
		s.running.Go(s.compactDefinitions)
	}
	if s.relocating.CompareAndSwap(false, true) {
		s.running.Go(s.relocate)
	}
}

// relocate goes through the shard's queues. Each relocates a batch per turn, so that the
// queue has time for its clients, and waits for the disk in between, so that their commits
// are written, too.
func (s *shard) relocate() {
	defer s.relocating.Store(false)
	for _, q := range s.queues() {
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

// compactDefinitions rewrites the definitions of each scope that has some up to the extent upTo.
func (s *shard) compactDefinitions() {
	defer s.compacting.Store(false)
	for _, t := range s.guests.list() {
		t.CompactDefinitions()
	}
	s.compactNumbers()
}

// queues lists the queues whose messages are in the log.
func (s *shard) queues() (all []*queue.Mailbox) {
	for _, t := range s.guests.list() {
		for _, q := range append(t.Queues(), t.Schedules()...) {
			if r := q.Config().Storage; r != nil && r.Journal == queue.Journal(s) {
				all = append(all, q)
			}
		}
	}
	return all
}

// failed is called when the log cannot be written any more. It does not wait.
//
// In a cluster another node may be able to write the log. A broker that is alone keeps the
// shard: messages in memory, and queues that are not durable, stay available as far as
// possible.
func (s *shard) failed(err error) {
	if s.store.alone == nil {
		s.end(err)
		return
	}
	s.store.alarms.fail(s.number)
	s.store.log.Error("a log failed: its queues are stopped, and nothing durable can be declared or deleted in its virtual hosts, until the broker is started again",
		"shard", s.number, "error", err)
	if s.ready.Load() {
		s.stopLater(err)
	}
}

// stopLater stops everything whose state is in the log, once. The queues have been started:
// before, they run no task, and a start that fails must not wait for one.
func (s *shard) stopLater(err error) {
	if s.stopping.CompareAndSwap(false, true) {
		s.running.Go(func() { s.stop(err) })
	}
}

// stop stops everything whose state is in the log.
func (s *shard) stop(err error) {
	queues := 0
	for _, v := range s.guests.list() {
		v.FailDefinitions(err)
		queues += v.StopShard(s.number)
	}
	s.store.log.Error("queues are stopped", "shard", s.number, "queues", queues)
}
