package store

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/curfewmq/curfew/core/wlog"
)

// seat is the place of one shard of vhosts on this node. Its runner takes the shard when
// the node becomes its owner, and drops it afterwards, one after the other. So late news of
// an earlier term reaches only the shard of that term.
type seat struct {
	number  uint32
	terms   terms
	standby *standby                  // nil = the shard is restored when it is taken, not before
	seen    atomic.Pointer[seatState] // the state that clients of the store see

	mu   sync.Mutex // guards the fields below
	held *shard     // that was taken and not dropped
	// lowSpace means that this node's disk has no space for the next segment of the shard's
	// log.
	lowSpace bool
	tight    bool // another node lacks space for its copy
}

// seatState says which node owns a shard. It is never modified, only replaced.
type seatState struct {
	owner   wlog.NodeID
	mine    bool
	changed chan struct{} // closed when there is another state, or another vhost here
}

func newSeat(number uint32) *seat {
	t := &seat{number: number, terms: newTerms()}
	t.seen.Store(&seatState{changed: make(chan struct{})})
	return t
}

// changed notes the shard's new owner. It does not block.
func (t *seat) changed(o wlog.Ownership) {
	if t.terms.set(o) {
		t.changedHere()
		t.terms.look()
	}
}

// changedHere shows clients that the shard has another owner, or that vhosts have come or gone.
func (t *seat) changedHere() {
	t.mu.Lock()
	defer t.mu.Unlock()
	o := t.terms.ownership()
	was := t.seen.Swap(&seatState{owner: o.Owner, mine: o.Mine, changed: make(chan struct{})})
	close(was.changed)
}

// shard returns the shard that is held; nil = none is.
func (t *seat) shard() *shard {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.held
}

func (t *seat) hold(s *shard) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.held = s
	if s != nil && t.lowSpace {
		s.setLowSpace(true)
	}
	if s != nil && t.tight {
		s.setTight(true)
	}
}

func (t *seat) setLowSpace(low bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.lowSpace = low; t.held != nil {
		t.held.setLowSpace(low)
	}
}

func (t *seat) setTight(tight bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.tight = tight; t.held != nil {
		t.held.setTight(tight)
	}
}

// tenant takes and drops shards when their ownership changes.
type tenant interface {
	// take takes a shard over. Its error is that of ctx, if that has ended.
	take(ctx context.Context, t *seat, epoch uint64) (*shard, error)
	// drop ends the use of a shard, and frees its memory.
	drop(s *shard)
	// refuse is called with the reason why this node cannot serve a shard that it owns.
	refuse(shard uint32, why error)
	// relieve is called when another node owns a shard that this one could not serve.
	relieve(shard uint32)
	// giveUp asks for another owner of a shard that this node cannot serve. There may be
	// none, or it cannot serve the shard either.
	giveUp(shard uint32)
}

// The pause before a shard is taken again, after an attempt failed although the node seems
// to own the shard.
const (
	firstRetry = 50 * time.Millisecond
	lastRetry  = time.Second
	// giveUpAgain is the least time between two attempts to give the shard up. At first no
	// other node may be ready. And a shard that no node can serve must not go from node to
	// node without a pause, because each node reads the whole log.
	giveUpAgain = 10 * time.Second
)

// run takes and drops the shard until ctx ends. Then it leaves a shard that it holds to the caller.
func (t *seat) run(ctx context.Context, by tenant) {
	refused := uint64(0) // the epoch in which the shard cannot be served here
	var tried wlog.Ownership
	retry := firstRetry
	timer := time.NewTimer(0)
	defer timer.Stop()
	var pause <-chan time.Time // before the shard may be given up again; nil = it may at once
	var step <-chan time.Time  // when the standby goes on; nil = it does not
	defer t.standby.discard()
	for {
		select {
		case <-t.terms.wake:
		case <-timer.C:
		case <-pause:
			pause = nil
		case <-step:
			step = t.restore(ctx)
		case <-ctx.Done():
			return
		}
		o := t.terms.ownership()
		if s := t.shard(); s != nil && (!o.Mine || o.Epoch != s.epoch || s.hasEnded()) {
			why := s.failure() // before the drop, which may abort an append
			t.hold(nil)
			by.drop(s)
			if why != nil {
				refused = s.epoch
				by.refuse(t.number, why)
			}
			t.terms.look() // ownership may have changed meanwhile
			continue
		}
		if refused != 0 && !o.Mine && o.Owner != 0 {
			refused = 0
			by.relieve(t.number)
		}
		if o.Mine && refused == o.Epoch && pause == nil {
			by.giveUp(t.number)
			pause = time.After(giveUpAgain)
		}
		if !o.Mine && step == nil {
			step = t.restore(ctx)
		}
		if !o.Mine || t.shard() != nil || refused == o.Epoch {
			continue
		}
		if tried != o {
			tried, retry = o, firstRetry
		}
		switch err := t.take(ctx, by, o); {
		case err == nil:
		case errors.Is(err, context.Canceled): // look has been called, if the store is not closed
		case errors.Is(err, wlog.ErrNotOwner), errors.Is(err, wlog.ErrLost), errors.Is(err, wlog.ErrNoOwner):
			timer.Reset(retry)
			retry = min(2*retry, lastRetry)
		default:
			refused = o.Epoch
			by.refuse(t.number, err)
			t.terms.look()
		}
	}
}

// restore makes the standby do its next step, unless the node owns the shard. The result
// fires when restore is to be called again; nil = never.
func (t *seat) restore(ctx context.Context) <-chan time.Time {
	if t.standby == nil || t.terms.ownership().Mine {
		return nil
	}
	return time.After(t.standby.step(ctx))
}

func (t *seat) take(ctx context.Context, by tenant, o wlog.Ownership) error {
	var s *shard
	over, err := t.terms.take(ctx, o, func(ctx context.Context) (err error) {
		s, err = by.take(ctx, t, o.Epoch)
		return err
	})
	if err != nil {
		return errors.Join(over, err)
	}
	t.hold(s)
	t.changedHere()
	t.terms.look() // the ownership may have ended already
	return nil
}
