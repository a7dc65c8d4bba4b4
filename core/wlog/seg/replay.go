package seg

import (
	"context"
	"errors"
	"fmt"

	"github.com/curfewmq/curfew/core/telemetry"
	"github.com/curfewmq/curfew/core/wlog"
	"github.com/curfewmq/curfew/core/wlog/vfs"
)

// replayer replays a shard and takes it over.
type replayer struct {
	*storage
	walk  walk
	files []named // all files of the directory
	fn    func(at wlog.Index, entry []byte) error

	done, reported, total int64 // bytes replayed, bytes reported to Progress, and bytes of all segments
}

// takeOverShard replays a shard for its new owner.
func takeOverShard(ctx context.Context, s *storage, fn func(at wlog.Index, entry []byte) error) (*shardLog, error) {
	r := replayer{storage: s, fn: fn}
	if err := r.replay(ctx); err != nil {
		return nil, fmt.Errorf("open shard %d: %w", s.shard, errors.Join(err, closeAll(r.walk.segments)))
	}
	l := r.log()
	if err := r.takeOver(l); err != nil {
		_ = l.state.lose(err)
		return nil, fmt.Errorf("take over shard %d: %w", s.shard, errors.Join(err, l.Close()))
	}
	return l, nil
}

// replay reads the log to its end.
func (r *replayer) replay(ctx context.Context) (err error) {
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

// reportEvery is how many bytes are replayed between two calls of Progress.
const reportEvery = 16 << 20

func (r *replayer) entry(_ *segment, at wlog.Index, h *wlog.Header, body []byte) error {
	if r.done += wlog.EntrySize(h.Size); r.done-r.reported >= reportEvery {
		r.reported = r.done
		r.Events.Progress(r.shard, r.done, r.total)
	}
	if h.Kind != wlog.Data {
		return nil
	}
	return r.fn(at, body)
}

// log returns the shard as replay has found it. It owns the segments.
func (r *replayer) log() *shardLog {
	w := &r.walk
	l := &shardLog{mu: make(lock, 1), storage: r.storage, chain: w.chain, syncs: telemetry.NewHistogram(telemetry.Latencies)}
	l.state.lost = make(chan struct{})
	l.pool.maker, l.pool.changed.L = maker{storage: r.storage, epoch: r.epoch()}, &l.pool.mu
	l.reclaimer = reclaimer{storage: r.storage, table: &l.table, pool: &l.pool, first: w.first}
	for _, g := range w.segments[:len(w.ends)] {
		l.activate(g)
	}
	for _, g := range w.segments[len(w.ends):] { // one at most
		l.pool.next, l.pool.number = g, g.number
	}
	if n := len(w.ends); n > 0 {
		l.end = w.ends[n-1].at
	}
	return l
}

// epoch returns the new owner's epoch.
func (r *replayer) epoch() uint64 {
	last := r.walk.chain.Epoch
	for _, g := range r.walk.segments {
		last = max(last, g.epoch)
	}
	return last + 1
}

// takeOver tidies the files, makes the replayed entries durable, and appends the Takeover.
func (r *replayer) takeOver(l *shardLog) error {
	if err := r.tidy(l); err != nil {
		return err
	}
	if err := r.restore(l); err != nil {
		return err
	}
	if err := l.makeTakeoverSpace(); err != nil {
		return err
	}
	if err := l.reclaimer.begin(); err != nil {
		return err
	}
	h := l.chain.Next(wlog.Takeover, l.shard, l.Clock())
	h.Epoch = l.pool.epoch
	if _, err := l.append(&h, nil); err != nil {
		return err
	}
	l.see()
	return l.sync()
}

// tidy passes spare files to the pool, and removes unnecessary files.
func (r *replayer) tidy(l *shardLog) error {
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
		if l.pool.keep(f, mostIdle(len(r.walk.ends)-1)) {
			continue
		}
		if err := r.fs.Remove(f.Name); err != nil {
			return err
		}
	}
	return r.fs.Sync() // a former process may have died before it synced names
}

// restore makes sure that all replayed entries are on the disk, and not only in the system's cache. The process that wrote them may have
// stopped because a sync had failed; the system then takes its cached pages for written. So restore writes entries again unless a later
// entry proves that they are durable.
func (r *replayer) restore(l *shardLog) error {
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
	l.synced = true
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

// makeTakeoverSpace makes sure that the active segment has space for a Takeover, even on a full disk. If no other segment follows, enough
// of it must remain to show that it is not closed.
func (l *shardLog) makeTakeoverSpace() error {
	const size = wlog.HeaderSize
	if l.active == nil {
		l.pool.follow(0, 0)
		g, err := l.pool.takeReserved(size, wlog.Settling)
		if err == nil {
			l.activate(g)
			l.synced = true
		}
		return err
	}
	l.pool.follow(l.active.number, l.active.size)
	if l.end+2*size <= l.active.size {
		return nil
	}
	next, err := l.pool.takeReserved(size, wlog.Settling)
	if err != nil {
		return err
	}
	if l.end+size > l.active.size {
		return l.switchTo(next)
	}
	l.pool.mu.Lock()
	defer l.pool.mu.Unlock()
	l.pool.next, l.pool.number = next, next.number // the log need not switch to it yet
	return nil
}
