package fake

import (
	"context"
	"fmt"
	"time"

	"github.com/curfewmq/curfew/core/wlog"
	"github.com/curfewmq/curfew/sdk/hook"
)

// log is an owned shard.
type log struct {
	storage *Storage
	node    *Node // nil = none
	shard   uint32
	epoch   uint64        // of the node's term
	offset  time.Duration // see Offset
	lost    chan struct{}
	// What follows is guarded by the storage's mutex.
	chain wlog.Chain
	cause error // nil = it is open
}

var _ wlog.Timed = (*log)(nil)

// Offset implements [wlog.Timed].
func (l *log) Offset() time.Duration { return l.offset }

func now() hook.Instant { return hook.Instant(time.Now().UnixNano()) }

// lose ends the log, unless it has ended, and returns the reason.
func (l *log) lose(reason error) error {
	if l.cause == nil {
		l.cause = fmt.Errorf("%w: %w", wlog.ErrLost, reason)
		close(l.lost)
	}
	return reason
}

// Append implements [wlog.Log].
func (l *log) Append(ctx context.Context, entry []byte, purpose wlog.Purpose) (wlog.Index, error) {
	half := l.latency() / 2
	time.Sleep(half)
	at, err := l.append(ctx, entry, purpose)
	if err != nil || half == 0 {
		return at, err
	}
	time.Sleep(half)
	l.storage.mu.Lock()
	defer l.storage.mu.Unlock()
	return at, l.cause
}

func (l *log) latency() time.Duration {
	l.storage.mu.Lock()
	defer l.storage.mu.Unlock()
	if l.node == nil {
		return 0
	}
	return l.node.latency
}

func (l *log) append(ctx context.Context, entry []byte, purpose wlog.Purpose) (wlog.Index, error) {
	s := l.storage
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case l.cause != nil:
		return 0, l.cause
	case ctx.Err() != nil:
		return 0, l.lose(ctx.Err())
	case len(entry) > wlog.MaxEntry:
		return 0, l.lose(wlog.ErrTooLarge)
	case s.full && purpose != wlog.Settling:
		return 0, wlog.ErrFull
	}
	h := l.chain.Next(wlog.Data, l.shard, now())
	h.Synced = true
	at := s.stream(l.shard).add(&h, entry)
	l.chain.Appended(at, &h)
	s.announce()
	if err := s.broken; err != nil {
		s.broken = nil
		return 0, l.lose(err)
	}
	return at, nil
}

// ReadAt implements [wlog.Log].
func (l *log) ReadAt(ctx context.Context, at wlog.Index, off int, p []byte) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	l.storage.mu.Lock()
	defer l.storage.mu.Unlock()
	h, body, err := l.storage.stream(l.shard).at(at)
	if err == nil && h.Kind != wlog.Data {
		err = wlog.ErrNoEntry
	}
	if err != nil {
		return err
	}
	if off < 0 || len(p) > len(body)-off {
		return wlog.ErrRange
	}
	copy(p, body[off:])
	return nil
}

// Trim implements [wlog.Log].
func (l *log) Trim(before wlog.Index) error {
	l.storage.mu.Lock()
	defer l.storage.mu.Unlock()
	if l.cause != nil {
		return l.cause
	}
	st := l.storage.stream(l.shard)
	before = min(before, l.chain.Last) // the last entry stays: it holds the epoch
	if before > st.first {
		st.entries = append([]stored(nil), st.entries[before-st.first:]...)
		st.first = before
	}
	return nil
}

// Lost implements [wlog.Log].
func (l *log) Lost() <-chan struct{} { return l.lost }

// Close implements [wlog.Log].
func (l *log) Close() error {
	l.storage.mu.Lock()
	defer l.storage.mu.Unlock()
	l.cause = wlog.ErrClosed
	if st := l.storage.stream(l.shard); st.owner == l {
		st.owner = nil
	}
	return nil
}
