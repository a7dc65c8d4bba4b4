package quorum

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"go.etcd.io/raft/v3/raftpb"

	"github.com/curfewmq/curfew/core/wlog"
)

// Replace has a new node take the place of one whose disk is lost, in a shard that this node owns: it gets the log, and then the vote, in the
// same step in which the old one's ends. If it is interrupted, by the end of this node or of ctx, it may be called again, at any owner of
// the shard, and goes on from there; what is done already is done. The new node's engine has no voters, and a number that no node has
// had.
func (e *Engine) Replace(ctx context.Context, shard uint32, old, by wlog.NodeID) error {
	if old == 0 || by == 0 || old == by {
		return fmt.Errorf("replace node %d by %d: they are two nodes, whose numbers begin with 1", old, by)
	}
	return e.move(ctx, "replace a node in", shard, (&replacement{old: uint64(old), by: uint64(by)}).step)
}

// replacement is a replacement of a node in a shard.
type replacement struct {
	reconfiguration
	old, by uint64
}

// reconfiguration is a change of the nodes that vote about a shard, in several steps.
type reconfiguration struct {
	pause int // ticks until a change is proposed again, which may be lost with an owner

	term uint64 // that seal was proposed in; 0 = it was not
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

// sealed reports whether the nodes know that the change is done, and proposes an entry for that: a node has the entry only if it has heard
// that what comes before is committed. A node that does not know it needs the votes of the old nodes to own the shard, while one that
// does may need the vote of that node, which it does not get if it has fewer entries: so the next failure could leave both waiting.
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

// exchange is the change that gives the vote of the old node to the new one. It removes what other replacements have left behind.
func (x *replacement) exchange(learners []uint64) []*raftpb.ConfChangeSingle {
	return append(promotion(learners, x.by), single(raftpb.ConfChangeType_ConfChangeRemoveNode, x.old))
}

// promotion returns the changes that give nodes a vote, and remove all other learners.
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

// change proposes a change. It is not tried again at once: if another one is under way, Raft commits nothing instead.
func (x *reconfiguration) change(g *group, changes ...*raftpb.ConfChangeSingle) {
	if g.change(&raftpb.ConfChangeV2{Changes: changes}) == nil {
		x.pause = electionTicks
	}
}
