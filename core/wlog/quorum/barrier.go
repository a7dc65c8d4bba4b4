package quorum

import (
	"context"
	"encoding/binary"
	"fmt"
	"slices"

	"go.etcd.io/raft/v3"

	"github.com/curfewmq/curfew/core/wlog"
)

// reads are the open barriers of a replica. They belong to run.
type reads struct {
	asked uint64 // number of the last question to the owner
	due   bool   // a question must be sent
	ticks int    // since the last question
	open  []*read
}

// read is a barrier without an answer.
type read struct {
	question uint64 // the first question whose answer counts: it was asked after the barrier began
	index    uint64 // entry that must be applied first; 0 = the owner has not answered
	alone    int    // ticks without an owner
	answer   chan barrier
}

type barrier struct {
	at  wlog.Index
	err error
}

const (
	askAgain   = 2                 // ticks until a question is repeated: the question or its answer may be lost
	aloneTicks = 2 * electionTicks // ticks without an owner until a barrier fails
)

func (q *reads) add(b *read) {
	b.question = q.asked + 1
	q.open = append(q.open, b)
	q.due = true
}

// ask sends the owner one question for all barriers that were added since the last one.
func (q *reads) ask(g *group) {
	if !q.due || g.leader == raft.None {
		return
	}
	q.asked++
	q.due, q.ticks = false, 0
	g.read(binary.LittleEndian.AppendUint64(nil, q.asked))
}

// tick counts a tick of the clock.
func (q *reads) tick(g *group) {
	if len(q.open) == 0 {
		return
	}
	q.ticks++
	q.due = q.due || q.ticks >= askAgain
	q.open = slices.DeleteFunc(q.open, func(b *read) bool {
		if g.leader == raft.None {
			b.alone++
		}
		if b.alone < aloneTicks {
			return false
		}
		b.answer <- barrier{err: wlog.ErrNoOwner}
		return true
	})
}

// settle answers each barrier whose entry is applied.
func (q *reads) settle(g *group) {
	for _, s := range g.reads {
		if len(s.RequestCtx) != 8 {
			continue // another node asked this question
		}
		question := binary.LittleEndian.Uint64(s.RequestCtx)
		for _, b := range q.open {
			if b.index == 0 && b.question <= question && question <= q.asked {
				b.index = s.Index
			}
		}
	}
	g.reads = nil
	q.open = slices.DeleteFunc(q.open, func(b *read) bool {
		if b.index == 0 || b.index > g.applied {
			return false
		}
		b.answer <- barrier{at: wlog.Index(g.body)}
		return true
	})
}

func (q *reads) end(err error) {
	for _, b := range q.open {
		b.answer <- barrier{err: err}
	}
	q.open = nil
}

// remove drops a barrier whose caller has given up.
func (q *reads) remove(b *read) {
	q.open = slices.DeleteFunc(q.open, func(other *read) bool { return other == b })
}

// Barrier implements [wlog.Cluster]. While the nodes elect an owner, Barrier waits, for about two election timeouts at most.
func (e *Engine) Barrier(ctx context.Context, shard uint32) (wlog.Index, error) {
	r := e.running(shard)
	if r == nil {
		return 0, fmt.Errorf("barrier of shard %d: %w: it does not run", shard, wlog.ErrLost)
	}
	b := &read{answer: make(chan barrier, 1)}
	if err := r.do(func() { r.reads.add(b) }); err != nil {
		return 0, fmt.Errorf("barrier of shard %d: %w: %w", shard, wlog.ErrLost, err)
	}
	select {
	case a := <-b.answer:
		if a.err != nil {
			return 0, fmt.Errorf("barrier of shard %d: %w", shard, a.err)
		}
		return a.at, nil
	case <-r.ended:
		return 0, fmt.Errorf("barrier of shard %d: %w", shard, wlog.ErrLost)
	case <-ctx.Done():
		_ = r.do(func() { r.reads.remove(b) })
		return 0, ctx.Err()
	}
}
