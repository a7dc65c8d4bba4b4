package store

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/curfewmq/curfew/core/definition"
	"github.com/curfewmq/curfew/core/journal"
	"github.com/curfewmq/curfew/core/queue"
	"github.com/curfewmq/curfew/core/vhost"
	"github.com/curfewmq/curfew/core/wlog"
)

// takeover restores a shard of vhosts from its log, in which definitions and operations are mixed.
type takeover struct {
	shard       *shard
	definitions *shardFold
	restorer    *queue.Restorer
	replay      *journal.Replay
	progress    progress
	before      int64 // bytes that the standby restored, before the node owned the shard
	packed      int64 // progress.bytes when the restorer was last packed
}

// newTakeover begins to restore the shard of a seat.
func (c *cluster) newTakeover(t *seat) *takeover {
	s := newShard(c.store, t.number)
	s.tenure = &tenure{seat: t, guests: vhosts{all: map[string]vhostEntry{}}, leaves: func() {}, attends: func() {}}
	s.numbers = newDefinitionLog(s, scope{kind: scopeShard})
	r := &takeover{shard: s, restorer: c.store.vhostConfig.Queues.NewRestorer(), replay: journal.NewReplay(c.options.Cluster, c.journalOptions(s))}
	r.definitions = newShardFold(s, c.options.Rules, r.restorer)
	r.definitions.add(s.numbers, noState{})
	return r
}

// take implements [tenant].
func (c *cluster) take(ctx context.Context, t *seat, epoch uint64) (*shard, error) {
	c.awaitRegistry(ctx)
	r, err := c.restore(ctx, t, epoch)
	if err != nil {
		return nil, err
	}
	r.start()
	c.attend(ctx, r.shard)
	r.report()
	return r.shard, nil
}

// restore opens the shard's log, and makes the vhosts with the messages of their queues.
func (c *cluster) restore(ctx context.Context, t *seat, epoch uint64) (*takeover, error) {
	r, w, err := c.open(ctx, t)
	if err != nil {
		return nil, err
	}
	r.shard.epoch = epoch
	r.shard.opened(w)
	if err := r.fill(); err != nil {
		r.restorer.Discard()
		r.abandon(ctx)
		return nil, err
	}
	return r, nil
}

// open opens the shard's log, and restores the entries that the standby has not restored.
// If open fails for a reason that says nothing about the log, the standby gets the restored
// state back.
func (c *cluster) open(ctx context.Context, t *seat) (*takeover, *journal.Writer, error) {
	r := t.standby.give()
	if r == nil {
		r = c.newTakeover(t)
	}
	began := c.options.Clock()
	for {
		r.packed, r.before, r.progress = 0, r.before+r.progress.bytes, progress{log: c.store.log, clock: c.options.Clock, began: began, reported: began}
		o := c.journalOptions(r.shard)
		o.Replay = r.replay
		w, err := journal.Open(ctx, c.engine, t.number, r.entry, o)
		switch {
		case err == nil:
			return r, w, nil
		case errors.Is(err, wlog.ErrTrimmed): // the restored state is void
			r.restorer.Discard()
			r = c.newTakeover(t)
			continue
		case isPassing(err):
			t.standby.take(r)
		default:
			r.restorer.Discard()
		}
		return nil, nil, err
	}
}

// isPassing reports whether an error of a takeover says nothing about the log.
func isPassing(err error) bool {
	return errors.Is(err, context.Canceled) || errors.Is(err, wlog.ErrNotOwner) || errors.Is(err, wlog.ErrLost) || errors.Is(err, wlog.ErrNoOwner)
}

// gatherMost bounds how long a publisher's messages wait for those of other publishers, to
// become one entry with them.
const gatherMost = 2 * time.Millisecond

// journalOptions returns the options of the log of a shard of vhosts. To free the front of
// the log, all definitions of a vhost are written again. So the log may be longer than a
// log that has only messages.
func (c *cluster) journalOptions(s *shard) journal.Options {
	o := c.store.journalOptions(s, c.options.Extent, mixedSlack)
	if c.store.alone == nil {
		o.Gather, o.OnLost = gatherMost, s.lost
	}
	return o
}

// journalOptions returns the options of a log that has messages. extent is the Extent of
// Options; 0 = the default. slack bounds by how many bytes the log may always exceed its
// live bytes.
func (s *Store) journalOptions(d *shard, extent, slack int64) journal.Options {
	segment := s.segmentSize()
	return journal.Options{
		Extent:  cmp.Or(extent, min(messagesExtent, segment/extentsPerSegment)),
		Slack:   cmp.Or(extent, min(slack, slackSegments*segment)),
		Entry:   int(min(mostEntry, segment/extentsPerSegment)),
		Pending: min(mostPending, segment/extentsPerSegment),

		Waiting:  s.vhostConfig.Queues.JournalBytes(),
		Space:    s.vhostConfig.Queues.Space(),
		Unit:     segment / extentsPerSegment,
		Moves:    queue.MovedBytes,
		Most:     s.mostGranted(),
		Size:     wlog.EntrySize,
		OnFull:   func(full bool) { s.alarms.setBlocked(d.number, full) },
		OnFailed: d.failed,
		Reclaim:  d.reclaim,
	}
}

// segmentSize returns the usual size of the logs' files, in bytes.
func (s *Store) segmentSize() int64 {
	if s.files == nil {
		return usualSegment
	}
	return s.files.SegmentSize()
}

// noState is the state of definitions that only say which numbers were given.
type noState struct{}

func (noState) Apply(d *definition.Definition) error { return d.Unknown() }

func (r *takeover) entry(extent uint32, at wlog.Index, entry []byte) (err error) {
	r.progress.count(entry)
	for len(entry) > 0 && err == nil {
		if entry[0] != 0 {
			entry, err = r.restorer.Apply(extent, entry)
			continue
		}
		var d *definition.Definition
		if d, entry, err = definition.Next(entry); err == nil {
			err = r.definitions.read(extent, d)
		}
	}
	if err != nil {
		return fmt.Errorf("entry %#x: %w", at, err)
	}
	return nil
}

// fill makes the vhosts, and fills their queues.
func (r *takeover) fill() error {
	s := r.shard
	live, err := r.definitions.done()
	if err != nil {
		return err
	}
	queues, err := r.makeVHosts()
	if err != nil {
		return err
	}
	r.progress.queues, r.progress.messages = len(queues), r.restorer.Fill(queues)
	s.Recovered(live)
	return nil
}

// start starts the queues, and makes the vhosts known to clients.
func (r *takeover) start() {
	s := r.shard
	s.ready.Store(true)
	r.restorer.Start()
	if upTo := s.upTo.Load(); upTo > 0 {
		s.reclaim(upTo)
	}
	if err := s.Writer.Err(); err != nil && s.store.alone != nil {
		s.stopLater(err)
	}
	s.store.warnOfMissingTypes(s.guests.list())
	s.publish(&s.store.vhosts, s.guests.list()...)
}

func (r *takeover) makeVHosts() (queues []*queue.Mailbox, err error) {
	s := r.shard
	for name, p := range maps.Collect(r.definitions.vhosts) {
		v := s.store.newVHost(s, name, vhost.Metadata{}, p.vhost.Placement(), p.log)
		s.guests.add(v)
		restored, err := v.Restore(p.vhost, s.storageOf)
		if err != nil {
			return nil, err
		}
		queues = append(queues, restored...)
		p.log.usage.compacted = v.DefinitionsSize()
	}
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

// storageOf returns the storage of a queue that existed before the takeover.
func (s *shard) storageOf(id uint64) (*queue.Storage, error) {
	if number := id & (1<<shardBits - 1); number != uint64(s.number) {
		return nil, fmt.Errorf("number %d: belongs to shard %d", id, number)
	}
	return s.storage(id), nil
}

// abandon gives the log up, after fill failed.
func (r *takeover) abandon(ctx context.Context) {
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	cancel() // no commit is worth waiting for
	_ = r.shard.Close(ctx)
	r.shard.running.Wait()
}

func (r *takeover) report() {
	p := &r.progress
	ended := p.clock()
	p.log.Info("shard taken over", "shard", r.shard.number, "vhosts", len(r.shard.guests.list()), "queues", p.queues,
		"messages", p.messages, "entries", p.entries, "bytes", p.bytes, "bytes_before", r.before, "seconds", ended.Sub(p.began).Seconds())
	r.shard.store.alarms.clear(r.shard.number)
}

// drop implements [tenant].
func (c *cluster) drop(s *shard) {
	s.withdraw(&c.store.vhosts)
	s.seat.changedHere()
	s.attends()
	reason := "is not served by this node any more"
	if s.failure() != nil {
		reason = "cannot be served any more: its log failed"
	}
	all := s.guests.list()
	var moving sync.WaitGroup
	for _, v := range all {
		moving.Go(func() { v.Move("vhost '" + v.Name() + "' " + reason) })
	}
	moving.Wait()
	ctx, cancel := context.WithCancel(context.Background())
	cancel() // no commit is worth waiting for
	_ = s.Close(ctx)
	s.running.Wait()
	c.store.alarms.setBlocked(s.number, false) // SetSpace keeps reporting about the disk of this node's copy
	c.store.log.Info("shard dropped", "shard", s.number, "vhosts", len(all))
}

// refuse implements [tenant].
func (c *cluster) refuse(shard uint32, why error) {
	c.store.alarms.fail(shard)
	c.store.log.Error("this node owns a shard that it cannot serve, and gives the shard up", "shard", shard, "error", why)
}

// relieve implements [tenant].
func (c *cluster) relieve(shard uint32) { c.store.alarms.clear(shard) }

// giveUp implements [tenant].
func (c *cluster) giveUp(shard uint32) {
	if c.options.GiveUp != nil {
		c.options.GiveUp(shard)
	}
}
