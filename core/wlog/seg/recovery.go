package seg

import (
	"context"
	"errors"
	"fmt"

	"github.com/curfewmq/curfew/core/telemetry"
	"github.com/curfewmq/curfew/core/wlog"
	"github.com/curfewmq/curfew/core/wlog/vfs"
)

// recovery is a shard on its way from its files to an owner.
type recovery struct {
	*storage
	walk  walk
	files []named // all of the directory
	fn    func(at wlog.Index, entry []byte) error

	done, told, total int64 // bytes replayed, of which Progress knows, and of how many
}

// recoverShard replays a shard and takes it over.
func recoverShard(ctx context.Context, s *storage, fn func(at wlog.Index, entry []byte) error) (*shardLog, error) {
	r := recovery{storage: s, fn: fn}
	if err := r.replay(ctx); err != nil {
		return nil, fmt.Errorf("open shard %d: %w", s.shard, errors.Join(err, closeAll(r.walk.segments)))
	}
	j := r.journal()
	if err := r.takeOver(j); err != nil {
		_ = j.life.lose(err)
		return nil, fmt.Errorf("take over shard %d: %w", s.shard, errors.Join(err, j.Close()))
	}
	return j, nil
}

// replay reads the log to its end.
func (r *recovery) replay(ctx context.Context) (err error) {
	if r.files, err = files(r.fs); err != nil {
		return err
	}
	refuse := func(d *Damage) error { return d }
	r.walk = walk{scanner: scanner{shard: r.shard, visit: r.entry}, damaged: refuse}
	if err := r.walk.open(r.fs, r.files, r.mode(vfs.Write)); err != nil {
		return err
	}
	for _, g := range r.walk.segments {
		r.total += g.size
	}
	if err := r.walk.run(ctx); err != nil {
		return err
	}
	r.Events.Progress(r.shard, r.total, r.total)
	return nil
}

// tellEvery is how many bytes are replayed between two calls of Progress.
const tellEvery = 16 << 20

func (r *recovery) entry(_ *segment, at wlog.Index, h *wlog.Header, body []byte) error {
	if r.done += wlog.EntrySize(h.Size); r.done-r.told >= tellEvery {
		r.told = r.done
		r.Events.Progress(r.shard, r.done, r.total)
	}
	if h.Kind != wlog.Data {
		return nil
	}
	return r.fn(at, body)
}

// journal returns the shard as it was found. Its segments are the journal's.
func (r *recovery) journal() *shardLog {
	w := &r.walk
	j := &shardLog{storage: r.storage, chain: w.chain, syncs: telemetry.NewHistogram(telemetry.Latencies)}
	j.life.lost = make(chan struct{})
	j.pool.maker = maker{storage: r.storage, epoch: r.epoch()}
	j.trims = reclaimer{storage: r.storage, table: &j.table, pool: &j.pool, first: w.begins}
	for _, g := range w.segments[:len(w.ends)] {
		j.activate(g)
	}
	for _, g := range w.segments[len(w.ends):] { // one at most
		j.pool.next, j.pool.number = g, g.number
	}
	if n := len(w.ends); n > 0 {
		j.end = w.ends[n-1].at
	}
	return j
}

// epoch is the one that begins.
func (r *recovery) epoch() uint64 {
	last := r.walk.chain.Epoch
	for _, g := range r.walk.segments {
		last = max(last, g.epoch)
	}
	return last + 1
}

// takeOver makes durable what was found, puts the files in order and appends
// the Takeover.
func (r *recovery) takeOver(j *shardLog) error {
	if err := r.tidy(j); err != nil {
		return err
	}
	if err := r.restore(j); err != nil {
		return err
	}
	if err := j.placeTakeover(); err != nil {
		return err
	}
	if err := j.trims.begin(); err != nil {
		return err
	}
	h := j.chain.Next(wlog.Takeover, j.shard, j.Clock())
	h.Epoch = j.pool.epoch
	if _, err := j.append(&h, nil); err != nil {
		return err
	}
	return j.sync()
}

// tidy keeps spare files for the pool and removes what is of no use.
func (r *recovery) tidy(j *shardLog) error {
	useless := ofShard(r.files, r.shard, newFile)
	if first := ofShard(r.files, r.shard, firstFile); len(first) > 1 {
		useless = append(useless, first[:len(first)-1]...)
	}
	for _, f := range useless {
		if err := r.fs.Remove(f.Name); err != nil {
			return err
		}
	}
	for _, f := range ofShard(r.files, r.shard, spareFile) {
		if j.pool.keep(f, mostIdle(len(r.walk.ends)-1)) {
			continue
		}
		if err := r.fs.Remove(f.Name); err != nil {
			return err
		}
	}
	return r.fs.Sync() // a former process may have died before it did
}

// restore makes sure that all that was read is on the disk, and not only in the
// system's cache: the process that wrote it may have stopped because a sync had
// failed, after which the system takes for written what is not. So everything
// that no later entry proves durable is written again.
func (r *recovery) restore(j *shardLog) error {
	last := len(r.walk.ends) - 1
	if last < 0 {
		return nil
	}
	end, g := r.walk.ends[last], r.walk.segments[last]
	if end.cut {
		r.Events.Cut(r.shard, g.name, end.at)
	}
	if end.at == headerSize && last > 0 {
		before := r.walk.segments[last-1]
		if err := rewrite(before, r.walk.ends[last-1].proven, before.size); err != nil {
			return err
		}
	}
	if err := rewrite(g, end.proven, end.at); err != nil {
		return err
	}
	j.synced = true
	return nil
}

// rewrite writes a part of a segment over itself, durably.
func rewrite(g *segment, from, to int64) error {
	buf := make([]byte, min(to-from, piece))
	for off := from; off < to; off += int64(len(buf)) {
		b := buf[:min(to-off, int64(len(buf)))]
		if err := g.read(b, off); err != nil {
			return err
		}
		if err := g.file.Writev(off, [][]byte{b}); err != nil {
			return err
		}
	}
	return g.file.Sync()
}

// placeTakeover sees to it that there is an active segment, with room for a
// Takeover, on a full disk, too. Without a next segment enough must be left to tell
// a closed segment by.
func (j *shardLog) placeTakeover() error {
	const size = wlog.HeaderSize
	if j.active == nil {
		j.pool.follow(0, 0)
		g, err := j.pool.takeKept(size)
		if err == nil {
			j.activate(g)
			j.synced = true
		}
		return err
	}
	j.pool.follow(j.active.number, j.active.size)
	if j.end+2*size <= j.active.size {
		return nil
	}
	next, err := j.pool.takeKept(size)
	if err != nil {
		return err
	}
	if j.end+size > j.active.size {
		return j.goOn(next)
	}
	j.pool.mu.Lock()
	defer j.pool.mu.Unlock()
	j.pool.next, j.pool.number = next, next.number // it is there, which is enough
	return nil
}
