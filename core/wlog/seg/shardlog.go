package seg

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/curfewmq/curfew/core/telemetry"
	"github.com/curfewmq/curfew/core/wlog"
	"github.com/curfewmq/curfew/core/wlog/vfs"
)

// shardLog implements [wlog.Log].
type shardLog struct {
	*storage
	state     logState
	table     table
	pool      pool
	reclaimer reclaimer
	syncs     *telemetry.Histogram // seconds that each takes

	seen seenSpace

	mu     lock // held during an append and while the log is closed; guards the fields below
	chain  wlog.Chain
	active *segment
	end    int64 // where its next entry begins
	open   int64 // entries of any purpose may lie before this offset, even if no other segment follows
	synced bool  // everything before end is durable
	shut   bool
	header []byte // of the entry being written
	parts  [3][]byte
}

var _ wlog.Log = (*shardLog)(nil)

// lock is a mutex whose holder may wait for a disk that does not answer. In tests that
// simulate time, time goes on while a goroutine waits for a lock; it would stand still
// while one waits for a [sync.Mutex].
type lock chan struct{}

func (l lock) Lock()   { l <- struct{}{} }
func (l lock) Unlock() { <-l }

func (l lock) TryLock() bool {
	select {
	case l <- struct{}{}:
		return true
	default:
		return false
	}
}

// Append implements [wlog.Log]. It cannot be interrupted, so it ignores the context.
func (l *shardLog) Append(_ context.Context, entry []byte, purpose wlog.Purpose) (wlog.Index, error) {
	if l.firm {
		l.syncAll()
	}
	l.mu.Lock()
	defer l.unlock()
	if err := l.state.err(); err != nil {
		return 0, err
	}
	if len(entry) > wlog.MaxEntry {
		return 0, l.state.lose(fmt.Errorf("append %d bytes: %w", len(entry), wlog.ErrTooLarge))
	}
	if err := l.makeSpace(wlog.EntrySize(len(entry)), purpose); err != nil {
		return 0, l.refuse(err)
	}
	h := l.chain.Next(wlog.Data, l.shard, l.Clock())
	at, err := l.append(&h, entry)
	if err == nil && l.Durability == Fsync {
		err = l.sync()
	}
	if err != nil {
		return 0, l.state.lose(err)
	}
	l.active.last = at
	return at, nil
}

func (l *shardLog) Begin(entry []byte, purpose wlog.Purpose) (<-chan wlog.Appended, error) {
	at, err := l.Append(context.Background(), entry, purpose)
	if errors.Is(err, wlog.ErrFull) {
		return nil, err
	}
	done := make(chan wlog.Appended, 1)
	done <- wlog.Appended{At: at, Err: err}
	return done, nil
}

func (l *shardLog) Depth() int { return 1 }

func (l *shardLog) Offset() time.Duration { return 0 }

func (l *shardLog) Reserve(size int, purpose wlog.Purpose) error {
	l.mu.Lock()
	defer l.unlock()
	if err := l.state.err(); err != nil {
		return err
	}
	if err := l.makeSpace(wlog.EntrySize(size), purpose); err != nil {
		return l.refuse(err)
	}
	return nil
}

func (l *shardLog) HasSpace(size int, purpose wlog.Purpose) bool {
	if l.state.err() != nil {
		return false
	}
	seen := l.seen.read()
	end := seen.end + wlog.EntrySize(size)
	next := l.pool.ahead()
	switch {
	case next == nextUnknown && end > seen.size/4:
		return false
	case end <= seen.open:
		return true
	}
	return (purpose >= wlog.Settling || next == nextReady) && end <= seen.size-l.kept(seen.size, purpose)
}

// Room implements [wlog.Log]: the rest of the active segment, and all bytes of which
// segments can still be made, as of the last append.
func (l *shardLog) Room() int64 {
	if l.state.err() != nil {
		return 0
	}
	space, ok := vfs.SpaceOf(l.fs)
	if !ok {
		return 1 << 60
	}
	seen := l.seen.read()
	_, idle := l.pool.idleFiles()
	return max(0, seen.size-l.kept(seen.size, wlog.Settling)-seen.end) + space.Free + idle
}

func (l *shardLog) Least() wlog.Purpose { return wlog.Bringing }

// Takes returns the first purpose for which there is space, as of the last append. It does
// not wait for the disk.
func (l *shardLog) Takes() wlog.Purpose {
	if !l.pool.scarce() {
		return wlog.Bringing
	}
	seen := l.seen.read()
	if seen.size-seen.end+l.pool.available() < l.SegmentSize {
		return wlog.Settling
	}
	return wlog.Moving
}

func (l *shardLog) Frees(before wlog.Index) bool {
	dead, _, left := l.table.dead(before)
	return dead > 0 || left == 0 && before > l.seen.read().last && l.pool.available() >= 2*minSegment
}

// space is how full the active segment is.
type space struct {
	end, open, size int64
	last            wlog.Index // of the entries in it; 0 = there is none
}

// seenSpace is the space as of the last append, for callers that must not wait for the disk.
type seenSpace struct {
	mu    sync.Mutex // guards space
	space space
}

func (s *seenSpace) read() space {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.space
}

// unlock ends an append.
func (l *shardLog) unlock() {
	l.see()
	l.mu.Unlock()
}

// see notes the space as of now.
func (l *shardLog) see() {
	l.seen.mu.Lock()
	defer l.seen.mu.Unlock()
	l.seen.space = space{l.end, l.open, l.active.size, l.active.last}
}

// refuse returns wlog.ErrFull as it is; any other error ends the log.
func (l *shardLog) refuse(err error) error {
	if err == wlog.ErrFull { //nolint:errorlint // the pool returns it bare; no error of the system is this one
		return err
	}
	return l.state.lose(err)
}

// append writes an entry at the end of the active segment, which has space for it.
func (l *shardLog) append(h *wlog.Header, body []byte) (wlog.Index, error) {
	at := l.active.index(l.end)
	h.Synced = l.synced
	l.header = h.Append(l.header[:0], at, l.active.salt, body)
	ends := l.end + wlog.HeaderSize + int64(len(body))
	l.parts = [...][]byte{l.header, body, zeros[:roundUp(ends, page)-ends]}
	l.synced = false
	err := l.active.file.Writev(l.end, l.parts[:])
	l.parts[1] = nil // it is the caller's
	if err != nil {
		return 0, err
	}
	l.end += wlog.EntrySize(len(body))
	l.chain.Appended(at, h)
	return at, nil
}

func (l *shardLog) sync() error {
	began := time.Now()
	err := l.active.file.Sync()
	if l.synced = err == nil; l.synced {
		l.syncs.Add(time.Since(began).Seconds(), 1)
	}
	return err
}

// makeSpace makes sure that the active segment has space for an entry of that size.
//
// Half of a segment, and the pool's reserve, are kept for a full disk: a Bringing entry is
// written there only if the next segment is prepared.
//
// The active segment cannot be freed: so a Trimming entry begins another one, if there is
// space for a short one.
func (l *shardLog) makeSpace(size int64, purpose wlog.Purpose) error {
	if purpose == wlog.Trimming && l.active.last > 0 {
		if err := l.begin(size, purpose); err != wlog.ErrFull { //nolint:errorlint // the pool returns it bare; no error of the system is this one
			return err
		}
	}
	err := l.makeOrdinarySpace(size, purpose)
	if err != wlog.ErrFull || purpose == wlog.Bringing { //nolint:errorlint // the pool returns it bare; no error of the system is this one
		return err
	}
	return l.useReserve(size, purpose)
}

// makeOrdinarySpace is makeSpace while there is enough for every purpose.
func (l *shardLog) makeOrdinarySpace(size int64, purpose wlog.Purpose) error {
	for {
		end := l.end + size
		if end > l.active.size/4 {
			l.pool.want(l.active.number, l.active.size)
		}
		if end <= l.open || purpose >= wlog.Settling && l.fits(size, purpose) {
			return nil
		}
		if err := l.pool.wait(); err != nil {
			return err
		}
		if l.fits(size, purpose) {
			return nil
		}
		next, err := l.pool.take(size)
		if err != nil {
			return err
		}
		if err := l.switchTo(next); err != nil {
			return err
		}
	}
}

// useReserve is makeSpace out of the reserve. Entries that relocate leave some of it to entries that settle.
func (l *shardLog) useReserve(size int64, purpose wlog.Purpose) error {
	if purpose == wlog.Moving && l.active.size-l.end+l.pool.available()-size < l.SegmentSize/2 {
		return wlog.ErrFull
	}
	if l.fits(size, purpose) {
		return nil
	}
	return l.begin(size, purpose)
}

// begin makes a segment of the reserve active.
func (l *shardLog) begin(size int64, purpose wlog.Purpose) error {
	next, err := l.pool.takeReserved(size, purpose)
	if err != nil {
		return err
	}
	if err := l.switchTo(next); err != nil {
		return err
	}
	l.open = 0
	return nil
}

// fits reports whether an entry of that size leaves the space that its purpose may not use,
// even if no other segment follows.
func (l *shardLog) fits(size int64, purpose wlog.Purpose) bool {
	return l.end+size <= l.active.size-l.kept(l.active.size, purpose)
}

// kept returns how many bytes at the end of a segment of that size an entry with a purpose
// may not use. The end is kept even while the disk has space. Otherwise entries that are
// relocated on a full disk could need more segments than they came from: a segment of 2 MiB
// has space for seven entries of 299 KB, and without its last 36 KiB for six.
func (s *storage) kept(size int64, p wlog.Purpose) int64 {
	if p == wlog.Trimming {
		return s.takeoverReserve()
	}
	return s.takeoverReserve() + trimReserve(size)
}

// takeoverReserve returns how many bytes of a segment only takeovers may use, enough for
// some eighty of them.
func (s *storage) takeoverReserve() int64 { return min(max(s.SegmentSize/(16<<10), 1<<10), 4<<10) }

// trimReserve returns how many bytes of a segment only takeovers and Trimming entries may
// use, enough for some hundred of them. Each Trimming entry frees a segment.
func trimReserve(size int64) int64 { return min(max(size/32, 1<<10), 32<<10) }

// switchTo closes the active segment, durably, and makes another one active.
func (l *shardLog) switchTo(next *segment) error {
	if err := l.fill(); err != nil {
		return err
	}
	if err := l.sync(); err != nil {
		return err
	}
	l.activate(next)
	return nil
}

func (l *shardLog) activate(g *segment) {
	l.table.add(g)
	l.active, l.end, l.open = g, headerSize, g.size/2
}

// fill writes the active segment to its end.
func (l *shardLog) fill() error {
	rest := l.active.size - l.end
	if rest < wlog.HeaderSize {
		return l.active.file.Writev(l.end, [][]byte{zeros[:rest]})
	}
	h := l.chain.Next(wlog.Filler, l.shard, l.Clock())
	_, err := l.append(&h, make([]byte, rest-wlog.HeaderSize))
	return err
}

// syncCached makes the entries durable that Flush has left in the system's cache. If it
// cannot, the log is lost.
func (l *shardLog) syncCached() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.shut || l.synced || l.state.err() != nil {
		return
	}
	if err := l.sync(); err != nil {
		_ = l.state.lose(err)
	}
}

// Trim implements [wlog.Log]. Live records of trimmed entries were relocated, perhaps to
// another shard. With Flush, Trim first makes these copies durable, because the removal of
// the files is durable at once.
func (l *shardLog) Trim(before wlog.Index) error {
	if dead, _, _ := l.table.dead(before); dead > 0 && l.Durability == Flush {
		l.syncAll()
	}
	if err := l.state.err(); err != nil {
		return err
	}
	if err := l.reclaimer.trim(before); err != nil {
		return l.state.lose(fmt.Errorf("trim: %w", err))
	}
	return nil
}

func (l *shardLog) Lost() <-chan struct{} { return l.state.lost }

// Close implements [wlog.Log]. It makes the entries durable that Flush has left in the
// system's cache.
func (l *shardLog) Close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	err := l.finish()
	l.state.close()
	return err
}

// yield ends the log because another owner takes over.
func (l *shardLog) yield() error {
	_ = l.state.lose(errTaken)
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.finish()
}

var errTaken = errors.New("taken over by another owner")

// finish closes the files. It syncs only a log that did not fail. The caller holds mu, so no append is in flight.
func (l *shardLog) finish() error {
	if l.shut {
		return nil
	}
	l.shut = true
	var err error
	if cause := l.state.err(); !l.synced && (cause == nil || errors.Is(cause, errTaken)) {
		err = l.sync()
	}
	l.reclaimer.stop()
	l.pool.close()
	l.table.close()
	return err
}
