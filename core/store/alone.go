package store

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/curfewmq/curfew/core/wlog/local"
	"github.com/curfewmq/curfew/core/wlog/seg"
)

// startAlone serves all shards of the data directory, as a cluster of one, and returns when
// all of them are served. No shard ever changes owners, so no seat has a runner: startAlone
// takes each shard, once.
func (s *Store) startAlone(ctx context.Context, o Options) error {
	p := &progress{log: o.Log, clock: o.Clock, began: o.Clock(), reported: o.Clock(), notify: o.Progress}
	if err := convert(ctx, &o, p); err != nil {
		return err
	}
	files, err := seg.New(o.Dir, seg.Options{
		Version:    aloneFormat,
		Durability: o.Durability, Firm: []uint32{registryShard}, Short: []uint32{registryShard}, SegmentSize: o.SegmentSize, Clock: o.Clock,
		Events: seg.Events{
			Space:    s.SetSpace,
			Progress: p.report,
			Cut: func(shard uint32, file string, offset int64) {
				s.log.Warn("the last entry of a log was not finished, and is dropped: it was never confirmed",
					"shard", shard, "file", file, "offset", offset)
			},
		},
	})
	if err != nil {
		return err
	}
	seats, err := shardsOf(ctx, files, o.Shards)
	if err != nil {
		return errors.Join(err, files.Close())
	}
	o.Cluster, o.Files = local.New(files, seats+1, registryShard), files
	s.alone = &alone{engine: o.Cluster, progress: p}
	if o.Durability == seg.Flush {
		s.alone.sync = files.Sync
	}
	c := s.newCluster(ctx, o, seats)
	if err := c.serveAlone(ctx); err != nil {
		ended, cancel := context.WithCancel(context.WithoutCancel(ctx))
		cancel() // no commit is worth waiting for
		return errors.Join(err, s.Close(ended))
	}
	p.summarise(o.Telemetry.Spans())
	s.watchDisk()
	return nil
}

// alone is the part of a store that is the only node.
type alone struct {
	engine   interface{ Close() error } // closed with the store
	progress *progress                  // of the start
	sync     func(shard uint32) error   // makes all entries of a log durable; nil = they already are
}

// shardsOf returns the number of shards of vhosts: as many as new vhosts are spread over,
// or more if shards with higher numbers have a log.
func shardsOf(ctx context.Context, files *seg.Engine, wanted int) (uint32, error) {
	logs, err := files.Shards(ctx)
	if err != nil {
		return 0, err
	}
	n := max(uint32(wanted), slices.Max(append(logs, 0)))
	if n < 1 || n > MaxShards {
		return 0, fmt.Errorf("shard %d: the numbers are 1 to %d", n, MaxShards)
	}
	return n, nil
}

// serveAlone takes over the registry, and then all shards of vhosts. Queues start when all
// shards are restored: the lease of a queue must not end while another shard is being
// restored and no client can connect. Then the shards get the changes of the registry that
// the last process did not make in them. The disk may have no space for these, so the start
// waits for serveTime at most.
func (c *cluster) serveAlone(ctx context.Context) error {
	c.stop = c.engine.Owners(c.owns)
	if err := c.shared.own(ctx); err != nil {
		return errorOf(registryShard, err)
	}
	var restored []*takeover
	for _, t := range c.seats {
		r, err := c.restore(ctx, t, t.terms.ownership().Epoch)
		if err != nil {
			return errorOf(t.number, err)
		}
		t.hold(r.shard)
		restored = append(restored, r)
	}
	for _, r := range restored {
		r.start()
		r.shard.seat.changedHere()
		c.store.alone.progress.add(&r.progress)
	}
	for _, r := range restored {
		c.attend(ctx, r.shard)
	}
	for _, r := range restored {
		c.await(r.shard.number, func() bool { return c.isSettled(r.shard) })
	}
	return ctx.Err()
}

// isSettled reports whether a shard has the vhosts that the registry places in it, and no others.
func (c *cluster) isSettled(s *shard) bool {
	all, _ := c.registry.Placements(s.number)
	for _, p := range all {
		if v, ok := s.guests.lookup(p.VHost); !ok || v.Placement() != p.Number || !v.Metadata().Equal(p.Metadata) {
			return false
		}
	}
	return len(s.guests.list()) == len(all)
}

// failure returns why the log of a shard of vhosts cannot be written; nil = it can be, or another node has the shard.
func (c *cluster) failure(shard uint32) error {
	if c.store.alone == nil || shard == 0 || int(shard) > len(c.seats) {
		return nil
	}
	return c.seats[shard-1].shard().Err()
}
