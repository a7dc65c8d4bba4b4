// Package store owns the data directory. It opens the logs, recovers vhosts, users and
// queues from them, and raises alarms.
//
// Shard 0 is the [Registry]: users, global parameters, modules, and which vhosts there are
// in which shard. Each of the other shards holds vhosts: their durable definitions, which
// vhosts write through their [vhost.DefinitionLog], and messages, which queues write
// through their [queue.Journal]. A broker that is alone owns all shards, as a cluster of
// one; in a cluster owners change.
package store

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"

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

// Options configure a store.
type Options struct {
	Dir         vfs.FS
	Durability  seg.Durability
	SegmentSize int64         // of the logs' files, bytes; 0 = the engine's default
	Extent      int64         // bytes of the logs' extents, and by which a log may always exceed its live bytes; 0 = the defaults
	Shards      int           // number of shards that new vhosts are spread over, 1 to [MaxShards]
	Queues      *queue.Broker // shared by all queues of the broker, closed with the Store; nil = the Store makes it
	Chain       *chain.Chain
	Rules       *policies.Rules // of policies; nil = those of Chain
	Clock       clock.Clock
	Log         *slog.Logger
	Hashing     auth.Algorithm      // of new passwords; "" = the default
	Telemetry   *telemetry.Recorder // nil = nothing is recorded
	Bindings    int                 // a vhost may have; 0 = any number
	DiskLimit   int64               // see [Store.SetDiskLimit]
	// Progress is called at most once a second while a shard's log is replayed, with bytes. nil = no call.
	Progress func(shard uint32, done, total int64)

	// Cluster holds the logs of a node of a cluster, and is not closed by the Store; nil =
	// the broker is alone, and its logs are files in Dir. The Store serves the vhosts whose
	// shards the node owns, as owners change. Dir is only watched then, and may be nil.
	Cluster wlog.Cluster
	// Files has the node's copies of the shards of Cluster; nil = they are not in files.
	// Its events about space are to be passed to [Store.SetSpace].
	Files *seg.Engine
	// ClusterName and Members describe a new cluster; they must be equal on all nodes.
	ClusterName string
	Members     []Member
	// Owned is called each time that this node has begun to own the registry, before other
	// nodes send changes to it. nil = no call.
	Owned func(ctx context.Context, r *Registry) error
	// Modules is called with all modules of the registry before vhosts are served, and
	// whenever they have changed: one call at a time. nil = no call.
	Modules func([]*Module)
	// GiveUp is called if this node owns a shard that it cannot serve, so another should
	// own it. It must not block. nil = no call.
	GiveUp func(shard uint32)

	// Of tests:
	placements placements  // instead of the registry
	standby    standbyPace // instead of the usual one
}

// MaxShards is how many shards of vhosts there may be: a queue's number holds that of its shard in the lowest byte.
const MaxShards = 255

const (
	shardBits = 8 // of a queue's number, for that of its shard

	// definitionsExtent is the size of an extent in the registry's log: definitions are small.
	definitionsExtent = 256 << 10
	// minCompactBytes is the size from which on definitions are rewritten.
	minCompactBytes = 1 << 20

	// messagesExtent is the size of an extent in a log of messages, and the excess that is
	// always allowed there. Both are less on a small disk.
	messagesExtent    = 16 << 20
	extentsPerSegment = 4
	slackSegments     = 2
	// mostEntry and mostPending bound an entry, and the bytes that wait to be written. Both are less on a small disk.
	mostEntry   = 4 << 20
	mostPending = 16 << 20

	mixedSlack   = 64 << 20
	usualSegment = 64 << 20
)

// Store is an open data directory. It is safe for concurrent use.
type Store struct {
	files  *seg.Engine // that has the logs, or copies of them; nil = they are not in files
	log    *slog.Logger
	alarms alarms
	disk   disk

	alone   *alone // nil = the store is a node of a cluster
	cluster *cluster
	running sync.WaitGroup

	minCompactBytes int64
	vhostConfig     vhost.Config // for new vhosts
	vhosts          vhosts
	users           *auth.Store
	globals         *globals
}

// Registry returns this node's copy of the registry. A broker that is alone has one, too.
func (s *Store) Registry() *Registry { return s.cluster.shared }

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

// Fills returns a channel that is closed when the next disk alarm is raised: from then on, Full does not return nil.
func (s *Store) Fills() <-chan struct{} { return s.alarms.nextRaise() }

// HasSpace returns a function that reports whether a directory's disk has more free space
// than logs need to go on. Other writers there, such as the spill file, stop when it
// returns false. It works without a Store, and ignores [Store.SetDiskLimit].
func HasSpace(dir vfs.FS) (func() bool, error) {
	needed, err := seg.Needed(dir)
	return func() bool {
		space, ok := vfs.SpaceOf(dir)
		return !ok || space.Free > needed
	}, err
}

// Shortage describes how much space the disk lacks; nil = there is no disk alarm, or the
// shortage is not known.
func (s *Store) Shortage() *Shortage {
	s.alarms.mu.Lock()
	defer s.alarms.mu.Unlock()
	return s.alarms.shortage()
}

// SetOthersSpace is called in a cluster when another node has no space for the next segment
// of its copy of a shard, and, with false, when it has space again. In between, this node
// keeps the shard's log smaller if it owns the shard. Publishers do not wait, because the
// shard goes on without the node that lacks space.
func (s *Store) SetOthersSpace(number uint32, low bool) {
	if c := s.cluster; number > 0 && uint64(number) <= uint64(len(c.seats)) {
		c.seats[number-1].setTight(low)
	}
}

// SetSpace is called when the disk has no space for a shard's next segment, and, with nil, when it has again.
func (s *Store) SetSpace(number uint32, low *Shortage) {
	s.alarms.setSpace(number, low)
	s.cluster.setLowSpace(number, low != nil)
}

// LogStats is the state of a log.
type LogStats struct {
	Shard uint32 // 0: the registry's
	journal.Stats
	Disk seg.Stats
}

// Logs returns the state of all logs that this broker owns, in the order of their shards.
func (s *Store) Logs() (all []LogStats) {
	if r := s.Registry(); r != nil {
		if w := r.writer(); w != nil {
			all = append(all, s.logStats(registryShard, w))
		}
	}
	for _, d := range s.cluster.shards() {
		all = append(all, s.logStats(d.number, d.Writer))
	}
	return all
}

func (s *Store) logStats(number uint32, w *journal.Writer) LogStats {
	return LogStats{Shard: number, Stats: w.Stats(), Disk: s.fileStats(number)}
}

// fileStats describes the files of a log, or of a copy of one that another node owns.
func (s *Store) fileStats(number uint32) (st seg.Stats) {
	if s.files != nil {
		st, _ = s.files.Stats(number)
	}
	return st
}

// Snapshot returns the logs as they are now: everything that was confirmed before is in it.
// It contains what the logs would have if the broker were killed now, so it has at least
// one copy of a message that moves from one log to another. In a cluster it has this node's
// copies of the shards.
func (s *Store) Snapshot() (*seg.Snapshot, error) {
	if s.files == nil {
		return nil, errors.New("snapshot: the logs are not in files of this broker")
	}
	return s.files.Snapshot()
}

// PinnedBytes returns how much space of the disk is held by files of the logs that only snapshots need.
func (s *Store) PinnedBytes() (n int64) {
	for number := range s.numbers {
		n += s.fileStats(number).PinnedBytes
	}
	return n
}

// numbers yields the numbers of all shards that have files here.
func (s *Store) numbers(yield func(uint32) bool) {
	for number := range uint32(len(s.cluster.seats)) + 1 {
		if !yield(number) {
			return
		}
	}
}

// Close makes everything durable and closes the data directory. The vhosts must not be used
// any more. When ctx ends, commits that are not durable yet are lost.
func (s *Store) Close(ctx context.Context) error {
	s.disk.end()
	s.cluster.stop()
	all := s.cluster.shards()
	for _, d := range all {
		d.leaves()
	}
	if d := s.endQueues(); d != (dropped{}) {
		s.log.Info("dropped messages and queues that do not survive a restart", "messages", d.messages, "from_queues", d.from, "queues", d.queues)
	}
	s.awaitTransfers(ctx)
	var errs []error
	for _, d := range all {
		errs = append(errs, s.closeLog(ctx, d))
	}
	for _, d := range all {
		d.attends() // with the log closed, the duties wait for nothing any more
		d.running.Wait()
	}
	s.running.Wait()
	if r := s.cluster.shared; r != nil {
		r.close() //nolint:contextcheck // it gives up at once, whatever ctx is
	}
	if s.alone != nil {
		errs = append(errs, s.alone.engine.Close())
	}
	s.Queues().Close()
	return errors.Join(errs...)
}

// closeLog closes a log. Commits for which the disk has no space were never confirmed, so they are no error.
func (s *Store) closeLog(ctx context.Context, d *shard) error {
	err := d.Close(ctx)
	switch {
	case d.hasEnded():
		return nil // another node has the shard, or will have it
	case errors.Is(err, wlog.ErrFull):
		s.log.Warn("the disk had no space for changes that were not confirmed yet: they are dropped", "shard", d.number)
		return nil
	}
	return err
}

// awaitTransfers waits until dead letters have arrived in other shards, so that their
// removal can be committed. Otherwise a restart would find them in both queues. It does not
// wait for a full disk.
func (s *Store) awaitTransfers(ctx context.Context) {
	arrived := make(chan struct{})
	s.running.Go(func() {
		defer close(arrived)
		for _, d := range s.cluster.shards() {
			if !d.Stats().Full {
				_ = d.Sync() // an error means that the shard failed: no dead letter arrives there any more
			}
		}
	})
	select {
	case <-arrived:
	case <-ctx.Done():
	}
}

// Flush makes the clients' work so far durable, before other nodes take the shards over.
// Otherwise these nodes would deliver acknowledged messages again. Flush gives up when ctx
// ends, because without a majority of nodes nothing becomes durable.
func (s *Store) Flush(ctx context.Context) {
	for _, v := range s.VHosts() {
		for _, q := range append(v.Queues(), v.Schedules()...) {
			_ = q.Do(func(q *queue.Queue, _ hook.Instant) { q.Flush() }) // an error means that it is deleted
		}
	}
	s.awaitTransfers(ctx)
}

// dropped counts messages that were only in memory, the queues that had such messages, and
// queues that are not durable.
type dropped struct{ messages, from, queues int }

// endQueues makes the queues commit their pending operations, and counts the messages that
// are dropped.
func (s *Store) endQueues() (d dropped) {
	for _, v := range s.VHosts() {
		for _, q := range append(v.Queues(), v.Schedules()...) {
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

func errorOf(shard uint32, err error) error { return fmt.Errorf("shard %d: %w", shard, err) }

// DefaultVHost is the vhost of a new data directory.
const DefaultVHost = "/"

// Open opens a data directory and recovers the contents of its logs. It returns an error if
// ctx ends before it is done. In a cluster it returns at once, and recovers a shard when
// this node becomes its owner.
func Open(ctx context.Context, o Options) (*Store, error) {
	if o.Queues == nil {
		o.Queues = new(queue.Broker)
	}
	s := &Store{
		log: o.Log, minCompactBytes: cmp.Or(o.Extent, minCompactBytes),
		alarms:      newAlarms(o.Log, o.Telemetry),
		vhostConfig: vhost.Config{Queues: o.Queues, Chain: o.Chain, Clock: o.Clock, Log: o.Log, Telemetry: o.Telemetry, MaxBindings: o.Bindings},
		disk:        disk{dir: o.Dir, changed: make(chan struct{}, 1), ended: make(chan struct{})},
		vhosts:      vhosts{all: map[string]vhostEntry{}},
	}
	s.disk.limit.Store(max(o.DiskLimit, 0))
	if o.Rules == nil {
		o.Rules = policies.NewRules(slices.Concat(o.Chain.Arguments(), o.Chain.ExchangeKeys()), o.Chain.Strategies)
	}
	start := s.startCluster
	if o.Cluster == nil {
		start = s.startAlone
	}
	if err := start(ctx, o); err != nil {
		return nil, err
	}
	return s, nil
}
