package quorum

import (
	"encoding/binary"

	"go.etcd.io/raft/v3/raftpb"

	"github.com/curfewmq/curfew/sdk/hook"
)

// A stamp is the context of a message, and carries the sender's knowledge of the shard's time.
//
// A leader stamps messages that carry entries, state where the log begins, or make a node take over. Without the stamp a node that was away
// would know an owner's time only from old entries, or by a clock that was set meanwhile. An example: the shard's time is 12:10. A node
// that was stopped at 12:00 gets an entry that was proposed at 12:01 and waited on the network. By the entry alone it would take 12:01 for
// the present time; the stamp says 12:10.
//
// Stamped messages may wait, too, while the node is stopped or behind a large message. So electors stamp their votes. A majority elects the
// new owner, and a majority had each committed entry when it was committed, so at least one elector knows the time of the last owner or of
// a later one. Electors that know the time only from an earlier life send a claim, see samples.
//
// A node whose disk is full also learns from stamps which entries are not needed any more, see full.go.
//
//	term u64 | time i64 | trim u64      of the owner in that term, or less; 0 = not known
//	0 u64    | time i64 | term u64      a claim, in answers to requests for votes
const stampSize = 24

// isStamped reports whether messages of a type have a stamp.
func isStamped(t raftpb.MessageType) bool {
	return ofLeader(t) || t == raftpb.MsgVoteResp || t == raftpb.MsgPreVoteResp
}

// ofLeader reports whether stamped messages of a type come from the leader in their term.
func ofLeader(t raftpb.MessageType) bool {
	return t == raftpb.MsgApp || t == raftpb.MsgSnap || t == raftpb.MsgTimeoutNow
}

// stamp adds to a message the node's knowledge of the shard's time and, if the node leads, the trim.
func (g *group) stamp(m *raftpb.Message) {
	if !isStamped(m.GetType()) || g.known == nil {
		return
	}
	term, at, claim := g.known()
	last := uint64(0)
	switch leader := ofLeader(m.GetType()); {
	case claim && leader:
		term, at, last = 0, 0, max(g.head.trim, g.told)
	case claim:
		term, last = 0, term
	case leader:
		last = max(g.head.trim, g.told)
	}
	if term == 0 && last == 0 {
		return
	}
	b := make([]byte, 0, stampSize)
	b = binary.LittleEndian.AppendUint64(b, term)
	b = binary.LittleEndian.AppendUint64(b, uint64(at))
	m.Context = binary.LittleEndian.AppendUint64(b, last)
}

// readStamp stores the knowledge that another node stated a moment ago.
func (g *group) readStamp(m *raftpb.Message) {
	b := m.GetContext()
	if !isStamped(m.GetType()) || len(b) != stampSize {
		return
	}
	term, at, last := binary.LittleEndian.Uint64(b), hook.Instant(binary.LittleEndian.Uint64(b[8:])), binary.LittleEndian.Uint64(b[16:])
	by := told
	switch leader := ofLeader(m.GetType()); {
	case leader && !m.GetReject():
		if g.told = max(g.told, last); term == m.GetTerm() {
			by = heard
		}
	case !leader && term == 0:
		term, by = last, claimed
	}
	if term > 0 && g.timed != nil {
		g.timed(term, at, by)
	}
}
