// Package store is what of a broker survives its restart: the data directory with the logs in it, and the vhosts and users
// that are made of them.
//
// Shard 0 holds the definitions of vhosts, of what is durable in them, and of users, the others hold messages: a durable queue has its
// own in one of them. Opening the store replays all of them. From then on vhosts write definitions through their
// [vhost.DefinitionLog], and queues their messages through their [queue.Journal].
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
	Extent      int64 // of a log, that is given back together, and by how much a log may exceed what is of use in it, bytes; 0 = the defaults
	Shards      int   // that new queues are spread over, 1 to [MaxShards]
	Chain       *chain.Chain
	Rules       *policies.Rules // that policies follow; nil = the built-in ones
	Clock       clock.Clock
	Log         *slog.Logger
	Hashing     auth.Algorithm      // of new passwords; "" = the default
	Telemetry   *telemetry.Recorder // nil: nobody wants to be told
	Bindings    int                 // that a vhost may have; 0 = any number
	DiskLimit   int64               // see [Store.SetDiskLimit]
}

// MaxShards is how many shards of messages there may be: a queue's number has room for theirs in its lowest byte.
const MaxShards = 255

// shardBits is how much of a queue's number is that of its shard.
const shardBits = 8

// definitionsShard is where definitions are.
const definitionsShard = 0

// definitionsExtent is the part of the definitions' log that is dropped at once: they are small.
const definitionsExtent = 256 << 10

// minCompactBytes is below which size definitions are not rewritten.
const minCompactBytes = 1 << 20

// messagesExtent is the part of a log of messages that is dropped at once, and what may always be in it for nothing. On a
// small disk they are less.
const (
	messagesExtent    = 16 << 20
	extentsPerSegment = 4
	slackSegments     = 2
)

// Store is an opened data directory. Any goroutine may use it.
type Store struct {
	engine *seg.Engine
	log    *slog.Logger
	alarms alarms
	disk   disk

	meta    *journal.Writer
	shards  []*shard // by number, less 1
	spread  uint64   // how many of them new queues are spread over
	numbers atomic.Uint64
	running sync.WaitGroup

	stale      atomic.Uint32 // definitions up to this extent are to be written again
	recovered  atomic.Bool   // there is somebody to do so
	condensing atomic.Bool

	worthwhile int64        // below which size definitions are not rewritten
	making     vhost.Config // what vhosts are made with
	vhosts     vhosts
	users      *auth.Store
	keeper     *definitionLog // of the users
	globals    globals
}

// place gives a new queue a number, and a shard, which is none that failed if there is a choice.
func (s *Store) place() *queue.Storage {
	n := s.numbers.Add(1)
	d := s.shards[n%s.spread]
	for i := range s.spread {
		if next := s.shards[(n+i)%s.spread]; next.Err() == nil {
			d = next
			break
		}
	}
	return d.record(n<<shardBits | uint64(d.number))
}

// Users returns the users, whose changes are kept.
func (s *Store) Users() *auth.Store { return s.users }

// Alarms names what is wrong: "disk" while there is no space left, "shard N" for a log that failed.
func (s *Store) Alarms() []string { return s.alarms.names() }

// Full returns nil, or, while there is no space on the disk, what is closed when there is again.
func (s *Store) Full() <-chan struct{} {
	if c := s.alarms.room.Load(); c != nil {
		return *c
	}
	return nil
}

// Room returns what reports whether a directory's disk has more free than logs need to go on: what else lies there should
// leave them that. It can be asked before there is a Store, and does not know of a limit that was set.
func Room(dir vfs.FS) (func() bool, error) {
	needed, err := seg.Needed(dir)
	return func() bool {
		room, ok := vfs.SpaceOf(dir)
		return !ok || room.Free > needed
	}, err
}

// Shortage says what the disk lacks, nil while there is no alarm for it, or when that is not known.
func (s *Store) Shortage() *Shortage {
	s.alarms.mu.Lock()
	defer s.alarms.mu.Unlock()
	return s.alarms.shortage()
}

// space is told when the disk has no room for what a shard will need next, and, with nil, when it has again.
func (s *Store) space(number uint32, low *Shortage) {
	s.alarms.space(number, low)
	if number != definitionsShard {
		s.shards[number-1].space(low != nil)
	}
}

// queuesOf lists the queues that have their messages in a shard.
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

// Close makes everything durable and gives the data directory up. Nobody may use the vhosts any more. What is left when ctx
// ends is lost.
func (s *Store) Close(ctx context.Context) error {
	s.disk.end()
	if d := s.end(); d != (dropped{}) {
		s.log.Info("dropped what does not survive a restart", "messages", d.messages, "from_queues", d.from, "queues", d.queues)
	}
	s.awaitTransfers(ctx)
	var errs []error
	for _, d := range s.shards {
		errs = append(errs, s.closed(d.number, d.Close(ctx)))
	}
	errs = append(errs, s.closed(definitionsShard, s.meta.Close(ctx)))
	s.running.Wait()
	return errors.Join(append(errs, s.engine.Close())...)
}

// closed returns why a log was not closed well. That the disk had no room for what nobody was told to be durable is no such
// reason.
func (s *Store) closed(shard uint32, err error) error {
	if errors.Is(err, wlog.ErrFull) {
		s.log.Warn("the disk had no room for what was not confirmed yet: it is dropped", "shard", shard)
		return nil
	}
	return err
}

// awaitTransfers waits for messages that are on their way from one shard to another, so that the one they left can be told: else a
// restart would find them in both. A full disk is not waited for.
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

// dropped is what was in memory alone: messages, from how many queues, and queues.
type dropped struct{ messages, from, queues int }

// end ends the queues, which write what they have not written yet, and counts what is dropped.
func (s *Store) end() (d dropped) {
	for _, v := range s.VHosts() {
		for _, shell := range v.Queues() {
			lost := 0
			gone := shell.Do(func(q *queue.Queue, _ hook.Instant) { lost = q.End() })
			if gone != nil {
				continue
			}
			d.messages += lost
			if lost > 0 {
				d.from++
			}
			if shell.Config().Storage == nil {
				d.queues++
			}
		}
	}
	return d
}

// errorOf names the shard that an error is about.
func errorOf(shard uint32, err error) error { return fmt.Errorf("shard %d: %w", shard, err) }
