package seg

import (
	"context"
	"fmt"
	"sync"

	"github.com/curfewmq/curfew/core/wlog"
)

// table is the segments that hold a shard's log. It lends them to readers, so
// that a file is neither closed nor used again under them.
type table struct {
	mu       sync.Mutex // guards what follows, and the segments' readers and dropped
	segments []*segment // in order; the last is the active one
	closed   bool
}

func (t *table) add(g *segment) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.segments = append(t.segments, g)
}

// borrow returns the segment of an index until release.
func (t *table) borrow(at wlog.Index) (*segment, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		return nil, wlog.ErrClosed
	}
	number, off := place(at)
	i := int64(number) - int64(t.segments[0].number)
	if i < 0 || i >= int64(len(t.segments)) || off < headerSize || off%wlog.Align != 0 {
		return nil, wlog.ErrNoEntry
	}
	g := t.segments[i]
	g.readers++
	return g, nil
}

func (t *table) release(g *segment) {
	t.mu.Lock()
	defer t.mu.Unlock()
	g.readers--
	if g.dropped && g.readers == 0 {
		_ = g.file.Close() // it was only read from
	}
}

// drop takes out the oldest segment. left says how many closed ones stay, read
// that somebody still reads from it and that release will close it.
func (t *table) drop() (g *segment, left int, read bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	g = t.segments[0]
	t.segments = t.segments[1:]
	g.dropped = true
	return g, len(t.segments) - 1, g.readers > 0
}

// keeps tells what there is when the oldest segments are dropped that hold nothing
// from an index on: the first segment's number, how many are dropped, and how many
// closed ones are left.
func (t *table) keeps(before wlog.Index) (first uint32, dead, left int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for dead < len(t.segments)-1 && t.segments[dead].last < before {
		dead++
	}
	return t.segments[dead].number, dead, len(t.segments) - 1 - dead
}

// close ends lending; files still lent are closed when they come back.
func (t *table) close() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		return
	}
	t.closed = true
	for _, g := range t.segments {
		g.dropped = true
		if g.readers == 0 {
			_ = g.file.Close() // what was to be durable was synced
		}
	}
}

// ReadAt implements [wlog.Log].
func (j *shardLog) ReadAt(ctx context.Context, at wlog.Index, off int, p []byte) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	g, err := j.table.borrow(at)
	if err != nil {
		return fmt.Errorf("entry %#x: %w", at, err)
	}
	defer j.table.release(g)
	size, err := g.bodySize(at, j.shard)
	if err != nil {
		return fmt.Errorf("entry %#x: %w", at, err)
	}
	if off < 0 || len(p) > size-off {
		return fmt.Errorf("entry %#x has %d bytes, not %d from %d on: %w", at, size, len(p), off, wlog.ErrRange)
	}
	_, pos := place(at)
	return g.read(p, pos+wlog.HeaderSize+int64(off))
}

// bodySize returns the size of the entry at an index, whose header is read
// unless it was the last one to be.
func (g *segment) bodySize(at wlog.Index, shard uint32) (int, error) {
	_, off := place(at)
	if seen := g.seen.Load(); int64(seen>>32) == off {
		return int(uint32(seen)), nil
	}
	if off+wlog.HeaderSize > g.size {
		return 0, wlog.ErrNoEntry
	}
	var b [wlog.HeaderSize]byte
	if err := g.read(b[:], off); err != nil {
		return 0, err
	}
	h, err := wlog.ParseHeader(b[:], at, g.salt)
	if err == nil && (h.Kind != wlog.Data || h.Shard != shard) {
		err = wlog.ErrNoEntry
	}
	if err != nil {
		return 0, fmt.Errorf("%s at byte %d: %w", g.name, off, err)
	}
	g.seen.Store(uint64(off)<<32 | uint64(h.Size))
	return h.Size, nil
}
