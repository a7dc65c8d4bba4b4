package quorum

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/curfewmq/curfew/core/wlog"
)

// ownedLog is a shard that this node owns in a term.
type ownedLog struct {
	r      *replica
	term   uint64
	offset time.Duration

	trimmed atomic.Uint64 // entries before that index are not needed any more
	mu      sync.Mutex    // guards state
	state   error         // wlog.ErrLost or wlog.ErrClosed; nil = the log is open
	lost    chan struct{}
	use     sync.Mutex // held during an append
}

var _ wlog.Timed = (*ownedLog)(nil)

// proposal waits for its entry to be committed.
type proposal struct {
	log    *ownedLog
	entry  []byte
	since  time.Time
	answer chan committed
}

type committed struct {
	at  wlog.Index
	err error
}

func newOwnedLog(r *replica, term uint64) *ownedLog {
	return &ownedLog{r: r, term: term, lost: make(chan struct{})}
}

func (l *ownedLog) err() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.state
}

// lose ends the log, unless it has ended.
func (l *ownedLog) lose() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.state == nil {
		l.state = wlog.ErrLost
		close(l.lost)
	}
}

// yield ends the log because another owner on this node takes over, and waits for an append in flight. l may be nil.
func (l *ownedLog) yield() {
	if l == nil {
		return
	}
	l.lose()
	l.use.Lock()
	defer l.use.Unlock()
}

// Append implements [wlog.Log]. It ends when a majority of the nodes has the entry on its disks, or the node has lost the shard: a
// context does not interrupt it.
func (l *ownedLog) Append(_ context.Context, entry []byte, purpose wlog.Purpose) (wlog.Index, error) {
	l.use.Lock()
	defer l.use.Unlock()
	if err := l.err(); err != nil {
		return 0, err
	}
	if len(entry) > MaxEntry {
		l.lose()
		return 0, fmt.Errorf("append %d bytes: %w", len(entry), wlog.ErrTooLarge)
	}
	if err := l.r.reserve(len(entry), purpose, l.lost); err != nil {
		return 0, l.fail(err)
	}
	p := &proposal{log: l, entry: entry, since: time.Now(), answer: make(chan committed, 1)}
	if err := l.r.do(func() { l.r.propose(p) }); err != nil {
		return 0, l.fail(fmt.Errorf("%w: %w", wlog.ErrLost, err))
	}
	select {
	case c := <-p.answer:
		if c.err != nil {
			return 0, l.fail(c.err)
		}
		return c.at, nil
	case <-l.r.ended:
		return 0, l.fail(wlog.ErrLost)
	}
}

// fail ends the log, unless the disk is full.
func (l *ownedLog) fail(err error) error {
	if err == wlog.ErrFull { //nolint:errorlint // reserve returns it bare
		return err
	}
	l.lose()
	return err
}

// propose proposes an entry, on the replica's goroutine. While the shard is being transferred the entry waits: that may fail, and then
// the node still owns the shard.
func (r *replica) propose(p *proposal) {
	if r.log != p.log {
		p.answer <- committed{err: wlog.ErrLost}
		return
	}
	r.pending = append(r.pending, p) // it may be committed at once
	err := r.group.propose(bodyHeader{trim: p.log.trimmed.Load(), at: r.now()}, p.entry)
	if err == nil {
		return
	}
	r.pending = r.pending[:len(r.pending)-1]
	if errors.Is(err, errMoving) {
		r.held = append(r.held, p)
		return
	}
	p.answer <- committed{err: fmt.Errorf("%w: %w", wlog.ErrLost, err)}
}

// ReadAt implements [wlog.Log].
func (l *ownedLog) ReadAt(ctx context.Context, at wlog.Index, off int, p []byte) error {
	return l.r.disk.readAt(ctx, uint64(at), off, p)
}

// Trim implements [wlog.Log]. The nodes trim when they apply the next entry.
func (l *ownedLog) Trim(before wlog.Index) error {
	if err := l.err(); err != nil {
		return err
	}
	for {
		t := l.trimmed.Load()
		if uint64(before) <= t || l.trimmed.CompareAndSwap(t, uint64(before)) {
			return nil
		}
	}
}

// Offset implements [wlog.Timed].
func (l *ownedLog) Offset() time.Duration { return l.offset }

// Lost implements [wlog.Log].
func (l *ownedLog) Lost() <-chan struct{} { return l.lost }

// Close implements [wlog.Log].
func (l *ownedLog) Close() error {
	l.use.Lock()
	defer l.use.Unlock()
	l.mu.Lock()
	defer l.mu.Unlock()
	l.state = wlog.ErrClosed
	return nil
}
