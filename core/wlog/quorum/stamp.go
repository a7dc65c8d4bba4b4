package quorum

import (
	"encoding/binary"

	"go.etcd.io/raft/v3/raftpb"

	"github.com/curfewmq/curfew/sdk/hook"
)

// A message that brings entries, says where the log begins, or has a node take over, has as its context what the leader knows of the shard's
// time. A node that was away gets old entries of an owner that it has not heard: without more it would know that owner's time only as of the
// last of them, or by a clock that was set meanwhile.
// All that may have waited for the node: while it was stopped, or behind a large message. So those who elect it say what they know, too. A
// majority elects, and a majority had each committed entry when it was committed. What they know from an earlier life they claim only, see samples.
//
// A node whose disk is full learns in the same way which entries are not needed any more, see full.go.
//
//	term u64 | time i64 | trim u64      of the owner in that term, or less; 0 = not known
//	0 u64    | time i64 | term u64      a claim, in answers to wishes for votes
const stampSize = 24

// isStamped reports whether messages of a type have a stamp.
func isStamped(t raftpb.MessageType) bool {
	return ofLeader(t) || t == raftpb.MsgVoteResp || t == raftpb.MsgPreVoteResp
}

// ofLeader reports whether stamped messages of a type are from the leader in their term.
func ofLeader(t raftpb.MessageType) bool {
	return t == raftpb.MsgApp || t == raftpb.MsgSnap || t == raftpb.MsgTimeoutNow
}

// stamp adds what the node knows to a message: of the shard's time and, if it leads, of what is not needed.
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

// readStamp takes note of what another node knew a moment ago.
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
