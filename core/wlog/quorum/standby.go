package quorum

import (
	"context"
	"fmt"

	"github.com/curfewmq/curfew/core/wlog"
)

// Replay implements [wlog.Standby]. It fails with wlog.ErrLost if the replica does not run.
func (e *Engine) Replay(ctx context.Context, shard uint32, after wlog.Index, fn func(at wlog.Index, entry []byte) error) error {
	r := e.running(shard)
	if r == nil {
		return fmt.Errorf("replay shard %d: %w: it does not run", shard, wlog.ErrLost)
	}
	return r.replay(ctx, uint64(after), r.progress.through(), func() error { return nil }, fn)
}

// Backlog implements [wlog.Standby]. It is 0 if the replica does not run.
func (e *Engine) Backlog(shard uint32, after wlog.Index) (bytes int64) {
	r := e.running(shard)
	if r == nil {
		return 0
	}
	return r.disk.between(uint64(after), r.progress.through())
}

// replay calls fn with the entries after an index (0 = from the beginning of the log) through the index of an applied entry. It ends when
// going returns an error.
func (r *replica) replay(ctx context.Context, after, through uint64, going func() error, fn func(at wlog.Index, entry []byte) error) error {
	if after == 0 {
		after = r.disk.beginning()
	}
	var buf []byte
	for index := after + 1; index <= through; index++ {
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := going(); err != nil {
			return err
		}
		body, ok, err := r.disk.body(ctx, index, &buf)
		switch {
		case (err != nil || !ok) && index <= r.disk.beginning():
			return fmt.Errorf("entry %d of shard %d: %w", index, r.shard, wlog.ErrTrimmed)
		case err != nil:
			return fmt.Errorf("entry %d of shard %d: %w", index, r.shard, err)
		case !ok:
			continue
		}
		if err := fn(wlog.Index(index), body); err != nil {
			return err
		}
	}
	return nil
}
