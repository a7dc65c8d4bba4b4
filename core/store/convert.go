package store

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/curfewmq/curfew/core/wlog"
	"github.com/curfewmq/curfew/core/wlog/seg"
	"github.com/curfewmq/curfew/core/wlog/vfs"
	"github.com/curfewmq/curfew/sdk/hook"
)

// Versions of the logs of a broker that is alone, see [seg.Options].
const (
	// mixedFormat: shard 0 has the definitions of all vhosts, and a queue's messages are in any other shard.
	mixedFormat = 1
	// aloneFormat: shard 0 is a registry, and each vhost lies whole in another shard, as in a cluster.
	aloneFormat = 2
)

// convert converts the logs of earlier versions to the present format. The old logs stay in
// the folder [seg.ReplacedFolder]. They are in force until the new logs are complete; from
// then on the new logs are in force.
func convert(ctx context.Context, o *Options, p *progress) error {
	version, err := seg.Version(o.Dir)
	if err != nil || version != mixedFormat {
		return err
	}
	from, err := seg.NewReader(o.Dir)
	if err != nil {
		return err
	}
	o.Log.Info("the data is being converted to the format of this version: earlier versions refuse it afterwards")
	began := o.Clock()
	done, err := importInto(ctx, from, o, p)
	if err != nil {
		hint := ""
		if errors.Is(err, wlog.ErrFull) || vfs.NoSpace(err) {
			hint = "; the conversion needs as much free space as the logs take: make space, and start the broker again"
		}
		return fmt.Errorf("the data cannot be converted to the format of this version, and is unchanged: %w%s", errors.Join(err, from.Abandon(), from.Close()), hint)
	}
	if err := errors.Join(from.Replace(), from.Close()); err != nil {
		return fmt.Errorf("the data is complete in the format of this version, but not in its place: start the broker again, which continues: %w", err)
	}
	o.Log.Info("the data is in the format of this version", "vhosts", done.VHosts, "queues", done.Queues, "bytes", done.Bytes,
		"seconds", o.Clock().Sub(began).Seconds(), "old_logs", seg.ReplacedFolder)
	return nil
}

// importInto writes the logs that replace the reader's.
func importInto(ctx context.Context, from *seg.Reader, o *Options, p *progress) (done Imported, err error) {
	into, err := from.Next()
	if err != nil {
		return done, err
	}
	c := &conversion{total: from.Bytes(), progress: p}
	engine, err := seg.New(into, seg.Options{
		Durability: seg.Flush, // Close makes everything durable
		Short:      []uint32{registryShard}, SegmentSize: o.SegmentSize, Version: aloneFormat,
		Clock: func() hook.Instant { return hook.Instant(c.now.Load()) },
	})
	if err != nil {
		return done, err
	}
	i := Import{From: from, Shards: uint32(o.Shards), To: func(shard uint32) (ImportLog, error) {
		log, err := engine.Open(ctx, shard, func(wlog.Index, []byte) error { return nil })
		return convertedLog{log, shard, c}, err
	}}
	done, err = i.Run(ctx)
	if errors.Is(err, errNeverRan) {
		err = nil // a broker ended before it had made anything
	}
	return done, errors.Join(err, engine.Close())
}

// conversion is how far a conversion is.
type conversion struct {
	now         atomic.Int64 // when the latest entry was written; segments are made with it in the background
	done, total int64        // bytes
	progress    *progress
}

// convertedLog is the log of a shard in the making.
type convertedLog struct {
	wlog.Log
	shard uint32
	*conversion
}

// Append implements [ImportLog].
func (l convertedLog) Append(ctx context.Context, at hook.Instant, entry []byte) error {
	l.now.Store(int64(at))
	_, err := l.Log.Append(ctx, entry, wlog.Bringing)
	l.done += int64(len(entry))
	l.progress.report(l.shard, l.done, l.total)
	return err
}
