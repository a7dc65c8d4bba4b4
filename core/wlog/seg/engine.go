package seg

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/curfewmq/curfew/core/wlog"
	"github.com/curfewmq/curfew/core/wlog/vfs"
)

// Engine owns a data directory.
type Engine struct {
	fs      vfs.FS
	options Options
	lock    vfs.File

	mu     sync.Mutex // guards what follows
	slots  map[uint32]*shardEntry
	closed bool
}

var _ wlog.Engine = (*Engine)(nil)

// shardEntry is a shard's place in the engine.
type shardEntry struct {
	mu      sync.Mutex               // held while the shard changes owners, which may take as long as reading it
	current atomic.Pointer[shardLog] // changed under mu; nil = nobody has it open
}

// New locks a directory and returns its engine. While another process has it,
// the error says which one and is a vfs.ErrLocked.
func New(fsys vfs.FS, o Options) (*Engine, error) {
	room, err := capacity(fsys, maxSegment)
	if err != nil {
		return nil, err
	}
	o, err = o.withDefaults(room)
	if err != nil {
		return nil, err
	}
	lock, err := acquire(fsys, o.Clock())
	if err != nil {
		return nil, err
	}
	return &Engine{fs: fsys, options: o, lock: lock, slots: map[uint32]*shardEntry{}}, nil
}

// Open implements [wlog.Engine].
func (e *Engine) Open(ctx context.Context, shard uint32, fn func(at wlog.Index, entry []byte) error) (wlog.Log, error) {
	s, err := e.slot(shard)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if j := s.current.Load(); j != nil {
		if err := j.yield(); err != nil {
			return nil, err
		}
		s.current.Store(nil)
	}
	j, err := recoverShard(ctx, e.storage(shard), fn)
	if err != nil {
		return nil, err
	}
	s.current.Store(j)
	return j, nil
}

func (e *Engine) storage(shard uint32) *storage {
	s := &storage{fs: e.fs, shard: shard, settle: e.settle, Options: e.options}
	if slices.Contains(s.Firm, shard) {
		s.firm, s.Durability = s.Durability != Fsync, Fsync
	}
	if slices.Contains(s.Short, shard) {
		s.SegmentSize = min(s.SegmentSize, shortSegment)
		s.first = min(s.first, s.SegmentSize)
	}
	return s
}

// SegmentSize is how long segments are made on this disk, in bytes.
func (e *Engine) SegmentSize() int64 { return e.options.SegmentSize }

func (e *Engine) slot(shard uint32) (*shardEntry, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed {
		return nil, wlog.ErrClosed
	}
	if e.slots[shard] == nil {
		e.slots[shard] = &shardEntry{}
	}
	return e.slots[shard], nil
}

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
	for _, s := range e.slots {
		all = errors.Join(all, s.close())
	}
	return errors.Join(all, release(e.lock))
}

// close waits for an Open in progress.
func (s *shardEntry) close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if j := s.current.Load(); j != nil {
		return j.Close()
	}
	return nil
}

// settle makes durable what Flush has not, in all shards. One that fails is lost.
func (e *Engine) settle() {
	e.mu.Lock()
	slots := slices.Collect(maps.Values(e.slots))
	e.mu.Unlock()
	for _, s := range slots {
		if j := s.current.Load(); j != nil {
			j.settleOwn()
		}
	}
}
