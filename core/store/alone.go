package store

import (
	"context"
	"errors"
	"time"

	"github.com/curfewmq/curfew/core/wlog/local"
	"github.com/curfewmq/curfew/core/wlog/seg"
)

// startAlone serves all shards of the data directory, as a cluster of one, and returns when all of them are served.
func (s *Store) startAlone(ctx context.Context, o Options) error {
	progress := progress{log: o.Log, clock: o.Clock, began: o.Clock(), reported: o.Clock(), notify: o.Progress}
	files, err := seg.New(o.Dir, seg.Options{
		Durability: o.Durability, Firm: []uint32{registryShard}, Short: []uint32{registryShard}, SegmentSize: o.SegmentSize, Clock: o.Clock,
		Events: seg.Events{
			Space:    s.SetSpace,
			Progress: progress.report,
			Cut: func(shard uint32, file string, offset int64) {
				s.log.Warn("the last entry of a log was not finished, and is dropped: nobody was told that it was durable",
					"shard", shard, "file", file, "offset", offset)
			},
		},
	})
	if err != nil {
		return err
	}
	engine := local.New(files, uint32(o.Shards)+1, registryShard)
	o.Cluster, o.Files, s.alone = engine, files, engine
	if err := s.startCluster(ctx, o); err != nil {
		return err
	}
	if err := s.awaitServed(ctx); err != nil {
		ended, cancel := context.WithCancel(context.WithoutCancel(ctx))
		cancel()
		return errors.Join(err, s.Close(ended))
	}
	return nil
}

// awaitServed waits until all vhosts are served, and returns why a shard cannot be.
func (s *Store) awaitServed(ctx context.Context) error {
	c := s.cluster
	for {
		registry := c.shared.Changed()
		select {
		case <-c.shared.Ready():
		case <-ctx.Done():
			return ctx.Err()
		case err := <-c.refused:
			return err
		}
		var waits <-chan struct{}
		all, _ := c.shared.Placements(0)
		for _, p := range all {
			if h, ok := s.Home(p.VHost); ok && !h.Here {
				waits = h.Changed
				break
			}
		}
		if waits == nil && c.shared.Owned() && c.served() {
			return nil
		}
		again := time.After(time.Millisecond)
		select {
		case <-waits:
		case <-again:
		case <-registry:
		case <-ctx.Done():
			return ctx.Err()
		case err := <-c.refused:
			return err
		}
	}
}

// served reports whether all shards are.
func (c *cluster) served() bool { return len(c.shards()) == len(c.seats) }
