// Package local is the engine of a broker without a cluster: the logs of package seg, each
// of which this process owns from the start.
//
// It implements the interface of a cluster's engine, so that package store has only one way
// to take shards over. Only its files can fail: no shard changes owners, and an entry is
// durable everywhere once it is on this disk.
package local

import (
	"context"
	"fmt"
	"sync"

	"github.com/curfewmq/curfew/core/wlog"
	"github.com/curfewmq/curfew/core/wlog/seg"
)

// Self is the number of the only node.
const Self wlog.NodeID = 1

// Engine owns the shards of a data directory. Any goroutine may call its methods.
type Engine struct {
	*seg.Engine
	shards   uint32
	followed map[uint32]*followed // never changed
}

var _ wlog.Cluster = (*Engine)(nil)

// New returns an engine that owns the shards from 0 to shards-1 of files, which it closes.
// Only the shards of follow can be followed.
func New(files *seg.Engine, shards uint32, follow ...uint32) *Engine {
	e := &Engine{Engine: files, shards: shards, followed: map[uint32]*followed{}}
	for _, shard := range follow {
		e.followed[shard] = &followed{changed: make(chan struct{})}
	}
	return e
}

// Owners implements [wlog.Cluster]. It calls fn before it returns, and never again.
func (e *Engine) Owners(fn func(wlog.Ownership)) (stop func()) {
	for shard := range e.shards {
		fn(wlog.Ownership{Shard: shard, Owner: Self, Mine: true, Epoch: 1})
	}
	return func() {}
}

// Open implements [wlog.Engine].
func (e *Engine) Open(ctx context.Context, shard uint32, fn func(at wlog.Index, entry []byte) error) (wlog.Log, error) {
	return e.Resume(ctx, shard, 0, fn)
}

// Resume implements [wlog.Standby]. It reads the whole log, and does not pass the entries
// up to after to fn.
func (e *Engine) Resume(ctx context.Context, shard uint32, after wlog.Index, fn func(at wlog.Index, entry []byte) error) (wlog.Log, error) {
	f := e.followed[shard]
	var all []wlog.Index
	var sizes []int
	log, err := e.Engine.Open(ctx, shard, func(at wlog.Index, entry []byte) error {
		if f != nil {
			all, sizes = append(all, at), append(sizes, len(entry))
		}
		if at <= after {
			return nil
		}
		return fn(at, entry)
	})
	switch {
	case err != nil:
		return nil, err
	case f == nil:
		return log, nil
	}
	f.begin(log, all, sizes)
	return &followedLog{log, f}, nil
}

// Replay implements [wlog.Standby]. There is nothing to restore ahead of time in a shard that this process owns.
func (*Engine) Replay(context.Context, uint32, wlog.Index, func(wlog.Index, []byte) error) error {
	return nil
}

// Backlog implements [wlog.Standby].
func (*Engine) Backlog(uint32, wlog.Index) int64 { return 0 }

// Follow implements [wlog.Cluster]. Until the shard is open, there is nothing to follow.
func (e *Engine) Follow(ctx context.Context, shard uint32, fn func(at wlog.Index, entry []byte, anew bool) error) error {
	f := e.followed[shard]
	if f == nil {
		return fmt.Errorf("follow shard %d: it is not followed", shard)
	}
	var last wlog.Index
	anew := true
	for {
		n, changed, err := f.next(last)
		switch {
		case err != nil:
			return err
		case changed != nil:
			select {
			case <-changed:
				continue
			case <-ctx.Done():
				return ctx.Err()
			}
		}
		body := make([]byte, n.size)
		if err := n.log.ReadAt(ctx, n.at, 0, body); err != nil {
			if f.isCurrent(n) {
				return fmt.Errorf("follow shard %d: %w", shard, err)
			}
			continue // it was trimmed, or the shard was opened again
		}
		if err := fn(n.at, body, anew || n.behind); err != nil {
			return err
		}
		last, anew = n.at, false
	}
}

// Barrier implements [wlog.Cluster]. It waits until the shard is open.
func (e *Engine) Barrier(ctx context.Context, shard uint32) (wlog.Index, error) {
	f := e.followed[shard]
	if f == nil {
		return 0, fmt.Errorf("barrier of shard %d: it is not followed", shard)
	}
	for {
		last, changed, err := f.last()
		if changed == nil {
			return last, err
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return 0, ctx.Err()
		}
	}
}

// Close implements [wlog.Engine]. Followers get [wlog.ErrClosed].
func (e *Engine) Close() error {
	for _, f := range e.followed {
		f.close()
	}
	return e.Engine.Close()
}

// followed lists the entries of a shard for its followers.
type followed struct {
	mu      sync.Mutex // guards the fields below
	log     wlog.Log   // nil = the shard is not open
	entries []entry    // that are not trimmed, in order
	trimmed wlog.Index // the last trimmed entry
	changed chan struct{}
	closed  bool
}

type entry struct {
	at   wlog.Index
	size int
}

// upcoming is the next entry for a follower.
type upcoming struct {
	entry
	log    wlog.Log
	behind bool // entries before it were trimmed that the follower never got
}

// begin notes the entries of a log that was opened.
func (f *followed) begin(log wlog.Log, all []wlog.Index, sizes []int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.log, f.entries = log, nil
	for i, at := range all {
		f.entries = append(f.entries, entry{at, sizes[i]})
	}
	f.announce()
}

// announce wakes all goroutines that wait for a change. The caller holds mu.
func (f *followed) announce() {
	close(f.changed)
	f.changed = make(chan struct{})
}

// next returns the first entry behind an index or, if there is none yet, a channel that is
// closed at the next change.
func (f *followed) next(last wlog.Index) (n upcoming, changed <-chan struct{}, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closed {
		return n, nil, wlog.ErrClosed
	}
	at := f.after(last)
	if f.log == nil || at == len(f.entries) {
		return n, f.changed, nil
	}
	return upcoming{f.entries[at], f.log, last < f.trimmed}, nil, nil
}

// after returns how many entries are at or before an index. A follower is usually near the end. The caller holds mu.
func (f *followed) after(last wlog.Index) int {
	n := len(f.entries)
	for n > 0 && f.entries[n-1].at > last {
		n--
	}
	return n
}

// isCurrent reports whether an entry can still be read.
func (f *followed) isCurrent(n upcoming) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return !f.closed && f.log == n.log && n.at > f.trimmed
}

// last returns the index of the last entry, 0 for none. While the shard is not open, it
// returns a channel that is closed at the next change.
func (f *followed) last() (at wlog.Index, changed <-chan struct{}, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	switch {
	case f.closed:
		return 0, nil, wlog.ErrClosed
	case f.log == nil:
		return 0, f.changed, nil
	case len(f.entries) == 0:
		return 0, nil, nil
	}
	return f.entries[len(f.entries)-1].at, nil, nil
}

func (f *followed) add(at wlog.Index, size int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.entries = append(f.entries, entry{at, size})
	f.announce()
}

// trim forgets the entries before an index.
func (f *followed) trim(before wlog.Index) {
	f.mu.Lock()
	defer f.mu.Unlock()
	n := 0
	for n < len(f.entries) && f.entries[n].at < before {
		f.trimmed = f.entries[n].at
		n++
	}
	f.entries = f.entries[n:]
}

func (f *followed) close() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.closed = true
	f.announce()
}

// followedLog passes appended entries on to followers. It implements [wlog.Log].
type followedLog struct {
	wlog.Log
	followed *followed
}

func (l *followedLog) Append(ctx context.Context, entry []byte, purpose wlog.Purpose) (wlog.Index, error) {
	size := len(entry)
	at, err := l.Log.Append(ctx, entry, purpose)
	if err == nil {
		l.followed.add(at, size)
	}
	return at, err
}

func (l *followedLog) Begin(entry []byte, purpose wlog.Purpose) (<-chan wlog.Appended, error) {
	size := len(entry)
	begun, err := l.Log.Begin(entry, purpose)
	if err != nil {
		return nil, err
	}
	a := <-begun
	if a.Err == nil {
		l.followed.add(a.At, size)
	}
	done := make(chan wlog.Appended, 1)
	done <- a
	return done, nil
}

func (*followedLog) Depth() int { return 1 }

func (l *followedLog) Trim(before wlog.Index) error {
	l.followed.trim(before)
	return l.Log.Trim(before)
}
