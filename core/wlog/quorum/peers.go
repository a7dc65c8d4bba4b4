package quorum

import (
	"cmp"
	"slices"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/tracker"
)

// peer is what the owner knows of another node's replica.
type peer struct {
	id       uint64
	match    uint64 // the last entry that it is known to have
	learner  bool
	active   bool // it was heard lately
	state    tracker.StateType
	caughtUp bool // it lacks no more than what is in memory here
}

// peers returns the other nodes' replicas, in order; none if this node does not lead.
func (g *group) peers() (all []peer) {
	if g.state != raft.StateLeader {
		return nil
	}
	recent := g.recent()
	g.node.WithProgress(func(id uint64, _ raft.ProgressType, p tracker.Progress) {
		if id == g.id {
			return
		}
		all = append(all, peer{
			id: id, match: p.Match, learner: p.IsLearner, active: p.RecentActive, state: p.State,
			caughtUp: p.RecentActive && p.State == tracker.StateReplicate && p.Match+1 >= recent,
		})
	})
	slices.SortFunc(all, func(a, b peer) int { return cmp.Compare(a.id, b.id) })
	return all
}

// recent returns from which entry on all are in memory, or will be on the disk: those that wait replace what is there.
func (g *group) recent() uint64 {
	from := g.disk.recent()
	for _, m := range g.writes {
		if es := m.GetEntries(); len(es) > 0 {
			from = min(from, es[0].GetIndex())
		}
	}
	return from
}

// name says how the peer is being sent entries.
func (p *peer) name() string {
	switch p.state {
	case tracker.StateReplicate:
		return "replicate"
	case tracker.StateSnapshot:
		return "snapshot"
	default:
		return "probe"
	}
}
