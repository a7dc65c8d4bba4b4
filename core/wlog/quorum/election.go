package quorum

import (
	"cmp"
	"errors"
	"slices"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"

	"github.com/curfewmq/curfew/core/wlog"
)

// rush is a node's attempt to own a shard that has no owner, without waiting for the election timeout. The voters campaign in turns, so
// that they do not split the vote. With voters 1 to 4, of which node 1, the leader, has ended, turns is 4 and nodes 2, 3 and 4 have turns
// 0, 1 and 2: node 2 campaigns at ticks 0, 4, 8 …, node 3 at ticks 1, 5, 9 …, and no node at ticks 3, 7, 11 ….
type rush struct {
	tick  int // number of the next tick
	until int // the rush ends before this tick; 0 = there is no rush
	turn  int // of this node, from 0 to turns-1
	turns int
	gone  uint64 // the leader that has ended; raft.None = there was none
}

// lateTicks is the number of ticks for which a leader that has ended may still seem to live, because messages of it were on their way.
const lateTicks = 2

// tick counts a tick of the clock.
func (g *group) tick() {
	g.quiet++
	if !g.passive || g.state == raft.StateLeader {
		g.unheard, g.lacking = 0, false
		g.node.Tick()
		g.collect()
		if g.passive && g.owner == 0 {
			g.handOver()
		}
	} else {
		g.tickPassive()
	}
	g.tickWary()
	g.hurry()
}

// lull returns how many ticks from now the group next does something at the earliest, unless a message arrives before.
func (g *group) lull() int {
	switch {
	case g.passive || g.rush.until > 0 || len(g.wary) > 0 || g.leader == raft.None:
		return 1
	case g.state == raft.StateLeader:
		return g.options.heartbeat
	case g.state == raft.StateFollower:
		return max(1, min(g.options.election-g.quiet, g.options.election/2)) // after a stop, a node counts at most half a timeout of silence
	}
	return 1
}

// tickPassive counts a tick of a node that does not want to own the shard. Raft's own clock stands still then, because it would make the
// node campaign. After an election timeout of silence the node must forget its leader nevertheless, or it would refuse to vote for another
// node.
func (g *group) tickPassive() {
	if g.unheard++; g.unheard >= g.options.election && g.leader != raft.None {
		g.forgetLeader()
	}
	if g.lending() && g.unheard%g.options.election == 0 {
		g.campaign()
	}
}

// lendTimes and lendUnasked are the numbers of election timeouts without a leader after which a passive node leads nevertheless: lendTimes
// if a node that lacks entries has asked it for a vote, lendUnasked if no node has. A node that was away while voters were replaced asks
// only the former voters.
const lendTimes, lendUnasked = 2, 5

// lending reports whether a passive node should lead because no other node does. The other nodes lack entries that this node has: any node
// with these entries would have been elected by now. This node then leads without owning the shard, and hands over to the first node that
// has received the entries.
func (g *group) lending() bool {
	times := lendUnasked
	if g.lacking {
		times = lendTimes
	}
	return g.passive && g.lends && g.leader == raft.None && g.unheard >= times*g.options.election
}

// lacks reports whether the sender of m, which asks for a vote, lacks entries that this node has.
func (g *group) lacks(m *raftpb.Message) bool {
	last := g.disk.last()
	return m.GetLogTerm() < last.term || m.GetLogTerm() == last.term && m.GetIndex() < last.index
}

// hurry campaigns if it is the node's turn.
func (g *group) hurry() {
	r := &g.rush
	if r.until == 0 {
		return
	}
	if g.leader != raft.None && g.leader == r.gone && r.tick < lateTicks {
		g.forgetLeader()
	}
	if r.tick >= r.until || g.passive || g.leader != raft.None {
		*r = rush{}
		return
	}
	mine := r.tick%r.turns == r.turn
	r.tick++
	if mine && (g.state == raft.StateFollower || g.state == raft.StatePreCandidate) {
		g.campaign()
	}
}

// campaign makes the node a candidate.
func (g *group) campaign() {
	_ = g.node.Campaign() // fails where the node may not campaign now
	g.collect()
}

// voters returns the voters in the order in which they should campaign.
func (g *group) voters() []uint64 {
	return inTurn(g.options.first, g.disk.configurationAt(g.applied).GetVoters())
}

// inTurn sorts voters, and rotates them so that each shard begins with another one.
func inTurn[N cmp.Ordered](shard int, voters []N) []N {
	v := slices.Sorted(slices.Values(voters))
	if len(v) == 0 {
		return nil
	}
	first := shard % len(v)
	return slices.Concat(v[first:], v[:first])
}

// Preferred returns the voter that should own a shard, so that the shards are spread over the nodes of a cluster; 0 = there are no voters.
func Preferred(shard uint32, voters []wlog.NodeID) wlog.NodeID {
	if v := inTurn(int(shard), voters); len(v) > 0 {
		return v[0]
	}
	return 0
}

// prefer makes the node campaign before others if it is the first of the voters, so that the shards are spread over the nodes of a cluster.
func (g *group) prefer() {
	if v := g.voters(); len(v) > 0 && v[0] == g.id {
		g.rush = rush{until: g.options.election, turns: 2}
		g.hurry()
	}
}

// forget lets the node vote for a successor of a leader that has ended, instead of waiting for that leader until the election timeout. If
// this node leads itself, it does not transfer the shard to the ended node for an election timeout.
func (g *group) forget(node uint64) {
	g.decline(node, g.term)
	if node != g.leader || node == g.id {
		return
	}
	g.forgetLeader()
	v := slices.DeleteFunc(g.voters(), func(id uint64) bool { return id == node })
	if turn := slices.Index(v, g.id); turn >= 0 {
		g.rush = rush{until: 2 * g.options.election, turn: turn, turns: len(v) + 1, gone: node}
		g.hurry()
	}
}

func (g *group) forgetLeader() {
	_ = g.node.ForgetLeader() // changes nothing on the disk, and may fail only where the node needs no new leader
	g.collect()
}

// errMoving says that the shard is being transferred to another owner. The transfer may fail.
var errMoving = errors.New("the shard is being transferred")

// transferee returns the node that the shard is being transferred to; raft.None = no transfer is under way.
func (g *group) transferee() uint64 { return g.node.BasicStatus().LeadTransferee }

// transfer transfers the shard to another node, which must take over within the election timeout.
func (g *group) transfer(to uint64) {
	g.giving = 0
	if to != g.id {
		g.giving = g.term
	}
	g.node.TransferLeader(to)
	g.collect()
}

// handOver transfers the shard to the best successor, unless a transfer is under way or no node has caught up.
func (g *group) handOver() {
	if g.state != raft.StateLeader || g.transferee() != raft.None {
		return
	}
	if to := g.successor(); to != raft.None {
		g.transfer(to)
	}
}

// successor returns the node with the most entries of all nodes that have caught up and have not declined; raft.None = there is none.
func (g *group) successor() (best uint64) {
	match := uint64(0)
	for _, p := range g.peers() {
		if p.caughtUp && !p.learner && p.match >= match && g.wary[p.id] == 0 {
			best, match = p.id, p.match
		}
	}
	return best
}

// declining returns the answer of a node that refuses an owner's request to take over at once. Raft has no such answer: the owner would
// wait for the election timeout, and every append with it.
func declining(m *raftpb.Message) *raftpb.Message {
	return &raftpb.Message{Type: raftpb.MsgTimeoutNow.Enum(), To: new(m.GetFrom()), From: new(m.GetTo()), Term: new(m.GetTerm()), Reject: new(true)}
}

// decline notes that a node has declined to take the shard over from this node in a term. This node does not ask it again for an election
// timeout.
func (g *group) decline(node, term uint64) {
	if g.state != raft.StateLeader || term != g.term || node == g.id {
		return
	}
	if g.wary == nil {
		g.wary = map[uint64]int{}
	}
	g.wary[node] = g.options.election
	if g.transferee() == node {
		g.transfer(g.id) // a transfer to itself ends the transfer
	}
}

// tickWary counts a tick for each node that has declined the shard.
func (g *group) tickWary() {
	for node := range g.wary {
		if g.wary[node]--; g.wary[node] == 0 || g.state != raft.StateLeader {
			delete(g.wary, node)
		}
	}
}

// declined reports whether all nodes that could take the shard over have declined it within the election timeout.
func (g *group) declined() bool {
	some := false
	for _, p := range g.peers() {
		switch {
		case p.learner:
		case g.wary[p.id] > 0:
			some = true
		case p.active:
			return false
		}
	}
	return some
}
