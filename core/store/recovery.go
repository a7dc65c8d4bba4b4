package store

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/curfewmq/curfew/core/journal"
	"github.com/curfewmq/curfew/core/queue"
	"github.com/curfewmq/curfew/core/vhost"
	"github.com/curfewmq/curfew/core/wlog"
	"github.com/curfewmq/curfew/core/wlog/seg"
)

// recovery makes a store from its logs.
type recovery struct {
	store    *Store
	options  Options
	replay   *shardFold
	users    *foldScope
	progress progress
}

func newRecovery(s *Store, o Options) *recovery {
	replay := newShardFold(s.definitions, o.Rules, nil)
	replay.add(s.globalLog, s.globals)
	return &recovery{
		store: s, options: o, replay: replay, users: replay.add(s.userLog, s.users),
		progress: progress{log: o.Log, clock: o.Clock, began: o.Clock(), reported: o.Clock(), notify: o.Progress},
	}
}

func (r *recovery) events() seg.Events {
	return seg.Events{
		Space:    r.store.SetSpace,
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
	r.store.definitions.ready.Store(true)
	r.progress.summarise(r.options.Telemetry.Spans())
	return nil
}

func (r *recovery) replayDefinitions(ctx context.Context) error {
	s := r.store
	d := s.definitions
	replay := func(extent uint32, at wlog.Index, entry []byte) error {
		r.progress.count(entry)
		return r.replay.entry(extent, at, entry)
	}
	w, err := journal.Open(ctx, s.engine, definitionsShard, replay, journal.Options{
		Extent: cmp.Or(r.options.Extent, definitionsExtent), Slack: s.minCompactBytes, Reclaim: d.reclaim,
		Waiting:  s.vhostConfig.Queues.JournalBytes(),
		Purpose:  wlog.Moving, // definitions are small, and a client that makes room may have to declare something first
		OnFull:   func(full bool) { s.alarms.setBlocked(definitionsShard, full) },
		OnFailed: d.failed,
	})
	if err != nil {
		return err
	}
	d.opened(w)
	live, err := r.replay.done()
	if err == nil {
		d.Recovered(live)
	}
	return err
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
		r.store.shards = append(r.store.shards, &shard{number: number, store: r.store, holdsMessages: true})
	}
	return nil
}

// buildVHosts makes the vhosts and their durable queues, still without messages. A new data directory gets the default vhost.
func (r *recovery) buildVHosts() (queues []*queue.Mailbox, err error) {
	vhosts := maps.Collect(r.replay.vhosts)
	if len(vhosts) == 0 && !r.users.read { // the data directory never had users either
		return nil, r.createDefaultVHost()
	}
	for name, p := range vhosts {
		v := r.store.newVHost(r.store.definitions, name, vhost.Metadata{}, 0, p.log)
		r.store.vhosts.add(v)
		restored, err := v.Restore(p.vhost, r.storageOf)
		if err != nil {
			return nil, err
		}
		queues = append(queues, restored...)
		p.log.usage.compacted = int64(len(v.Definitions()))
	}
	r.progress.queues = len(queues)
	r.store.warnOfMissingTypes(r.store.vhosts.list())
	return queues, nil
}

// warnOfMissingTypes logs each exchange type that exchanges have and no plugin offers.
func (s *Store) warnOfMissingTypes(vhosts []vhostEntry) {
	counts := map[string]int{}
	for _, v := range vhosts {
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
	v := r.store.newVHost(r.store.definitions, DefaultVHost, vhost.Metadata{Description: "Default virtual host"}, 0, newDefinitionLog(r.store.definitions, of))
	r.store.vhosts.add(v)
	v.log.Rewrite(slices.Values([][]byte{v.Definitions()}))
	return v.log.WaitDurable()
}

// createUsers creates the default user if the data directory never had users.
func (r *recovery) createUsers() error {
	s := r.store
	s.userLog.usage.compacted = int64(len(s.users.Definitions()))
	if r.users.read {
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
	restorers := make([]*queue.Restorer, len(r.store.shards))
	for i, d := range r.store.shards {
		var err error
		if restorers[i], err = r.replayShard(ctx, d, queues); err != nil {
			return errorOf(d.number, err)
		}
	}
	for i, d := range r.store.shards {
		d.Recovered(nil) // the queues have accounted for their messages
		restorers[i].Start()
	}
	return nil
}

// replayShard fills the queues of one shard.
func (r *recovery) replayShard(ctx context.Context, d *shard, queues []*queue.Mailbox) (*queue.Restorer, error) {
	queues = slices.DeleteFunc(slices.Clone(queues), func(q *queue.Mailbox) bool {
		return q.Config().Storage.Journal != queue.Journal(d)
	})
	restorer := r.store.vhostConfig.Queues.NewRestorer()
	for _, q := range queues {
		restorer.Declare(q.Config().Storage.ID, kindOf(q))
	}
	restorer.DeclaredOnly()
	replay := func(extent uint32, at wlog.Index, ops []byte) error {
		r.progress.count(ops)
		rest, err := restorer.Apply(extent, ops)
		if err == nil && len(rest) > 0 {
			err = errors.New("definitions in a log of messages")
		}
		if err != nil {
			return fmt.Errorf("entry %#x: %w", at, err)
		}
		return nil
	}
	w, err := journal.Open(ctx, r.store.engine, d.number, replay, r.store.journalOptions(d, r.options.Extent, messagesExtent))
	if err != nil {
		restorer.Discard()
		return nil, err
	}
	d.opened(w)
	r.progress.messages += restorer.Fill(queues)
	return restorer, nil
}

func kindOf(q *queue.Mailbox) queue.Kind {
	if q.Config().Schedule != nil {
		return queue.Holding
	}
	return queue.Ordinary
}

// journalOptions returns what the log of a shard with messages is opened with, whatever else is in it. extent is what Options name, 0 =
// the default; slack is how much larger than its live bytes the log may always be, at most.
func (s *Store) journalOptions(d *shard, extent, slack int64) journal.Options {
	segment := s.segmentSize()
	return journal.Options{
		Extent:  cmp.Or(extent, min(messagesExtent, segment/extentsPerSegment)),
		Slack:   cmp.Or(extent, min(slack, slackSegments*segment)),
		Entry:   int(min(mostEntry, segment/extentsPerSegment)),
		Pending: min(mostPending, segment/extentsPerSegment),

		Waiting:    s.vhostConfig.Queues.JournalBytes(),
		Operations: journal.Operations{Without: queue.Without, Records: queue.Records, Marks: queue.Marks},
		Size:       wlog.EntrySize,
		OnFull:     func(full bool) { s.alarms.setBlocked(d.number, full) },
		OnFailed:   d.failed,
		Reclaim:    d.reclaim,
	}
}

// segmentSize returns how long the files of the logs are made, in bytes.
func (s *Store) segmentSize() int64 {
	if s.files == nil {
		return usualSegment
	}
	return s.files.SegmentSize()
}
