package seg

import (
	"context"
	"fmt"
	"slices"
	"sync"

	"github.com/curfewmq/curfew/core/wlog"
)

// table holds the segments of a shard's log. It lends them to readers, so that their files are neither closed nor reused meanwhile.
type table struct {
	mu       sync.Mutex // guards the rest, and the segments' readers and dropped
	segments []*segment // in order; the last is the active one
	pinned   int64      // bytes of dropped files that readers still use
	closed   bool
}

func (t *table) add(g *segment) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.segments = append(t.segments, g)
}

// size returns the number of segments, and the size of their files.
func (t *table) size() (n int, bytes int64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, g := range t.segments {
		bytes += g.size
	}
	return len(t.segments), bytes
}

// borrow returns the segment that holds an index. The caller releases it.
func (t *table) borrow(at wlog.Index) (*segment, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		return nil, wlog.ErrClosed
	}
	number, off := locate(at)
	i := int64(number) - int64(t.segments[0].number)
	if i < 0 || i >= int64(len(t.segments)) || off < headerSize || off%wlog.Align != 0 {
		return nil, wlog.ErrNoEntry
	}
	g := t.segments[i]
	g.readers++
	return g, nil
}

// borrowAll returns all segments. The caller releases each of them.
func (t *table) borrowAll() ([]*segment, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		return nil, wlog.ErrClosed
	}
	for _, g := range t.segments {
		g.readers++
	}
	return slices.Clone(t.segments), nil
}

func (t *table) release(g *segment) {
	t.mu.Lock()
	defer t.mu.Unlock()
	g.readers--
	if !g.dropped || g.readers > 0 {
		return
	}
	_ = g.file.Close() // it was only read from
	if !t.closed {
		t.pinned -= g.size
	}
}

// pinnedBytes returns the disk space that only readers still hold.
func (t *table) pinnedBytes() int64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.pinned
}

// drop removes the oldest segment. left is the number of remaining closed segments. borrowed reports whether a reader uses the segment;
// release closes its file then.
func (t *table) drop() (g *segment, left int, borrowed bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	g = t.segments[0]
	t.segments = t.segments[1:]
	g.dropped = true
	if g.readers > 0 {
		t.pinned += g.size
	}
	return g, len(t.segments) - 1, g.readers > 0
}

// dead returns how many of the oldest segments hold no entry at or behind an index, the number of the first segment after them, and the
// number of remaining closed segments.
func (t *table) dead(before wlog.Index) (n int, first uint32, left int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for n < len(t.segments)-1 && t.segments[n].last < before {
		n++
	}
	return n, t.segments[n].number, len(t.segments) - 1 - n
}

// close closes all files, except borrowed ones, which release closes.
func (t *table) close() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		return
	}
	t.closed, t.pinned = true, 0
	for _, g := range t.segments {
		g.dropped = true
		if g.readers == 0 {
			_ = g.file.Close() // synced before, where necessary
		}
	}
}

func (l *shardLog) ReadAt(ctx context.Context, at wlog.Index, off int, p []byte) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	g, err := l.table.borrow(at)
	if err != nil {
		return fmt.Errorf("entry %#x: %w", at, err)
	}
	defer l.table.release(g)
	size, err := g.bodySize(at, l.shard)
	if err != nil {
		return fmt.Errorf("entry %#x: %w", at, err)
	}
	if off < 0 || len(p) > size-off {
		return fmt.Errorf("entry %#x has %d bytes, not %d from %d on: %w", at, size, len(p), off, wlog.ErrRange)
	}
	_, pos := locate(at)
	return g.read(p, pos+wlog.HeaderSize+int64(off))
}

func (g *segment) bodySize(at wlog.Index, shard uint32) (int, error) {
	_, off := locate(at)
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
	return h.Size, nil
}
