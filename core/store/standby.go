package store

import (
	"cmp"
	"context"
	"errors"
	"time"

	"github.com/curfewmq/curfew/core/wlog"
	"github.com/curfewmq/curfew/sdk/hook"
)

// standby restores a shard that another node owns, so that this node has little to restore
// when it takes the shard over. It ignores a short log, because a takeover restores it soon
// enough, and most of its messages are gone by then. It belongs to the seat's runner.
//
// Entries that were restored here and trimmed meanwhile do no harm: a log may always be
// trimmed late, so replaying the entries that could have been trimmed gives the same state.
// If the log has lost entries that this node has not restored, everything restored is void.
type standby struct {
	cluster *cluster
	seat    *seat
	pace    standbyPace
	state   *takeover    // nil = nothing is restored
	due     hook.Instant // when even a backlog of less than pace.step is restored
	failed  bool         // the last step has failed, and was logged
}

// standbyPace says how far a standby may be behind.
type standbyPace struct {
	begin int64         // bytes of a log from which on it is restored
	end   int64         // bytes of a log that is not restored any more
	step  int64         // bytes that are restored at a time; while the node keeps up, these entries are still in memory
	pause time.Duration // between two looks at the backlog
	most  time.Duration // for which an entry waits to be restored, and the pause while none waits
}

const (
	standbyBegin = 512 << 20
	standbyStep  = 4 << 20
	standbyPack  = 64 << 20 // restored bytes after which sparse memory is packed
	standbyAgain = 30 * time.Second
)

func (p standbyPace) withDefaults() standbyPace {
	p.begin = cmp.Or(p.begin, standbyBegin)
	p.end = cmp.Or(p.end, p.begin/2)
	p.step = cmp.Or(p.step, standbyStep)
	p.pause = cmp.Or(p.pause, 50*time.Millisecond)
	p.most = cmp.Or(p.most, time.Second)
	return p
}

// step restores a part of the new entries, and returns the pause before the next step.
func (b *standby) step(ctx context.Context) (pause time.Duration) {
	engine := b.cluster.engine
	switch all := engine.Backlog(b.seat.number, 0); {
	case b.state == nil && all < b.pace.begin, all < b.pace.end:
		b.discard()
		return b.pace.most
	case b.state == nil:
		b.state = b.cluster.newTakeover(b.seat)
	}
	began := b.cluster.options.Clock()
	if engine.Backlog(b.seat.number, b.state.replay.Last()) < b.pace.step && began < b.due {
		return b.pace.pause
	}
	more, err := b.restore(ctx)
	ended := b.cluster.options.Clock()
	b.due = ended.Add(b.pace.most)
	if err != nil {
		return b.end(ctx, err)
	}
	b.failed = false
	switch {
	case !more:
		return b.pace.pause
	case engine.Backlog(b.seat.number, b.state.replay.Last()) < 2*b.pace.step:
		return 0 // that is in memory still
	}
	return ended.Sub(began) / 4 // others need the processor, too
}

// end drops the restored state if err is final, and returns the pause before the next attempt.
func (b *standby) end(ctx context.Context, err error) (pause time.Duration) {
	switch {
	case isPassing(err), errors.Is(err, wlog.ErrClosed), ctx.Err() != nil:
		return b.pace.most
	case errors.Is(err, wlog.ErrTrimmed): // the log is short now
		b.discard()
		return b.pace.pause
	}
	if b.discard(); !b.failed {
		b.failed = true
		b.cluster.store.log.Warn("a shard of another node cannot be restored ahead of time: to take it over will take longer",
			"shard", b.seat.number, "error", err)
	}
	return standbyAgain
}

var errEnough = errors.New("enough for one step")

// restore restores about a step, and reports whether there is more. replay may wait for
// ever for a disk that does not answer: restore does not wait longer than ctx, so that the
// node can end.
func (b *standby) restore(ctx context.Context) (more bool, err error) {
	done, r := make(chan error, 1), b.state
	go func() { done <- b.replay(ctx, r) }()
	select {
	case err = <-done:
	case <-ctx.Done():
		select {
		case err = <-done:
		case <-time.After(b.pace.most):
			b.state = nil // it belongs to the goroutine from now on
			return false, ctx.Err()
		}
	}
	if errors.Is(err, errEnough) {
		more, err = true, nil
	}
	return more, err
}

func (b *standby) replay(ctx context.Context, r *takeover) error {
	left := b.pace.step
	err := b.cluster.engine.Replay(ctx, b.seat.number, r.replay.Last(), func(at wlog.Index, entry []byte) error {
		if left <= 0 {
			return errEnough
		}
		left -= int64(len(entry))
		return r.entry(r.replay.Entry(at, entry), at, entry)
	})
	if r.progress.bytes-r.packed < standbyPack {
		return err
	}
	r.packed = r.progress.bytes
	return cmp.Or(r.restorer.Pack(), err)
}

// give returns the restored state for a takeover, and forgets it; nil = nothing was
// restored. b may be nil.
func (b *standby) give() *takeover {
	if b == nil {
		return nil
	}
	r := b.state
	b.state = nil
	return r
}

// take continues with the restored state of a former owner. b may be nil.
func (b *standby) take(r *takeover) {
	if b == nil {
		r.restorer.Discard()
		return
	}
	b.state = r
}

// discard frees the restored state. b may be nil.
func (b *standby) discard() {
	if r := b.give(); r != nil {
		r.restorer.Discard()
	}
}
