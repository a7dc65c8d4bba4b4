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
// majority elects, and a majority had each committed entry when it was committed.
//
//	term u64 | time i64      of the owner in that term, or less
const stampSize = 16

// isStamped reports whether messages of a type have a stamp.
func isStamped(t raftpb.MessageType) bool {
	return ofLeader(t) || t == raftpb.MsgVoteResp || t == raftpb.MsgPreVoteResp
}

// ofLeader reports whether stamped messages of a type are from the leader in their term.
func ofLeader(t raftpb.MessageType) bool {
	return t == raftpb.MsgApp || t == raftpb.MsgSnap || t == raftpb.MsgTimeoutNow
}

// stamp adds what the node knows of the shard's time to a message.
func (g *group) stamp(m *raftpb.Message) {
	if !isStamped(m.GetType()) || g.known == nil {
		return
	}
	if term, at := g.known(); term > 0 {
		b := make([]byte, 0, stampSize)
		b = binary.LittleEndian.AppendUint64(b, term)
		m.Context = binary.LittleEndian.AppendUint64(b, uint64(at))
	}
}

// readStamp tells of what another node knew of the shard's time a moment ago.
func (g *group) readStamp(m *raftpb.Message) {
	b := m.GetContext()
	if !isStamped(m.GetType()) || len(b) != stampSize || g.timed == nil {
		return
	}
	term := binary.LittleEndian.Uint64(b)
	g.timed(term, hook.Instant(binary.LittleEndian.Uint64(b[8:])), ofLeader(m.GetType()) && !m.GetReject() && term == m.GetTerm())
}
