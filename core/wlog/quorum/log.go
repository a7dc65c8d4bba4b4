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

// ownedLog is the log of a shard that this node owns in a term. It implements [wlog.Log].
type ownedLog struct {
	r      *replica
	term   uint64
	offset time.Duration

	trimmed atomic.Uint64 // no entry before that index is needed
	mu      sync.Mutex    // guards state
	state   error         // wlog.ErrLost or wlog.ErrClosed; nil = the log is open
	lost    chan struct{}
	use     sync.Mutex     // held while an append begins
	flying  sync.WaitGroup // appends on their way
	bytes   atomic.Int64   // that appends on their way need of the local log

	appended atomic.Uint64 // last entry that was confirmed and may not be in the local log yet; 0 = none
}

var _ wlog.Log = (*ownedLog)(nil)

// page is the unit to which a local log rounds entries up.
const page = 4 << 10

// proposal waits for its entry to be committed.
type proposal struct {
	log    *ownedLog
	entry  []byte
	since  time.Time
	index  uint64             // of the entry, after the proposal
	answer chan wlog.Appended // capacity 1

	crowded bool // see crowd
}

// settle sends the result of the append to its caller. An error ends the log first, because
// no entry may follow a missing one.
func (p *proposal) settle(a wlog.Appended) {
	p.release()
	p.tell(a)
}

// tell is settle for an entry that is not in the local log yet. The entry keeps its space
// there, and is written together with others that wait.
func (p *proposal) tell(a wlog.Appended) {
	if a.Err != nil {
		p.log.lose()
	}
	p.answer <- a
	p.log.flying.Done()
}

// release returns the space that was reserved in the local log.
func (p *proposal) release() { p.log.bytes.Add(-p.space()) }

// crowd reduces the reserved space to that of an entry among others in one write.
func (p *proposal) crowd() {
	p.release()
	p.crowded = true
	p.log.bytes.Add(p.space())
}

// space returns the upper bound of the bytes that the entry takes in the local log, with
// the records that are written with it.
func (p *proposal) space() int64 {
	if p.crowded {
		return int64(len(p.entry) + bodyHeaderSize + entryHeaderSize)
	}
	return int64(len(p.entry) + 2*page)
}

func (p *proposal) refuse(err error) { p.settle(wlog.Appended{Err: err}) }

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

// yield ends the log because another owner on this node takes over, and waits for the
// appends on their way. l may be nil.
func (l *ownedLog) yield() {
	if l == nil {
		return
	}
	l.lose()
	l.use.Lock()
	defer l.use.Unlock()
	l.flying.Wait()
}

// Append implements [wlog.Log]. It returns when a majority of the nodes has the entry on
// its disks, or when the node has lost the shard. A context does not interrupt it.
func (l *ownedLog) Append(_ context.Context, entry []byte, purpose wlog.Purpose) (wlog.Index, error) {
	answer, err := l.Begin(entry, purpose)
	if err != nil {
		return 0, err
	}
	a := <-answer
	return a.At, a.Err
}

func (l *ownedLog) Begin(entry []byte, purpose wlog.Purpose) (<-chan wlog.Appended, error) {
	l.use.Lock()
	defer l.use.Unlock()
	if err := l.err(); err != nil {
		return nil, err
	}
	if len(entry) > MaxEntry {
		l.lose()
		return nil, fmt.Errorf("append %d bytes: %w", len(entry), wlog.ErrTooLarge)
	}
	if err := l.r.reserve(len(entry)+int(l.bytes.Load()), purpose, l.lost); err != nil {
		return nil, l.fail(err)
	}
	p := &proposal{log: l, entry: entry, since: time.Now(), answer: make(chan wlog.Appended, 1)}
	l.flying.Add(1)
	l.bytes.Add(p.space())
	l.r.offer(p)
	return p.answer, nil
}

// fail ends the log, unless the disk is full.
func (l *ownedLog) fail(err error) error {
	if err == wlog.ErrFull { //nolint:errorlint // reserve returns it bare
		return err
	}
	l.lose()
	return err
}

// propose proposes an entry, on the replica's goroutine. During a transfer of the shard the
// entry waits, because the transfer may fail and leave the shard to this node.
func (r *replica) propose(p *proposal) {
	if r.log != p.log || p.log.err() != nil {
		p.refuse(wlog.ErrLost)
		return
	}
	if len(r.held) > 0 { // it must not overtake these
		r.held = append(r.held, p)
		return
	}
	r.pending = append(r.pending, p) // before propose, which may commit it at once
	err := r.group.propose(bodyHeader{trim: p.log.trimmed.Load(), at: r.now()}, p.entry)
	if err == nil {
		p.index = r.group.last()
		return
	}
	r.pending = r.pending[:len(r.pending)-1]
	if errors.Is(err, errMoving) {
		r.held = append(r.held, p)
		return
	}
	p.refuse(fmt.Errorf("%w: %w", wlog.ErrLost, err))
}

// ReadAt implements [wlog.Log]. It waits for an entry that was confirmed before this node has written it.
func (l *ownedLog) ReadAt(ctx context.Context, at wlog.Index, off int, p []byte) error {
	for applied, changed := l.r.progress.read(); applied < l.appended.Load() && applied < uint64(at); applied, changed = l.r.progress.read() {
		select {
		case <-changed:
		case <-l.r.ended:
			return wlog.ErrLost
		case <-ctx.Done():
			return ctx.Err()
		}
	}
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

func (l *ownedLog) Offset() time.Duration { return l.offset }

// pipelineDepth is how many entries may be on their way to the other nodes at a time.
const pipelineDepth = 2

func (l *ownedLog) Depth() int { return pipelineDepth }

// HasSpace implements [wlog.Log]. It considers this node's disk only.
func (l *ownedLog) HasSpace(size int, purpose wlog.Purpose) bool {
	return l.r.disk.log.HasSpace(size, purpose)
}

// Room implements [wlog.Log]: the space that this node and a majority have, without the bytes that are on their way.
func (l *ownedLog) Room() int64 {
	return max(0, min(l.r.disk.log.Room(), l.r.room.Load())-l.bytes.Load())
}

// Least implements [wlog.Log]: the first purpose for which a majority of the nodes has
// space.
func (l *ownedLog) Least() wlog.Purpose { return wlog.Purpose(l.r.least.Load()) }

// Reserve implements [wlog.Log]. It also fails if a majority of the nodes has no space for the purpose.
func (l *ownedLog) Reserve(size int, purpose wlog.Purpose) error {
	return l.r.reserve(size, purpose, l.lost)
}

// Frees implements [wlog.Log]. It considers this node's disk only.
func (l *ownedLog) Frees(before wlog.Index) bool { return l.r.disk.log.Frees(before) }

func (l *ownedLog) Lost() <-chan struct{} { return l.lost }

func (l *ownedLog) Close() error {
	l.use.Lock()
	defer l.use.Unlock()
	l.flying.Wait()
	l.mu.Lock()
	defer l.mu.Unlock()
	l.state = wlog.ErrClosed
	return nil
}
