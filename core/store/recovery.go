package store

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"time"

	"github.com/curfewmq/curfew/core/clock"
	"github.com/curfewmq/curfew/core/journal"
	"github.com/curfewmq/curfew/core/queue"
	"github.com/curfewmq/curfew/core/telemetry"
	"github.com/curfewmq/curfew/core/vhost"
	"github.com/curfewmq/curfew/core/wlog"
	"github.com/curfewmq/curfew/core/wlog/seg"
	"github.com/curfewmq/curfew/policies"
	"github.com/curfewmq/curfew/sdk/hook"
)

// recovery makes a store from its logs.
type recovery struct {
	store    *Store
	options  Options
	replays  map[scope]*definitionReplay
	rewrites rewrites
	progress progress
}

func newRecovery(s *Store, o Options) *recovery {
	if o.Rules == nil {
		o.Rules = policies.NewRules(o.Chain.Arguments(), o.Chain.Strategies)
	}
	return &recovery{
		store: s, options: o, rewrites: rewrites{},
		replays: map[scope]*definitionReplay{
			s.userLog.scope:     {log: s.userLog, state: s.users},
			s.globals.log.scope: {log: s.globals.log, state: &s.globals},
		},
		progress: progress{log: o.Log, clock: o.Clock, began: o.Clock(), reported: o.Clock()},
	}
}

func (r *recovery) events() seg.Events {
	return seg.Events{
		Space:    r.store.setSpace,
		Progress: r.progress.report,
		Cut: func(shard uint32, file string, offset int64) {
			r.store.log.Warn("the last entry of a log was not finished, and is dropped: nobody was told that it was durable",
				"shard", shard, "file", file, "offset", offset)
		},
	}
}

// run takes the steps of the recovery.
func (r *recovery) run(ctx context.Context) error {
	if err := r.replayDefinitions(ctx); err != nil {
		return errorOf(definitionsShard, err)
	}
	if err := r.addShards(ctx); err != nil {
		return err
	}
	queues, err := r.buildVHosts()
	if err == nil {
		err = r.createUsers()
	}
	if err != nil {
		return errorOf(definitionsShard, err)
	}
	if err := r.replayMessages(ctx, queues); err != nil {
		return err
	}
	r.store.recovered.Store(true)
	r.progress.summarise(r.options.Telemetry.Spans())
	return nil
}

func (r *recovery) replayDefinitions(ctx context.Context) (err error) {
	s := r.store
	s.definitions, err = journal.Open(ctx, s.engine, definitionsShard, r.replayDefinitionEntry, journal.Options{
		Extent: cmp.Or(r.options.Extent, definitionsExtent), Slack: s.minCompactBytes, Reclaim: s.reclaim,
		Purpose:  wlog.Moving, // definitions are small, and a client that makes room may have to declare something first
		OnFull:   func(full bool) { s.alarms.setBlocked(definitionsShard, full) },
		OnFailed: s.definitionsFailed,
	})
	if err != nil {
		return err
	}
	if err := r.replayErrors(); err != nil {
		return err
	}
	var live []journal.Delta
	for _, p := range r.replays {
		live = append(live, p.log.usage.extents...)
	}
	s.definitions.Recovered(live)
	return nil
}

// addShards adds the shards of messages: as many as the options say, and all that have a log.
func (r *recovery) addShards(ctx context.Context) error {
	n := uint32(r.options.Shards)
	logs, err := r.store.engine.Shards(ctx)
	if err != nil {
		return err
	}
	if n = max(n, slices.Max(append(logs, 0))); n > MaxShards {
		return fmt.Errorf("shard %d: the highest number is %d", n, MaxShards)
	}
	for number := uint32(1); number <= n; number++ {
		r.store.shards = append(r.store.shards, &shard{number: number, store: r.store})
	}
	return nil
}

// buildVHosts makes the vhosts and their durable queues, still without messages. A new data directory gets the default vhost.
func (r *recovery) buildVHosts() (queues []*queue.Mailbox, err error) {
	if len(r.replays) == 2 && !r.usersDefined() { // of users and global parameters, none of a vhost
		return nil, r.createDefaultVHost()
	}
	for of, p := range r.replays {
		if p.vhost == nil {
			continue
		}
		v := r.store.newVHost(of.vhost, vhost.Metadata{}, p.log)
		r.store.vhosts.add(v)
		restored, err := v.Restore(p.vhost, r.storageOf)
		if err != nil {
			return nil, err
		}
		queues = append(queues, restored...)
		p.log.usage.compacted = int64(len(v.Definitions()))
	}
	r.progress.queues = len(queues)
	r.store.warnOfMissingTypes()
	return queues, nil
}

// warnOfMissingTypes logs each exchange type that exchanges have and no plugin offers.
func (s *Store) warnOfMissingTypes() {
	counts := map[string]int{}
	for _, v := range s.VHosts() {
		for kind, n := range v.MissingTypes() {
			counts[kind] += n
		}
	}
	for _, kind := range slices.Sorted(maps.Keys(counts)) {
		s.log.Warn("no plugin of the chain offers an exchange type that exchanges have: they stay, but messages to them are refused",
			"type", kind, "exchanges", counts[kind])
	}
}

func (r *recovery) createDefaultVHost() error {
	of := scope{scopeVHost, DefaultVHost}
	v := r.store.newVHost(DefaultVHost, vhost.Metadata{Description: "Default virtual host"}, newDefinitionLog(r.store, of))
	r.store.vhosts.add(v)
	v.log.Rewrite(slices.Values([][]byte{v.Definitions()}))
	return v.log.WaitDurable()
}

// usersDefined reports whether the data directory ever had users.
func (r *recovery) usersDefined() bool { return r.replays[r.store.userLog.scope].replayed }

// createUsers creates the default user if the data directory never had users.
func (r *recovery) createUsers() error {
	s := r.store
	s.userLog.usage.compacted = int64(len(s.users.Definitions()))
	if r.usersDefined() {
		return nil
	}
	return s.users.CreateDefaults()
}

// storageOf returns the storage of a queue that existed before the restart.
func (r *recovery) storageOf(id uint64) (*queue.Storage, error) {
	shard := id & (1<<shardBits - 1)
	if shard == 0 || shard > uint64(len(r.store.shards)) {
		return nil, fmt.Errorf("number %d: there is no shard %d", id, shard)
	}
	return r.store.shards[shard-1].storage(id), nil
}

// replayMessages fills the queues of all shards, and only then starts them: they may dead-letter messages to other shards.
func (r *recovery) replayMessages(ctx context.Context, queues []*queue.Mailbox) error {
	replayers := make([]*queue.Replayer, len(r.store.shards))
	for i, d := range r.store.shards {
		var err error
		if replayers[i], err = r.replayShard(ctx, d, queues); err != nil {
			return errorOf(d.number, err)
		}
	}
	for i, d := range r.store.shards {
		d.Recovered(nil) // the queues have accounted for their messages
		replayers[i].Start()
	}
	return nil
}

// replayShard fills the queues of one shard.
func (r *recovery) replayShard(ctx context.Context, d *shard, queues []*queue.Mailbox) (*queue.Replayer, error) {
	replayer := queue.NewReplayer(slices.DeleteFunc(slices.Clone(queues), func(q *queue.Mailbox) bool {
		return q.Config().Storage.Journal != queue.Journal(d)
	}))
	replay := func(extent uint32, at wlog.Index, ops []byte) error {
		r.progress.count(ops)
		if err := replayer.Apply(extent, ops); err != nil {
			return fmt.Errorf("entry %#x: %w", at, err)
		}
		return nil
	}
	segment := r.store.engine.SegmentSize()
	w, err := journal.Open(ctx, r.store.engine, d.number, replay, journal.Options{
		Extent:   cmp.Or(r.options.Extent, min(messagesExtent, segment/extentsPerSegment)),
		Slack:    cmp.Or(r.options.Extent, min(messagesExtent, slackSegments*segment)),
		Size:     wlog.EntrySize,
		OnFull:   func(full bool) { r.store.alarms.setBlocked(d.number, full) },
		OnFailed: d.failed,
		Reclaim:  d.reclaim,
	})
	if err != nil {
		return nil, err
	}
	d.opened(w)
	r.progress.messages += replayer.Fill()
	return replayer, nil
}

// progress counts what was replayed, and logs it once a second.
type progress struct {
	log             *slog.Logger
	clock           clock.Clock
	began, reported hook.Instant

	entries, messages, queues int
	bytes                     int64
}

func (p *progress) count(entry []byte) {
	p.entries++
	p.bytes += int64(len(entry))
}

func (p *progress) report(shard uint32, done, total int64) {
	now := p.clock()
	if now.Sub(p.reported) < time.Second {
		return
	}
	p.reported = now
	p.log.Info("recovering", "shard", shard, "bytes", done, "of", total, "seconds", now.Sub(p.began).Seconds())
}

// summarise logs the recovery, and records it as a span unless spans is nil.
func (p *progress) summarise(spans *telemetry.Spans) {
	if p.entries == 0 {
		return
	}
	ended := p.clock()
	p.log.Info("recovered", "queues", p.queues, "messages", p.messages, "entries", p.entries, "bytes", p.bytes,
		"seconds", ended.Sub(p.began).Seconds())
	if spans != nil {
		spans.Recovered(&telemetry.Recovery{
			Began: p.began, Ended: ended, Bytes: p.bytes, Entries: p.entries, Messages: p.messages, Queues: p.queues,
		})
	}
}
