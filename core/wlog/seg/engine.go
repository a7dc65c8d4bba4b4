package seg

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/curfewmq/curfew/core/telemetry"
	"github.com/curfewmq/curfew/core/wlog"
	"github.com/curfewmq/curfew/core/wlog/vfs"
	"github.com/curfewmq/curfew/sdk/hook"
)

// Engine owns a data directory.
type Engine struct {
	fs      vfs.FS
	options Options
	lock    vfs.File
	held    *vfs.Held // fs, if it is a real directory; nil = it is another file system

	mu     sync.Mutex // guards the rest
	shards map[uint32]*shardEntry
	closed bool
}

var _ wlog.Engine = (*Engine)(nil)

// shardEntry is a shard in the engine's table.
type shardEntry struct {
	mu      sync.Mutex               // held while the shard is opened, which includes its replay
	current atomic.Pointer[shardLog] // changed under mu; nil = the shard is not open
}

// New locks a directory and returns its engine. If another process has it locked, the error is a vfs.ErrLocked and names the
// process.
func New(fsys vfs.FS, o Options) (*Engine, error) {
	space, err := capacity(fsys, maxSegment)
	if err != nil {
		return nil, err
	}
	o, err = o.withDefaults(space)
	if err != nil {
		return nil, err
	}
	lock, err := acquire(fsys, o.Clock())
	if err != nil {
		return nil, err
	}
	if err := finishReplacement(fsys); err != nil {
		return nil, errors.Join(err, release(lock))
	}
	e := &Engine{fs: fsys, options: o, lock: lock, shards: map[uint32]*shardEntry{}}
	if d, ok := fsys.(vfs.Dir); ok {
		if e.held, err = d.Hold(); err != nil {
			return nil, errors.Join(err, release(lock))
		}
		e.fs = e.held
	}
	return e, nil
}

// Open implements [wlog.Engine].
func (e *Engine) Open(ctx context.Context, shard uint32, fn func(at wlog.Index, entry []byte) error) (wlog.Log, error) {
	s, err := e.entry(shard)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if l := s.current.Load(); l != nil {
		if err := l.yield(); err != nil {
			return nil, err
		}
		s.current.Store(nil)
	}
	l, err := takeOverShard(ctx, e.storage(shard), fn)
	if err != nil {
		return nil, err
	}
	s.current.Store(l)
	return l, nil
}

func (e *Engine) storage(shard uint32) *storage {
	s := &storage{fs: e.fs, shard: shard, syncAll: e.syncAll, Options: e.options}
	if slices.Contains(s.Firm, shard) {
		s.firm, s.Durability = s.Durability != Fsync, Fsync
	}
	if slices.Contains(s.Short, shard) {
		s.SegmentSize = min(s.SegmentSize, shortSegment)
		s.first = min(s.first, s.SegmentSize)
	}
	return s
}

// SegmentSize returns the usual size of segments on this disk, in bytes.
func (e *Engine) SegmentSize() int64 { return e.options.SegmentSize }

func (e *Engine) entry(shard uint32) (*shardEntry, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed {
		return nil, wlog.ErrClosed
	}
	if e.shards[shard] == nil {
		e.shards[shard] = &shardEntry{}
	}
	return e.shards[shard], nil
}

// MaxEntry implements [wlog.Engine].
func (e *Engine) MaxEntry() int { return wlog.MaxEntry }

// Shards implements [wlog.Engine].
func (e *Engine) Shards(ctx context.Context) ([]uint32, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	all, err := files(e.fs)
	return shards(all), err
}

// Close implements [wlog.Engine].
func (e *Engine) Close() error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed {
		return nil
	}
	e.closed = true
	var all error
	for _, s := range e.shards {
		all = errors.Join(all, s.close())
	}
	if e.held != nil {
		all = errors.Join(all, e.held.Close())
	}
	return errors.Join(all, release(e.lock))
}

// close waits for an Open in progress.
func (s *shardEntry) close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if l := s.current.Load(); l != nil {
		return l.Close()
	}
	return nil
}

// syncAll makes the writes of all shards durable that Flush has left in the system's cache. A shard that fails is lost.
func (e *Engine) syncAll() {
	e.mu.Lock()
	all := slices.Collect(maps.Values(e.shards))
	e.mu.Unlock()
	for _, s := range all {
		if l := s.current.Load(); l != nil {
			l.syncCached()
		}
	}
}

// Sync makes the writes of a shard durable that Flush has left in the system's cache. If it cannot, the log is lost.
func (e *Engine) Sync(shard uint32) error {
	s, err := e.entry(shard)
	if err != nil {
		return err
	}
	if l := s.current.Load(); l != nil {
		l.syncCached()
		return l.state.err()
	}
	return nil
}

// Stats describes the files of a shard, and how fast the disk syncs them.
type Stats struct {
	Segments   int   // number of files that hold the log
	Bytes      int64 // of these files, which have their full length from the beginning
	Spares     int   // number of files that will be used next
	SpareBytes int64
	// PinnedBytes are the bytes of files that were removed from the log and whose space a [Snapshot] still holds.
	PinnedBytes int64
	// Syncs are the seconds that the disk took to make writes durable, since the shard was
	// opened. With Flush, segments are synced only when they are closed.
	Syncs telemetry.Distribution
}

// Stats returns the state of a shard; ok is false if it is not open. It does not wait for a shard that is being opened.
func (e *Engine) Stats(shard uint32) (st Stats, ok bool) {
	e.mu.Lock()
	s := e.shards[shard]
	e.mu.Unlock()
	if s == nil {
		return Stats{}, false
	}
	l := s.current.Load()
	if l == nil {
		return Stats{}, false
	}
	st.Syncs = l.syncs.Read()
	st.Segments, st.Bytes = l.table.size()
	st.Spares, st.SpareBytes = l.pool.idleFiles()
	st.PinnedBytes = l.table.pinnedBytes()
	return st, true
}

const (
	lockName = "LOCK"
	lockSize = 256 // bytes: rewriting the file needs no space
)

// acquire locks the directory and writes its process into the lock file. If another process has it locked, the error is a
// vfs.ErrLocked and names that process.
func acquire(fsys vfs.FS, now hook.Instant) (vfs.File, error) {
	f, err := fsys.Open(lockName, vfs.Lock)
	if errors.Is(err, vfs.ErrLocked) {
		return nil, fmt.Errorf("data directory in use: %w by %s", err, holder(fsys))
	}
	if err != nil {
		return nil, err
	}
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	text := fmt.Sprintf("process %d on host %s since %s", os.Getpid(), host, now.Time().Format(time.RFC3339))
	if err := writeHolder(f, text); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// writeHolder writes a text for people into the lock file. A full disk is no error.
func writeHolder(f vfs.File, text string) error {
	b := append([]byte(text), bytes.Repeat([]byte(" "), lockSize)...)[:lockSize]
	b[lockSize-1] = '\n'
	err := f.Writev(0, [][]byte{b})
	if vfs.NoSpace(err) {
		return nil
	}
	return err
}

func release(f vfs.File) error { return errors.Join(writeHolder(f, ""), f.Close()) }

// holder returns the text of the process that holds the lock.
func holder(fsys vfs.FS) string {
	const unknown = "another process"
	f, err := fsys.Open(lockName, vfs.Read)
	if err != nil {
		return unknown
	}
	defer f.Close() //nolint:errcheck // it was only read from
	var b [lockSize]byte
	n, _ := f.ReadAt(b[:], 0) // the file may be short
	if text := strings.TrimSpace(string(b[:n])); text != "" {
		return text
	}
	return unknown
}

// Lock locks a directory, as an [Engine] does. If another process has it locked, the error is a vfs.ErrLocked and names the
// process.
func Lock(fsys vfs.FS) (unlock func() error, err error) {
	f, err := acquire(fsys, wallClock())
	if err != nil {
		return nil, err
	}
	return func() error { return release(f) }, nil
}
