package seg

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"

	"github.com/curfewmq/curfew/core/wlog"
	"github.com/curfewmq/curfew/core/wlog/vfs"
)

// Snapshot is the logs of all shards at one instant, as a process killed at that instant would have left them, without appends in flight.
// The files are not copied. Files that are trimmed meanwhile keep their space on the disk until they are released.
//
// It belongs to one goroutine, which must close it.
type Snapshot struct {
	// Files are in the order in which they should be written to a new directory, each
	// shard's together. A shard is damaged until its last file is there, so no broker takes
	// an incomplete shard for a whole one.
	Files []*SnapshotFile

	unlock func() error // unlocks a directory that no engine has open; nil = nothing is locked
}

// SnapshotFile is a file of a [Snapshot].
type SnapshotFile struct {
	Name  string
	Shard uint32
	Size  int64 // of the file
	Bytes int64 // bytes to copy; the rest of the file is zeros

	begin   []byte // the bytes to copy; nil = read them from file
	file    io.ReaderAt
	release func() error // nil = there is nothing to release
}

// ReadAt implements [io.ReaderAt] for the bytes to copy. Reads of whole pages into memory of [vfs.Aligned] bypass the system's cache. A
// read may go beyond Bytes, and then returns the present contents of the file.
func (f *SnapshotFile) ReadAt(p []byte, off int64) (int, error) {
	if f.file != nil {
		return f.file.ReadAt(p, off)
	}
	if off >= int64(len(f.begin)) {
		return 0, io.EOF
	}
	n := copy(p, f.begin[off:])
	if n < len(p) {
		return n, io.EOF
	}
	return n, nil
}

// Release gives the file back, which must not be read any more.
func (f *SnapshotFile) Release() error {
	if f.release == nil {
		return nil
	}
	err := f.release()
	f.release = nil
	return err
}

// Close releases all files.
func (s *Snapshot) Close() error {
	var all error
	for _, f := range s.Files {
		all = errors.Join(all, f.Release())
	}
	if s.unlock != nil {
		all = errors.Join(all, s.unlock())
		s.unlock = nil
	}
	return all
}

// add adds a shard whose log begins with segment first.
func (s *Snapshot) add(shard, first uint32) {
	s.Files = append(s.Files, &SnapshotFile{Name: fileName(shard, first, firstFile), Shard: shard})
}

// addSegment adds the next segment of a shard, up to offset end.
func (s *Snapshot) addSegment(shard uint32, g *segment, end int64, release func() error) {
	s.Files = append(s.Files, &SnapshotFile{Name: g.name, Shard: shard, Size: g.size, Bytes: end, file: g.file, release: release})
}

// addUnused adds a segment that has no entries yet.
func (s *Snapshot) addUnused(shard uint32, g *segment) {
	b := g.header(shard)
	s.Files = append(s.Files, &SnapshotFile{Name: g.name, Shard: shard, Size: g.size, Bytes: int64(len(b)), begin: b})
}

// Snapshot returns the logs as they are now. It waits for appends in flight; new appends wait until it returns. It fails if any log has
// failed or is not open.
func (e *Engine) Snapshot() (*Snapshot, error) {
	logs, err := e.open()
	if err != nil {
		return nil, err
	}
	unlock := lockAll(logs)
	defer unlock()
	s := &Snapshot{}
	for _, l := range logs {
		if err := l.snapshot(s); err != nil {
			return nil, errors.Join(fmt.Errorf("shard %d: %w", l.shard, err), s.Close())
		}
	}
	return s, nil
}

func (e *Engine) open() (logs []*shardLog, err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed {
		return nil, wlog.ErrClosed
	}
	for shard, s := range e.shards {
		l := s.current.Load()
		if l == nil {
			return nil, fmt.Errorf("shard %d: %w", shard, wlog.ErrClosed)
		}
		logs = append(logs, l)
	}
	slices.SortFunc(logs, func(a, b *shardLog) int { return int(a.shard) - int(b.shard) })
	return logs, nil
}

// lockAll locks all logs at the same time, so that each waits only as long as the longest append takes. No goroutine that holds one of
// these locks waits for another one.
func lockAll(logs []*shardLog) (unlock func()) {
	var locked sync.WaitGroup
	for _, l := range logs {
		locked.Go(l.mu.Lock)
	}
	locked.Wait()
	return func() {
		for _, l := range logs {
			l.mu.Unlock()
		}
	}
}

// snapshot adds the log to a snapshot. The caller holds mu.
func (l *shardLog) snapshot(s *Snapshot) error {
	if err := l.state.err(); err != nil {
		return err
	}
	segments, err := l.table.borrowAll()
	if err != nil {
		return err
	}
	s.add(l.shard, segments[0].number)
	for _, g := range segments {
		end := g.size
		if g == l.active {
			end = l.end
		}
		s.addSegment(l.shard, g, end, func() error { l.table.release(g); return nil })
	}
	if l.active.size-l.end >= wlog.HeaderSize {
		return nil
	}
	// No entry fits any more, so a replay takes the segment for a closed one and looks for the next.
	l.pool.mu.Lock()
	defer l.pool.mu.Unlock()
	if l.pool.next == nil {
		return errors.New("the last segment is full, and there is no other")
	}
	s.addUnused(l.shard, l.pool.next)
	return nil
}

// ReadSnapshot returns the logs in a directory that no engine has open. The directory stays locked until the snapshot is closed.
// ReadSnapshot reads all logs, and refuses damaged ones. It leaves out an incomplete entry at the end of a log.
func ReadSnapshot(ctx context.Context, fsys vfs.FS) (*Snapshot, error) {
	unlock, err := lockToRead(fsys)
	if err != nil {
		return nil, err
	}
	s := &Snapshot{unlock: unlock}
	all, err := files(fsys)
	for _, shard := range shards(all) {
		if err == nil {
			err = s.read(ctx, fsys, shard, all)
		}
	}
	if err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

func (s *Snapshot) read(ctx context.Context, fsys vfs.FS, shard uint32, all []named) error {
	w := walk{scanner: scanner{shard: shard, visit: func(*segment, wlog.Index, *wlog.Header, []byte) error { return nil }}}
	w.damaged = func(d *Damage) error { return d }
	if err := w.open(fsys, all, vfs.Read|vfs.Direct); err != nil {
		return fmt.Errorf("shard %d: %w", shard, err)
	}
	if err := w.run(ctx); err != nil {
		return errors.Join(fmt.Errorf("shard %d: %w", shard, err), closeAll(w.segments))
	}
	used := w.segments[:len(w.ends)]
	unused := w.segments[len(w.ends):]
	if len(used) == 0 {
		return closeAll(unused)
	}
	s.add(shard, used[0].number)
	for i, g := range used {
		end := w.ends[i].at
		if w.ends[i].closed {
			end = g.size
		}
		s.addSegment(shard, g, end, g.file.Close)
	}
	if last := len(used) - 1; w.ends[last].closed && len(unused) > 0 {
		s.addUnused(shard, unused[0])
	}
	return closeAll(unused)
}
