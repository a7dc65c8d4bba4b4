package fake

import (
	"context"
	"fmt"
	"time"

	"github.com/curfewmq/curfew/core/wlog"
	"github.com/curfewmq/curfew/sdk/hook"
)

// log is an owned shard. It implements [wlog.Log].
type log struct {
	storage *Storage
	node    *Node // nil = none
	shard   uint32
	epoch   uint64        // term of the node
	offset  time.Duration // see Offset
	lost    chan struct{}
	// The storage's mutex guards the fields below.
	chain wlog.Chain
	cause error         // nil = it is open
	begun chan struct{} // closed when the append begun last has ended; nil = none was begun
}

var _ wlog.Log = (*log)(nil)

func (l *log) Depth() int { return 2 }

func (l *log) HasSpace(size int, purpose wlog.Purpose) bool { return l.Reserve(size, purpose) == nil }

func (*log) Room() int64 { return 1 << 60 }

func (l *log) Least() wlog.Purpose {
	if l.Reserve(0, wlog.Bringing) != nil {
		return wlog.Settling
	}
	return wlog.Bringing
}

func (l *log) Reserve(size int, purpose wlog.Purpose) error {
	l.storage.mu.Lock()
	defer l.storage.mu.Unlock()
	return l.refuses(context.Background(), size, purpose)
}

func (l *log) Frees(wlog.Index) bool { return true }

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

func (l *log) Begin(entry []byte, purpose wlog.Purpose) (<-chan wlog.Appended, error) {
	s := l.storage
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := l.refuses(context.Background(), len(entry), purpose); err != nil {
		return nil, err
	}
	before, ended, answer := l.begun, make(chan struct{}), make(chan wlog.Appended, 1)
	l.begun = ended
	began := time.Now()
	go func() {
		defer close(ended)
		if before != nil {
			<-before
		}
		half := l.latency() / 2
		time.Sleep(time.Until(began.Add(half)))
		at, err := l.append(context.Background(), entry, wlog.Settling)
		if err == nil && half > 0 {
			time.Sleep(time.Until(began.Add(2 * half)))
			s.mu.Lock()
			defer s.mu.Unlock()
			err = l.cause
		}
		answer <- wlog.Appended{At: at, Err: err}
	}()
	return answer, nil
}

// refuses returns an error if an entry cannot be appended. The caller holds the storage's mutex.
func (l *log) refuses(ctx context.Context, size int, purpose wlog.Purpose) error {
	switch {
	case l.cause != nil:
		return l.cause
	case ctx.Err() != nil:
		return l.lose(ctx.Err())
	case size > wlog.MaxEntry:
		return l.lose(wlog.ErrTooLarge)
	case l.storage.full && purpose < wlog.Settling:
		return wlog.ErrFull
	}
	return nil
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
	if err := l.refuses(ctx, len(entry), purpose); err != nil {
		return 0, err
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

// await waits until all appends on their way have ended.
func (l *log) await() {
	l.storage.mu.Lock()
	begun := l.begun
	l.storage.mu.Unlock()
	if begun != nil {
		<-begun
	}
}

func (l *log) Lost() <-chan struct{} { return l.lost }

func (l *log) Close() error {
	l.await()
	l.storage.mu.Lock()
	defer l.storage.mu.Unlock()
	l.cause = wlog.ErrClosed
	if st := l.storage.stream(l.shard); st.owner == l {
		st.owner = nil
	}
	return nil
}
