package fake

import (
	"context"
	"fmt"

	"github.com/curfewmq/curfew/core/wlog"
)

// trimmed reports whether any entry after an index was trimmed.
func (s *Storage) trimmed(shard uint32, after wlog.Index) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.stream(shard).first > after+1
}

// Resume implements [wlog.Standby].
func (e *Engine) Resume(ctx context.Context, shard uint32, after wlog.Index, fn func(at wlog.Index, entry []byte) error) (wlog.Log, error) {
	return e.open(ctx, shard, after, fn)
}

// Replay implements [wlog.Standby].
func (n *Node) Replay(ctx context.Context, shard uint32, after wlog.Index, fn func(at wlog.Index, entry []byte) error) error {
	f := follower{node: n, shard: shard, next: 1}
	for {
		at, body, changed, err := f.entry()
		switch {
		case err != nil:
			return err
		case after > 0 && n.storage.trimmed(shard, after):
			return fmt.Errorf("replay shard %d: %w", shard, wlog.ErrTrimmed)
		case changed != nil:
			return nil
		case body == nil || at <= after:
			continue
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := fn(at, body); err != nil {
			return err
		}
		after = at
	}
}

// Backlog implements [wlog.Standby].
func (n *Node) Backlog(shard uint32, after wlog.Index) (bytes int64) {
	s := n.storage
	s.mu.Lock()
	defer s.mu.Unlock()
	st := s.stream(shard)
	if n.closed {
		return 0
	}
	for at := max(st.first, after+1); at < st.next(); at++ {
		bytes += int64(len(st.entries[at-st.first].body))
	}
	return bytes
}
