// Package store owns the data directory. It opens the logs, recovers vhosts, users and queues from them, and raises alarms.
//
// Shard 0 holds definitions: of vhosts, of what is durable in them, of users and of global parameters. The other shards hold
// messages, each durable queue's in one of them. When the store is open, vhosts write definitions through their
// [vhost.DefinitionLog], and queues messages through their [queue.Journal].
package store

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"

	"github.com/curfewmq/curfew/core/auth"
	"github.com/curfewmq/curfew/core/chain"
	"github.com/curfewmq/curfew/core/clock"
	"github.com/curfewmq/curfew/core/journal"
	"github.com/curfewmq/curfew/core/queue"
	"github.com/curfewmq/curfew/core/telemetry"
	"github.com/curfewmq/curfew/core/vhost"
	"github.com/curfewmq/curfew/core/wlog"
	"github.com/curfewmq/curfew/core/wlog/seg"
	"github.com/curfewmq/curfew/core/wlog/vfs"
	"github.com/curfewmq/curfew/policies"
	"github.com/curfewmq/curfew/sdk/hook"
)

// Options are what a store is opened with.
type Options struct {
	Dir         vfs.FS
	Durability  seg.Durability
	SegmentSize int64 // of the logs' files, bytes; 0 = the engine's default
	Extent      int64 // of the logs, and how much larger than its live bytes a log may always be, bytes; 0 = the defaults
	Shards      int   // that new queues are spread over, 1 to [MaxShards]
	Chain       *chain.Chain
	Rules       *policies.Rules // of policies; nil = those of Chain
	Clock       clock.Clock
	Log         *slog.Logger
	Hashing     auth.Algorithm      // of new passwords; "" = the default
	Telemetry   *telemetry.Recorder // nil = nothing is recorded
	Bindings    int                 // a vhost may have; 0 = any number
	DiskLimit   int64               // see [Store.SetDiskLimit]
}

// MaxShards is how many shards of messages there may be: a queue's number holds that of its shard in the lowest byte.
const MaxShards = 255

const (
	shardBits        = 8 // of a queue's number, for that of its shard
	definitionsShard = 0

	// definitionsExtent is the size of an extent in the definitions' log: they are small.
	definitionsExtent = 256 << 10
	// minCompactBytes is the size from which on definitions are rewritten.
	minCompactBytes = 1 << 20

	// messagesExtent is the size of an extent in a log of messages, and the excess that is always allowed there. Both are less
	// on a small disk.
	messagesExtent    = 16 << 20
	extentsPerSegment = 4
	slackSegments     = 2
)

// Store is an open data directory. It is safe for concurrent use.
type Store struct {
	engine *seg.Engine
	log    *slog.Logger
	alarms alarms
	disk   disk

	definitions     *journal.Writer
	shards          []*shard // by number, less 1
	placementShards uint64   // new queues are spread over so many of them
	lastNumber      atomic.Uint64
	running         sync.WaitGroup

	reclaimUpTo atomic.Uint32 // definitions in extents up to this one are to be rewritten
	recovered   atomic.Bool   // definitions can be rewritten
	compacting  atomic.Bool

	minCompactBytes int64
	vhostConfig     vhost.Config // for new vhosts
	vhosts          vhosts
	users           *auth.Store
	userLog         *definitionLog
	globals         globals
}

// newStorage gives a new queue a number and a shard. Shards that failed are avoided.
func (s *Store) newStorage() *queue.Storage {
	n := s.lastNumber.Add(1)
	d := s.shards[n%s.placementShards]
	for i := range s.placementShards {
		if next := s.shards[(n+i)%s.placementShards]; next.Err() == nil {
			d = next
			break
		}
	}
	return d.storage(n<<shardBits | uint64(d.number))
}

// Users returns the users.
func (s *Store) Users() *auth.Store { return s.users }

// Alarms lists the alarms: "disk" while publishers wait for disk space, "shard N" for a log that failed.
func (s *Store) Alarms() []string { return s.alarms.names() }

// Full returns nil, or, while there is a disk alarm, a channel that is closed when it clears.
func (s *Store) Full() <-chan struct{} {
	if c := s.alarms.cleared.Load(); c != nil {
		return *c
	}
	return nil
}

// HasSpace returns a function that reports whether a directory's disk has more free space than logs need to go on. Other
// writers there, such as the spill file, leave them that. It works without a Store, and ignores [Store.SetDiskLimit].
func HasSpace(dir vfs.FS) (func() bool, error) {
	needed, err := seg.Needed(dir)
	return func() bool {
		space, ok := vfs.SpaceOf(dir)
		return !ok || space.Free > needed
	}, err
}

// Shortage returns what the disk lacks; nil = there is no disk alarm, or it is not known.
func (s *Store) Shortage() *Shortage {
	s.alarms.mu.Lock()
	defer s.alarms.mu.Unlock()
	return s.alarms.shortage()
}

// setSpace is called when the disk has no space for a shard's next segment, and, with nil, when it has again.
func (s *Store) setSpace(number uint32, low *Shortage) {
	s.alarms.setSpace(number, low)
	if number != definitionsShard {
		s.shards[number-1].setLowSpace(low != nil)
	}
}

// definitionsFailed is called when the log of definitions cannot be written any more. It does not wait.
func (s *Store) definitionsFailed(err error) {
	s.alarms.fail(definitionsShard)
	s.log.Error("the log of definitions failed: nothing durable can be declared or deleted until the broker is started again", "error", err)
	s.running.Go(func() {
		for _, v := range s.VHosts() {
			v.FailDefinitions(err)
		}
	})
}

// LogStats is the state of a log.
type LogStats struct {
	Shard uint32 // 0: the definitions'
	journal.Stats
	Disk seg.Stats
}

// Logs returns the state of all logs, in the order of their shards.
func (s *Store) Logs() []LogStats {
	all := make([]LogStats, 0, 1+len(s.shards))
	all = append(all, s.logStats(definitionsShard, s.definitions))
	for _, d := range s.shards {
		all = append(all, s.logStats(d.number, d.Writer))
	}
	return all
}

func (s *Store) logStats(number uint32, w *journal.Writer) LogStats {
	disk, _ := s.engine.Stats(number)
	return LogStats{Shard: number, Stats: w.Stats(), Disk: disk}
}

// queuesOf returns the queues whose messages are in a shard.
func (s *Store) queuesOf(shard *shard) []*queue.Mailbox {
	var all []*queue.Mailbox
	for _, v := range s.VHosts() {
		for _, q := range v.Queues() {
			if r := q.Config().Storage; r != nil && r.Journal == queue.Journal(shard) {
				all = append(all, q)
			}
		}
	}
	return all
}

// Close makes everything durable and closes the data directory. The vhosts must not be used any more. When ctx ends, commits
// that are not durable yet are lost.
func (s *Store) Close(ctx context.Context) error {
	s.disk.end()
	if d := s.endQueues(); d != (dropped{}) {
		s.log.Info("dropped what does not survive a restart", "messages", d.messages, "from_queues", d.from, "queues", d.queues)
	}
	s.awaitTransfers(ctx)
	var errs []error
	for _, d := range s.shards {
		errs = append(errs, s.closeLog(ctx, d.number, d.Writer))
	}
	errs = append(errs, s.closeLog(ctx, definitionsShard, s.definitions))
	s.running.Wait()
	return errors.Join(append(errs, s.engine.Close())...)
}

// closeLog closes a log. Commits for which the disk has no space were never confirmed, so they are no error.
func (s *Store) closeLog(ctx context.Context, shard uint32, w *journal.Writer) error {
	err := w.Close(ctx)
	if errors.Is(err, wlog.ErrFull) {
		s.log.Warn("the disk had no room for what was not confirmed yet: it is dropped", "shard", shard)
		return nil
	}
	return err
}

// awaitTransfers waits until dead letters have arrived in other shards, so that their removal can be committed: a restart would
// find them in both queues. It does not wait for a full disk.
func (s *Store) awaitTransfers(ctx context.Context) {
	arrived := make(chan struct{})
	s.running.Go(func() {
		defer close(arrived)
		for _, d := range s.shards {
			if !d.Stats().Full {
				_ = d.Sync() // nothing arrives in a shard that failed
			}
		}
	})
	select {
	case <-arrived:
	case <-ctx.Done():
	}
}

// dropped counts messages that were only in memory, the queues that had some, and queues that are not durable.
type dropped struct{ messages, from, queues int }

// endQueues has the queues commit what they have not committed yet, and counts what is dropped.
func (s *Store) endQueues() (d dropped) {
	for _, v := range s.VHosts() {
		for _, q := range v.Queues() {
			lost := 0
			if deleted := q.Do(func(q *queue.Queue, _ hook.Instant) { lost = q.End() }); deleted != nil {
				continue
			}
			d.messages += lost
			if lost > 0 {
				d.from++
			}
			if q.Config().Storage == nil {
				d.queues++
			}
		}
	}
	return d
}

// errorOf adds the shard to an error.
func errorOf(shard uint32, err error) error { return fmt.Errorf("shard %d: %w", shard, err) }
