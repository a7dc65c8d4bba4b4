package quorum

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"go.etcd.io/raft/v3"

	"github.com/curfewmq/curfew/core/wlog"
)

// Errors of Transfer and Replace, for errors.Is, besides wlog.ErrNotOwner and wlog.ErrLost.
var (
	// ErrUnknownNode: the node does not vote in the shard.
	ErrUnknownNode = errors.New("the node has no vote in the shard")
	// ErrBehind: the node lacks the shard's latest entries, or does not answer.
	ErrBehind = errors.New("the node has not caught up")
	// ErrBusy: another transfer of the shard is under way.
	ErrBusy = errors.New("the shard is being transferred already")
	// ErrDeclined: the other nodes answer, and refuse to own the shard now: they shut down, or their clocks or disks are wrong.
	ErrDeclined = errors.New("no other node takes the shard over now")
	// ErrOwner: the node that is to be replaced owns the shard.
	ErrOwner = errors.New("the node owns the shard: transfer the shard first")
)

// move is a request to a replica's group that takes several steps. It belongs to the replica's run.
type move struct {
	// step does as much as is possible now. tick is set once in each tick of the clock.
	step   func(g *group, tick bool) (done bool, err error)
	answer chan error
}

func (r *replica) settleMoves() { r.stepMoves(false) }
func (r *replica) tickMoves()   { r.stepMoves(true) }

func (r *replica) stepMoves(tick bool) {
	if len(r.moves) == 0 {
		return
	}
	r.moves = slices.DeleteFunc(r.moves, func(m *move) bool {
		done, err := m.step(r.group, tick)
		if done || err != nil {
			m.answer <- err
		}
		return done || err != nil
	})
}

func (r *replica) endMoves(err error) {
	for _, m := range r.moves {
		m.answer <- err
	}
	r.moves = nil
}

// move waits until a request is done.
func (r *replica) move(ctx context.Context, step func(g *group, tick bool) (bool, error)) error {
	m := &move{step: step, answer: make(chan error, 1)}
	if err := r.do(func() { r.moves = append(r.moves, m) }); err != nil {
		return fmt.Errorf("%w: %w", wlog.ErrLost, err)
	}
	select {
	case err := <-m.answer:
		return err
	case <-r.ended:
		return wlog.ErrLost
	case <-ctx.Done():
		_ = r.do(func() { r.moves = slices.DeleteFunc(r.moves, func(other *move) bool { return other == m }) })
		return ctx.Err()
	}
}

// Transfer transfers a shard that this node owns to another node, and returns once that node owns it. Appends wait meanwhile; after a
// successful transfer they fail, and the log is lost. Transfer waits up to an election timeout for the other node to catch up. Errors do
// not name the node, because the caller knows its address.
func (e *Engine) Transfer(ctx context.Context, shard uint32, to wlog.NodeID) error {
	return e.move(ctx, "transfer", shard, (&transfer{to: uint64(to)}).step)
}

func (e *Engine) move(ctx context.Context, what string, shard uint32, step func(g *group, tick bool) (bool, error)) error {
	r := e.running(shard)
	if r == nil {
		return fmt.Errorf("%s shard %d: %w: it does not run", what, shard, wlog.ErrLost)
	}
	if err := r.move(ctx, step); err != nil {
		return fmt.Errorf("%s shard %d: %w", what, shard, err)
	}
	return nil
}

// transfer is the transfer of a shard to a node.
type transfer struct {
	to    uint64
	term  uint64 // in which it began; 0 = it has not begun
	ticks int    // for which this node has waited for the other one
}

func (t *transfer) step(g *group, tick bool) (done bool, err error) {
	if t.term == 0 {
		return t.begin(g, tick)
	}
	switch {
	case g.term > t.term && g.leader == t.to:
		return true, nil
	case g.term > t.term && g.leader != raft.None:
		return false, fmt.Errorf("%w: another node was elected first", ErrBehind)
	case g.term == t.term && g.state == raft.StateLeader && g.transferee() == raft.None:
		g.giving = 0
		if g.wary[t.to] > 0 {
			return false, fmt.Errorf("%w: it declined, because it shuts down, or its clock or disk is wrong", ErrBehind)
		}
		return false, fmt.Errorf("%w: it did not take over within the election timeout", ErrBehind)
	}
	return false, nil
}

func (t *transfer) begin(g *group, tick bool) (done bool, err error) {
	if g.owner == 0 {
		return false, g.notOwner()
	}
	if t.to == g.id {
		return true, nil
	}
	peers := g.peers()
	i := slices.IndexFunc(peers, func(p peer) bool { return p.id == t.to && !p.learner })
	switch {
	case i < 0:
		return false, ErrUnknownNode
	case g.transferee() != raft.None:
		return false, ErrBusy
	case peers[i].caughtUp:
		t.term = g.term
		g.transfer(t.to)
		return false, nil
	}
	if tick {
		t.ticks++
	}
	if t.ticks > electionTicks {
		return false, fmt.Errorf("%w: it lacks %d entries", ErrBehind, g.disk.last().index-peers[i].match)
	}
	return false, nil
}

// notOwner returns nil if the node leads and is about to own the shard, else an error.
func (g *group) notOwner() error {
	if g.state == raft.StateLeader {
		return nil
	}
	return wlog.ErrNotOwner
}

// Leave transfers all shards that this node owns to nodes that have caught up, and keeps this node, which is about to shut down, from
// owning a shard again. Leave tries until ctx ends or all other nodes have declined. It returns an error for each shard that this node
// still owns then.
func (e *Engine) Leave(ctx context.Context) error {
	e.leaving.Store(true)
	all := e.all()
	answers := make(chan error, len(all))
	for _, r := range all {
		go func() { answers <- r.leave(ctx) }()
	}
	var errs error
	for range all {
		errs = errors.Join(errs, <-answers)
	}
	return errs
}

// Stay lets the node own shards again, after Leave.
func (e *Engine) Stay() { e.leaving.Store(false) }

// leave transfers the shard to another node.
func (r *replica) leave(ctx context.Context) error {
	err := r.move(ctx, (&departure{}).step)
	if err == nil || errors.Is(err, wlog.ErrLost) { // a replica that has ended owns nothing
		return nil
	}
	return fmt.Errorf("leave shard %d: no other node has taken over: %w", r.shard, err)
}

// departure transfers a shard to any node that takes it.
type departure struct {
	transfer transfer // the latest one
	ticks    int      // for which the node has waited for the end of an election
}

func (d *departure) step(g *group, tick bool) (done bool, err error) {
	g.passive = true // the next tick would do so too late: the shard might come to the node until then
	switch g.state {
	case raft.StateLeader:
		return false, d.give(g, tick)
	case raft.StateCandidate: // the candidate may still win its election
		if tick {
			d.ticks++
		}
		return d.ticks > electionTicks, nil
	default:
		return true, nil
	}
}

func (d *departure) give(g *group, tick bool) error {
	if d.transfer.term > 0 {
		if done, err := d.transfer.step(g, tick); !done && err == nil {
			return nil
		}
	}
	d.transfer = transfer{}
	if g.transferee() != raft.None {
		return nil
	}
	if g.declined() {
		return ErrDeclined
	}
	if to := g.successor(); to != raft.None {
		d.transfer = transfer{to: to, term: g.term}
		g.transfer(to)
	}
	return nil
}
