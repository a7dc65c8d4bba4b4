package quorum

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"go.etcd.io/raft/v3/raftpb"

	"github.com/curfewmq/curfew/core/wlog"
)

// Replace gives a new node the place of a node whose disk is lost, in a shard that this node owns. The new node first gets the log, and
// then the vote, in the same step in which the old node loses its vote. After an interruption, by the end of this node or of ctx, Replace
// may be called again at any owner of the shard, and continues where it stopped. The new node's engine must have no voters, and a number
// that no node ever had.
func (e *Engine) Replace(ctx context.Context, shard uint32, old, by wlog.NodeID) error {
	if old == 0 || by == 0 || old == by {
		return fmt.Errorf("replace node %d by %d: their numbers must differ and begin with 1", old, by)
	}
	return e.move(ctx, "replace a node in", shard, (&replacement{old: uint64(old), by: uint64(by)}).step)
}

// replacement is the replacement of a node in a shard.
type replacement struct {
	reconfiguration
	old, by uint64
}

// reconfiguration is a change of a shard's voters, in several steps.
type reconfiguration struct {
	pause int // ticks until the change is proposed again: the proposal may be lost with an owner

	term uint64 // in which seal was proposed; 0 = it was not
	seal uint64 // index of an entry behind the change
}

var errHasVote = errors.New("both nodes have a vote already")

func (x *replacement) step(g *group, tick bool) (done bool, err error) {
	if g.owner == 0 {
		return false, g.notOwner()
	}
	x.wait(tick)
	c := g.disk.configurationAt(g.applied)
	was, is := slices.Contains(c.GetVoters(), x.old), slices.Contains(c.GetVoters(), x.by)
	switch {
	case len(c.GetVotersOutgoing()) > 0: // Raft ends that by itself
		return false, nil
	case is && was:
		return false, errHasVote
	case is:
		return x.sealed(g, x.by), nil
	case !was:
		return false, fmt.Errorf("the former one: %w", ErrUnknownNode)
	case x.old == g.id:
		return false, ErrOwner
	case x.pause > 0:
		return false, nil
	case !slices.Contains(c.GetLearners(), x.by):
		x.change(g, single(raftpb.ConfChangeType_ConfChangeAddLearnerNode, x.by))
	case slices.ContainsFunc(g.peers(), func(p peer) bool { return p.id == x.by && p.caughtUp }):
		x.change(g, x.exchange(c.GetLearners())...)
	}
	return false, nil
}

// wait counts a tick of the clock.
func (x *reconfiguration) wait(tick bool) {
	if tick && x.pause > 0 {
		x.pause--
	}
}

// sealed reports whether enough nodes know that the change is committed. It proposes an empty entry behind the change, the seal: a node
// that has the seal knows that the change before it is committed. Without a seal the next failure could leave the shard without an owner.
// An example: node 4 replaces node 3 beside nodes 1 and 2, and then node 1 fails. Node 2 does not know yet that the change is committed,
// and needs the vote of 1 or 3, which are both gone. Node 4 knows it, and needs the vote of 2, which refuses if 4 has fewer entries.
func (x *reconfiguration) sealed(g *group, added ...uint64) bool {
	if x.term != g.term {
		if index, err := g.nothing(); err == nil {
			x.term, x.seal = g.term, index
		}
		return false
	}
	has := 1 // this node
	peers := slices.DeleteFunc(g.peers(), func(p peer) bool { return p.learner })
	for _, p := range peers {
		switch {
		case p.match >= x.seal:
			has++
		case p.active || slices.Contains(added, p.id):
			return false
		}
	}
	return has > (len(peers)+1)/2
}

// exchange returns the changes that move the vote of the old node to the new one. They also remove learners that other replacements left
// behind.
func (x *replacement) exchange(learners []uint64) []*raftpb.ConfChangeSingle {
	return append(promotion(learners, x.by), single(raftpb.ConfChangeType_ConfChangeRemoveNode, x.old))
}

// promotion returns the changes that give nodes a vote and remove all other learners.
func promotion(learners []uint64, nodes ...uint64) (all []*raftpb.ConfChangeSingle) {
	for _, id := range nodes {
		all = append(all, single(raftpb.ConfChangeType_ConfChangeAddNode, id))
	}
	for _, id := range learners {
		if !slices.Contains(nodes, id) {
			all = append(all, single(raftpb.ConfChangeType_ConfChangeRemoveNode, id))
		}
	}
	return all
}

func single(kind raftpb.ConfChangeType, node uint64) *raftpb.ConfChangeSingle {
	return &raftpb.ConfChangeSingle{Type: &kind, NodeId: &node}
}

// change proposes a change. It pauses afterwards, because Raft replaces the proposal by an empty entry if another change is under way.
func (x *reconfiguration) change(g *group, changes ...*raftpb.ConfChangeSingle) {
	if g.change(&raftpb.ConfChangeV2{Changes: changes}) == nil {
		x.pause = electionTicks
	}
}
