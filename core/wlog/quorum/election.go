package quorum

import (
	"cmp"
	"errors"
	"slices"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"

	"github.com/curfewmq/curfew/core/wlog"
)

// rush is when a node wants to own a shard that nobody owns, before its election timeout: with each tick that has a number of its own,
// so that the nodes do not want to at the same time.
type rush struct {
	tick  int // the next one's number
	until int // the rush ends before it; 0 = there is none
	turn  int // the node's, from 0 to turns-1
	turns int
	gone  uint64 // the leader that has ended; raft.None = there was none
}

// lateTicks is how long a leader that has ended may seem to live, by messages that were on their way.
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

// lull returns at which of the next ticks the group does something, at the earliest, if it gets no message until then.
func (g *group) lull() int {
	switch {
	case g.passive || g.rush.until > 0 || len(g.wary) > 0 || g.leader == raft.None:
		return 1
	case g.state == raft.StateLeader:
		return g.options.heartbeat
	case g.state == raft.StateFollower:
		return max(1, min(g.options.election-g.quiet, g.options.election/2)) // a node that was stopped believes in half of it at most
	}
	return 1
}

// tickPassive counts a tick of a node that does not want to own the shard. Raft has no clock then: with one it would want to. But it must not
// believe in a leader for ever that is not heard any more, and refuse to vote for another.
func (g *group) tickPassive() {
	if g.unheard++; g.unheard >= g.options.election && g.leader != raft.None {
		g.forgetLeader()
	}
	if g.lending() && g.unheard%g.options.election == 0 {
		g.campaign()
	}
}

// lendTimes is after how many election timeouts without a leader a node that does not want to own the shard leads nevertheless: when another
// that lacks entries has asked for its vote, and when nobody has. Who was away while voters were replaced asks only those of before.
const lendTimes, lendUnasked = 2, 5

// lending reports whether a node that does not want to own the shard should lead nevertheless, because nobody else does: others lack
// entries that this node has, and whoever has them, too, would have been elected by now. It does not own the shard then, and gives the lead
// to the first that has got them.
func (g *group) lending() bool {
	times := lendUnasked
	if g.lacking {
		times = lendTimes
	}
	return g.passive && g.lends && g.leader == raft.None && g.unheard >= times*g.options.election
}

// lacks reports whether a node that wants a vote lacks entries that this one has.
func (g *group) lacks(m *raftpb.Message) bool {
	last := g.disk.last()
	return m.GetLogTerm() < last.term || m.GetLogTerm() == last.term && m.GetIndex() < last.index
}

// hurry wants the shard, if it is the node's turn.
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

// campaign has the node want to own the shard.
func (g *group) campaign() {
	_ = g.node.Campaign() // it may not now
	g.collect()
}

// voters returns the nodes that vote, in the order in which they should want to own the shard.
func (g *group) voters() []uint64 {
	return inTurn(g.options.first, g.disk.configurationAt(g.applied).GetVoters())
}

// inTurn sorts voters, and begins with another one for each shard.
func inTurn[N cmp.Ordered](shard int, voters []N) []N {
	v := slices.Sorted(slices.Values(voters))
	if len(v) == 0 {
		return nil
	}
	first := shard % len(v)
	return slices.Concat(v[first:], v[:first])
}

// Preferred returns the voter that a shard is meant for, so that a cluster's shards are spread over its nodes; 0 = there are no voters.
func Preferred(shard uint32, voters []wlog.NodeID) wlog.NodeID {
	if v := inTurn(int(shard), voters); len(v) > 0 {
		return v[0]
	}
	return 0
}

// prefer has the node want the shard before others do, if it is the first of the voters: so a cluster's shards are spread over its nodes.
func (g *group) prefer() {
	if v := g.voters(); len(v) > 0 && v[0] == g.id {
		g.rush = rush{until: g.options.election, turns: 2}
		g.hurry()
	}
}

// forget has the node vote for another than a leader that has ended: else it waits for that one as long as the election timeout. A
// leader does not give the shard to the node for a while.
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
	_ = g.node.ForgetLeader() // it changes nothing that is written, and fails in no case that matters
	g.collect()
}

// errMoving says that the shard is on its way to another owner, which may fail.
var errMoving = errors.New("the shard is being transferred")

// transferee returns the node that the shard is being transferred to, raft.None if it is not.
func (g *group) transferee() uint64 { return g.node.BasicStatus().LeadTransferee }

// transfer gives the shard to another node, if that answers within the election timeout.
func (g *group) transfer(to uint64) {
	g.giving = 0
	if to != g.id {
		g.giving = g.term
	}
	g.node.TransferLeader(to)
	g.collect()
}

// handOver gives the shard to another node, unless that is being done, or none has caught up.
func (g *group) handOver() {
	if g.state != raft.StateLeader || g.transferee() != raft.None {
		return
	}
	if to := g.successor(); to != raft.None {
		g.transfer(to)
	}
}

// successor returns the node that is best to transfer the shard to, raft.None if none has caught up and takes it.
func (g *group) successor() (best uint64) {
	match := uint64(0)
	for _, p := range g.peers() {
		if p.caughtUp && !p.learner && p.match >= match && g.wary[p.id] == 0 {
			best, match = p.id, p.match
		}
	}
	return best
}

// declining returns the answer to an owner's request to take over at once, which Raft does not know: the node does not want to. The
// owner would otherwise wait for the election timeout, and all that is appended with it.
func declining(m *raftpb.Message) *raftpb.Message {
	return &raftpb.Message{Type: raftpb.MsgTimeoutNow.Enum(), To: new(m.GetFrom()), From: new(m.GetTo()), Term: new(m.GetTerm()), Reject: new(true)}
}

// decline notes that a node does not take the shard over from a leader in a term. It is not asked again for an election timeout.
func (g *group) decline(node, term uint64) {
	if g.state != raft.StateLeader || term != g.term || node == g.id {
		return
	}
	if g.wary == nil {
		g.wary = map[uint64]int{}
	}
	g.wary[node] = g.options.election
	if g.transferee() == node {
		g.transfer(g.id) // that ends the transfer
	}
}

// tickWary counts a tick of the clock for those that have declined the shard.
func (g *group) tickWary() {
	for node := range g.wary {
		if g.wary[node]--; g.wary[node] == 0 || g.state != raft.StateLeader {
			delete(g.wary, node)
		}
	}
}

// declined reports whether all nodes that could take the shard over have just declined it.
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
