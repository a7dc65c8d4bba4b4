package quorum

import (
	"context"
	"fmt"
	"sync"

	"github.com/curfewmq/curfew/core/wlog"
)

// progress is how far a replica has applied its log. Any goroutine may read it.
type progress struct {
	mu      sync.Mutex // guards the rest
	applied uint64
	body    uint64        // the last entry with a body at or before it
	changed chan struct{} // closed when applied changes; nil = no goroutine waits
}

func (p *progress) set(applied, body uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if applied == p.applied {
		return
	}
	p.applied, p.body = applied, body
	if p.changed != nil {
		close(p.changed)
		p.changed = nil
	}
}

// through returns the index of the last applied entry.
func (p *progress) through() uint64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.applied
}

// read returns the index of the last applied entry, and a channel that is closed when it changes.
func (p *progress) read() (applied uint64, changed <-chan struct{}) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.changed == nil {
		p.changed = make(chan struct{})
	}
	return p.applied, p.changed
}

// Follow implements [wlog.Cluster]. It returns wlog.ErrLost when the replica ends, or if it does not run.
func (e *Engine) Follow(ctx context.Context, shard uint32, fn func(at wlog.Index, entry []byte, anew bool) error) error {
	r := e.running(shard)
	if r == nil {
		return fmt.Errorf("follow shard %d: %w: it does not run", shard, wlog.ErrLost)
	}
	f := follower{r: r, fn: fn, anew: true}
	for {
		applied, changed := r.progress.read()
		if err := f.through(ctx, applied); err != nil {
			return err
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		case <-r.ended:
			return fmt.Errorf("follow shard %d: %w", shard, wlog.ErrLost)
		}
	}
}

// follower reads the applied entries of a replica one after another, on its caller's goroutine. The replica does not wait for it.
type follower struct {
	r    *replica
	fn   func(at wlog.Index, entry []byte, anew bool) error
	last uint64 // index of the last entry that was read or skipped
	anew bool
	buf  []byte
}

// through calls fn with the entries through applied, the index of the last applied entry.
func (f *follower) through(ctx context.Context, applied uint64) error {
	for f.last < applied {
		if err := ctx.Err(); err != nil {
			return err
		}
		body, err := f.next(ctx)
		if err != nil {
			return err
		}
		if body == nil {
			continue
		}
		anew := f.anew
		f.anew = false
		if err := f.fn(wlog.Index(f.last), body, anew); err != nil {
			return err
		}
	}
	return nil
}

// next returns the body of the next entry; nil = it has none.
func (f *follower) next(ctx context.Context) ([]byte, error) {
	d := f.r.disk
	if base := d.beginning(); f.last < base {
		f.last, f.anew = base, true // the trimmed entries may have changed the state that fn builds
		return nil, nil
	}
	body, ok, err := d.body(ctx, f.last+1, &f.buf)
	if err != nil && f.last < d.beginning() {
		return nil, nil // it was trimmed meanwhile
	}
	if err != nil {
		return nil, err
	}
	if !ok && f.last < d.beginning() {
		return nil, nil
	}
	if f.last++; !ok {
		return nil, nil
	}
	return body, nil
}

// Replay implements [wlog.Standby]. It fails with wlog.ErrLost if the replica does not run.
func (e *Engine) Replay(ctx context.Context, shard uint32, after wlog.Index, fn func(at wlog.Index, entry []byte) error) error {
	r := e.running(shard)
	if r == nil {
		return fmt.Errorf("replay shard %d: %w: it does not run", shard, wlog.ErrLost)
	}
	return r.replay(ctx, uint64(after), r.progress.through(), func() error { return nil }, fn)
}

// Backlog implements [wlog.Standby]. It is 0 if the replica does not run.
func (e *Engine) Backlog(shard uint32, after wlog.Index) (bytes int64) {
	r := e.running(shard)
	if r == nil {
		return 0
	}
	return r.disk.between(uint64(after), r.progress.through())
}

// replay calls fn with the entries after an index (0 = from the beginning of the log) through the index of an applied entry. It ends when
// going returns an error.
func (r *replica) replay(ctx context.Context, after, through uint64, going func() error, fn func(at wlog.Index, entry []byte) error) error {
	if after == 0 {
		after = r.disk.beginning()
	}
	var buf []byte
	for index := after + 1; index <= through; index++ {
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := going(); err != nil {
			return err
		}
		body, ok, err := r.disk.body(ctx, index, &buf)
		switch {
		case (err != nil || !ok) && index <= r.disk.beginning():
			return fmt.Errorf("entry %d of shard %d: %w", index, r.shard, wlog.ErrTrimmed)
		case err != nil:
			return fmt.Errorf("entry %d of shard %d: %w", index, r.shard, err)
		case !ok:
			continue
		}
		if err := fn(wlog.Index(index), body); err != nil {
			return err
		}
	}
	return nil
}
