package seg

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/curfewmq/curfew/core/wlog"
	"github.com/curfewmq/curfew/core/wlog/vfs"
	"github.com/curfewmq/curfew/sdk/hook"
)

// ShardReport is the result of Verify for a shard.
type ShardReport struct {
	Shard    uint32
	Segments int
	Entries  int          // complete entries of kind Data
	Bytes    int64        // of their bodies
	First    wlog.Index   // of the first of these; 0 = there are none
	Last     wlog.Index   // of the last of these
	Epoch    uint64       // of the last complete entry
	Time     hook.Instant // of the last complete entry
	Cut      *Damage      // the incomplete entry at the end of the log, which is not damage; nil = there is none
	Damage   []*Damage    // in order; at most one per segment
}

// Verify reads the log of every shard in a directory that no engine has open, and reports its entries and its damage. It changes nothing.
// An error means that the directory could not be read.
func Verify(ctx context.Context, fsys vfs.FS) ([]ShardReport, error) {
	var reports []ShardReport
	err := inspect(fsys, func(shard uint32, all []named) error {
		r := ShardReport{Shard: shard}
		err := r.read(ctx, fsys, all)
		reports = append(reports, r)
		return err
	})
	return reports, err
}

// inspect locks a directory and calls fn for every shard, with all of the directory's files.
func inspect(fsys vfs.FS, fn func(shard uint32, all []named) error) (err error) {
	unlock, err := lockToRead(fsys)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, unlock()) }()
	all, err := files(fsys)
	if err != nil {
		return err
	}
	for _, shard := range shards(all) {
		if err := fn(shard, all); err != nil {
			return fmt.Errorf("shard %d: %w", shard, err)
		}
	}
	return nil
}

// lockToRead locks a directory, unless it is read-only or was never used by an engine.
func lockToRead(fsys vfs.FS) (unlock func() error, err error) {
	if err := checkWhole(fsys); err != nil {
		return nil, err
	}
	stats, err := fsys.List()
	if err != nil {
		return nil, err
	}
	without := func() error { return nil }
	if !slices.ContainsFunc(stats, func(s vfs.Stat) bool { return s.Name == lockName }) {
		return without, nil
	}
	lock, err := acquire(fsys, wallClock())
	if errors.Is(err, vfs.ErrLocked) {
		return nil, err
	}
	if err != nil {
		return without, nil //nolint:nilerr // a copy on a read-only disk can be read all the same
	}
	return func() error { return release(lock) }, nil
}

func (r *ShardReport) read(ctx context.Context, fsys vfs.FS, all []named) (err error) {
	w := walk{scanner: scanner{shard: r.Shard, visit: r.entry}, damaged: r.damaged}
	if err := w.open(fsys, all, vfs.Read|vfs.Direct); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, closeAll(w.segments)) }()
	r.Segments = len(w.segments)
	if err := w.run(ctx); err != nil {
		return err
	}
	r.Cut = w.cut()
	return nil
}

func (r *ShardReport) damaged(d *Damage) error {
	r.Damage = append(r.Damage, d)
	return nil
}

func (r *ShardReport) entry(_ *segment, at wlog.Index, h *wlog.Header, body []byte) error {
	r.Epoch, r.Time = h.Epoch, h.Time
	if h.Kind != wlog.Data {
		return nil
	}
	if r.First == 0 {
		r.First = at
	}
	r.Last = at
	r.Entries++
	r.Bytes += int64(len(body))
	return nil
}

// cut returns the place of an incomplete entry at the end of the log; nil = there is none.
func (w *walk) cut() *Damage {
	if len(w.ends) == 0 {
		return nil
	}
	end := w.ends[len(w.ends)-1]
	if !end.cut {
		return nil
	}
	return w.segments[len(w.ends)-1].damage(end.at, end.reason.Error())
}

// Damage is the place where a log differs from the bytes that were written. It is a [wlog.ErrDamaged].
type Damage struct {
	File   string
	Offset int64 // bytes into the file
	Reason string
}

func (d *Damage) Error() string {
	return fmt.Sprintf("%v: %s at byte %d: %s", wlog.ErrDamaged, d.File, d.Offset, d.Reason)
}

// Unwrap makes a Damage a wlog.ErrDamaged.
func (d *Damage) Unwrap() error { return wlog.ErrDamaged }
