package quorum

import (
	"cmp"
	"context"
	"errors"
	"time"

	"go.etcd.io/raft/v3"

	"github.com/curfewmq/curfew/core/wlog"
)

// candidacy is an Open that waits until the node owns the shard.
type candidacy struct {
	answer chan ownership
}

type ownership struct {
	term uint64
	err  error
}

// Open implements [wlog.Engine]. It waits until this node owns the shard, and returns wlog.ErrNotOwner at once if another node does.
func (e *Engine) Open(ctx context.Context, shard uint32, fn func(at wlog.Index, entry []byte) error) (wlog.Log, error) {
	return e.open(ctx, shard, 0, fn)
}

// Resume implements [wlog.Standby].
func (e *Engine) Resume(ctx context.Context, shard uint32, after wlog.Index, fn func(at wlog.Index, entry []byte) error) (wlog.Log, error) {
	return e.open(ctx, shard, uint64(after), fn)
}

// open opens a shard, and replays the entries behind an index; 0 is the beginning of the log.
func (e *Engine) open(ctx context.Context, shard uint32, after uint64, fn func(at wlog.Index, entry []byte) error) (wlog.Log, error) {
	s, err := e.shard(shard)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if err := s.start(ctx, e, shard); err != nil {
		return nil, err
	}
	s.log.yield()
	l, err := s.current.Load().open(ctx, after, fn)
	if err != nil {
		return nil, err
	}
	s.log = l
	return l, nil
}

// open takes the shard over and replays the entries behind an index. No append of an earlier owner on this node is on its way.
func (r *replica) open(ctx context.Context, after uint64, fn func(at wlog.Index, entry []byte) error) (*ownedLog, error) {
	term, err := r.own(ctx)
	if err != nil {
		return nil, err
	}
	l := &ownedLog{r: r, term: term, lost: make(chan struct{})}
	through := make(chan uint64, 1)
	if err := r.do(func() { through <- r.take(l) }); err != nil {
		return nil, err
	}
	select {
	case index := <-through:
		defer func() { _ = r.do(func() { r.group.pinned-- }) }()
		err := r.replay(ctx, after, index, l.err, fn)
		if err == nil || errors.Is(err, wlog.ErrTrimmed) {
			err = cmp.Or(l.err(), err) // if the log is lost, the next owner may have trimmed the missing entries
		}
		if err != nil {
			l.lose()
			return nil, err
		}
		return l, nil
	case <-r.ended:
		return nil, wlog.ErrLost
	}
}

// take makes l the owner's log, keeps entries from being trimmed, and returns the index of the last entry before the takeover.
func (r *replica) take(l *ownedLog) uint64 {
	r.log = l // settle ends it if the term is over
	r.group.pinned++
	l.offset = time.Duration(r.offset.Load())
	return r.group.applied
}

// own waits until the node owns the shard, and returns the term of that ownership.
func (r *replica) own(ctx context.Context) (uint64, error) {
	c := &candidacy{answer: make(chan ownership, 1)}
	if err := r.do(func() { r.waiting[c] = struct{}{} }); err != nil {
		return 0, err
	}
	select {
	case o := <-c.answer:
		return o.term, o.err
	case <-r.ended:
		return 0, wlog.ErrLost
	case <-ctx.Done():
		_ = r.do(func() { delete(r.waiting, c) })
		return 0, ctx.Err()
	}
}

// settleWaiting answers the waiting Opens once the shard has an owner. If this node owned the shard in the same term before, the Opens wait
// until the node has applied all entries that its former log was told are durable, see tellDurable. An example: the former log was told
// that entries 6 and 7 are durable, while the node has applied entries through 5. A new log that opened now would replay entries through 5,
// and then mistake 6 and 7 for its own appends.
func (r *replica) settleWaiting() {
	if len(r.waiting) == 0 {
		return
	}
	switch g := r.group; {
	case g.owner > 0:
		if r.told == 0 {
			r.elect(ownership{term: g.owner})
		}
	case g.leader != raft.None && g.leader != g.id:
		r.elect(ownership{err: wlog.ErrNotOwner})
	}
}

func (r *replica) elect(o ownership) {
	for c := range r.waiting {
		c.answer <- o
	}
	clear(r.waiting)
}
