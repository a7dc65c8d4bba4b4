package quorum

import (
	"cmp"
	"slices"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/tracker"
)

// peer is another node's replica, as far as the owner knows it.
type peer struct {
	id       uint64
	match    uint64 // the last entry that the peer is known to have
	learner  bool
	active   bool // it has answered within the last election timeout
	state    tracker.StateType
	caughtUp bool // all entries that it lacks are in memory here
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

// recent returns the first index from which on all entries are in memory: in the disk's cache, or among the entries that wait to be
// written, which replace entries on the disk.
func (g *group) recent() uint64 {
	from := g.disk.recent()
	for _, m := range g.writes {
		if es := m.GetEntries(); len(es) > 0 {
			from = min(from, es[0].GetIndex())
		}
	}
	return from
}

// name names the way in which the owner sends entries to the peer.
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
