package quorum

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"

	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"

	"github.com/curfewmq/curfew/core/wlog"
)

// Message is a message of a node's engine to another node's engine about a shard.
type Message struct {
	Shard uint32
	// Bulk reports that the message may be large. Bulk messages to a node keep their order,
	// and must not delay the other messages, which are small and of which some are urgent.
	Bulk bool
	// Bytes is the message, of at most MaxMessage bytes. Other messages may share it, so it must not be changed.
	Bytes []byte
	// Done is called once, when it is known whether the other engine has received the message. Any goroutine may call it, and it does not
	// block. nil means that the sender does not need to know.
	Done func(delivered bool)
}

// MaxMessage is the maximum size of a message in bytes.
const MaxMessage = MaxEntry + 2*maxSize

// errMessage says that a message is none that an engine sends.
var errMessage = errors.New("not a message of a replica")

// A message is its payload, its context and a fixed end. The payload is records of a local log: the entries of MsgApp, or the beginning in
// MsgSnap. The context of both, and of messages that elect an owner, is a stamp or empty. Sender and receiver are not in the bytes.
//
//	records | context | size of context u8 | type u8 | flags u8 | term u64 | log term u64 | index u64 | commit u64 | reject hint u64
//
// The flags are 1 for a rejection plus, in answers to an owner, twice the first purpose for which there is space. The commit of these
// answers, which Raft does not use, is the room of the sender's log in bytes, plus 1; 0 = not stated. See space.go.
const messageEnd = 3 + 5*8

const maxContext = 64

// say writes into an answer the space that its sender has.
func (s space) say(b []byte) {
	end := b[len(b)-messageEnd:]
	end[2] |= byte(s.takes) << 1
	binary.LittleEndian.PutUint64(end[commitAt:], uint64(s.room)+1)
}

// spaceOf returns the space that the sender of an answer has.
func spaceOf(b []byte) space {
	end := b[len(b)-messageEnd:]
	room := binary.LittleEndian.Uint64(end[commitAt:]) - 1
	return space{takes: wlog.Purpose(end[2] >> 1), room: int64(min(room, plenty))} // not stated is plenty
}

const commitAt = 3 + 3*8 // in the end of a message

func encode(m *raftpb.Message) []byte {
	b := make([]byte, 0, encodedSize(m))
	if s := m.GetSnapshot(); m.GetType() == raftpb.MsgSnap {
		meta := s.GetMetadata()
		b = appendBeginning(b, recAnew, position{meta.GetIndex(), meta.GetTerm()}, meta.GetConfState())
	}
	context := m.GetContext()
	if carriesRead(m.GetType()) {
		context = m.GetEntries()[0].GetData()
	} else {
		for _, e := range m.GetEntries() {
			b = appendEntry(b, e)
		}
	}
	return appendMessageEnd(append(b, context...), m, len(context))
}

func appendMessageEnd(b []byte, m *raftpb.Message, context int) []byte {
	reject := byte(0)
	if m.GetReject() {
		reject = 1
	}
	b = append(b, byte(context), byte(m.GetType()), reject)
	for _, n := range [...]uint64{m.GetTerm(), m.GetLogTerm(), m.GetIndex(), m.GetCommit(), m.GetRejectHint()} {
		b = binary.LittleEndian.AppendUint64(b, n)
	}
	return b
}

func encodedSize(m *raftpb.Message) int {
	n := messageEnd + maxContext
	for _, e := range m.GetEntries() {
		n += entryHeaderSize + len(e.GetData())
	}
	return n
}

// alike reports whether two messages with entries differ only in their receivers, as most do.
func alike(a, b *raftpb.Message) bool {
	as, bs := a.GetEntries(), b.GetEntries()
	return a.GetType() == b.GetType() && len(as) == len(bs) && as[0] == bs[0] && as[len(as)-1] == bs[len(bs)-1] &&
		a.GetTerm() == b.GetTerm() && a.GetLogTerm() == b.GetLogTerm() && a.GetIndex() == b.GetIndex() && a.GetCommit() == b.GetCommit()
}

// carriesRead reports whether messages of a type have an entry that only holds the number of a read.
func carriesRead(t raftpb.MessageType) bool {
	return t == raftpb.MsgReadIndex || t == raftpb.MsgReadIndexResp
}

// bulk reports whether messages of a type count as bulk. An MsgApp without entries does: it states a commit, and its receiver refuses it if
// it arrives before the entries in front of it.
func bulk(t raftpb.MessageType) bool { return t == raftpb.MsgApp || t == raftpb.MsgSnap }

// decode reads a message from one node to another. The message refers to b.
func decode(b []byte, from, to wlog.NodeID) (*raftpb.Message, error) {
	n := len(b) - messageEnd
	if n < 0 || len(b) > MaxMessage {
		return nil, fmt.Errorf("%w: %d bytes", errMessage, len(b))
	}
	end := &records{b: b, off: n}
	context, typ, reject := int(end.u8()), raftpb.MessageType(end.u8()), end.u8()
	m := &raftpb.Message{Type: &typ, From: new(uint64(from)), To: new(uint64(to))}
	for _, field := range [...]**uint64{&m.Term, &m.LogTerm, &m.Index, &m.Commit, &m.RejectHint} {
		*field = new(end.u64())
	}
	takes := reject >> 1
	reject &= 1
	if takes > byte(wlog.Trimming) || takes > 0 && !saysSpace(typ) || context > min(n, maxContext) {
		return nil, fmt.Errorf("%w: a purpose %d, %d bytes of context", errMessage, takes, context)
	}
	if saysSpace(typ) {
		m.Commit = new(uint64) // in the bytes it is the sender's room
	}
	if m.Context = slices.Clip(b[n-context : n]); reject == 1 {
		m.Reject = new(true)
	}
	return m, readMessage(m, slices.Clip(b[:n-context]))
}

// readMessage reads the payload of a message and checks it, because Raft trusts it.
func readMessage(m *raftpb.Message, brings []byte) error {
	if n := len(m.GetContext()); isStamped(m.GetType()) && n != 0 && n != stampSize {
		return fmt.Errorf("%w: %v with %d bytes of context", errMessage, m.GetType(), n)
	}
	switch t := m.GetType(); t {
	case raftpb.MsgApp:
		return readEntries(m, brings)
	case raftpb.MsgSnap:
		return readSnapshot(m, brings)
	case raftpb.MsgReadIndex, raftpb.MsgReadIndexResp:
		m.Entries = []*raftpb.Entry{{Data: m.GetContext()}}
		m.Context = nil
		if known := m.GetTerm() > 0; known != (t == raftpb.MsgReadIndexResp) {
			return fmt.Errorf("%w: %v of term %d", errMessage, t, m.GetTerm())
		}
		return nothing(m, brings)
	case raftpb.MsgHeartbeat, raftpb.MsgHeartbeatResp:
		if n := len(m.GetContext()); n != 0 && n != 8 {
			return fmt.Errorf("%w: %v with %d bytes of context", errMessage, t, n)
		}
		return ofTerm(m, brings)
	case raftpb.MsgAppResp, raftpb.MsgVote, raftpb.MsgVoteResp, raftpb.MsgPreVote, raftpb.MsgPreVoteResp, raftpb.MsgTimeoutNow:
		return ofTerm(m, brings)
	default: // Raft sends these types only to itself
		return fmt.Errorf("%w: type %d", errMessage, t)
	}
}

func ofTerm(m *raftpb.Message, brings []byte) error {
	if m.GetTerm() == 0 { // Raft would take it for a local message
		return fmt.Errorf("%w: %v of no term", errMessage, m.GetType())
	}
	return nothing(m, brings)
}

func nothing(m *raftpb.Message, brings []byte) error {
	if len(brings) > 0 {
		return fmt.Errorf("%w: %v brings %d bytes", errMessage, m.GetType(), len(brings))
	}
	return nil
}

// readEntries reads the entries of a message, which follow the position that the message names.
func readEntries(m *raftpb.Message, brings []byte) error {
	last := position{m.GetIndex(), m.GetLogTerm()}
	for r := (&records{b: brings}); r.off < len(brings); {
		if kind := r.u8(); kind != recEntry {
			return fmt.Errorf("%w: record of kind %d among entries", errMessage, kind)
		}
		p, typ := r.position(), raftpb.EntryType(r.u8())
		data := r.take(int(min(r.u32(), maxEntryData+1)))
		switch {
		case r.bad || len(data) > maxEntryData:
			return fmt.Errorf("%w: entry %d is cut off or too large", errMessage, p.index)
		case p.index != last.index+1 || p.term < last.term || p.term > m.GetTerm():
			return fmt.Errorf("%w: entry %d of term %d after %d of term %d, in term %d", errMessage, p.index, p.term, last.index, last.term, m.GetTerm())
		}
		if err := checkEntry(typ, data); err != nil {
			return fmt.Errorf("%w: entry %d: %w", errMessage, p.index, err)
		}
		last = p
		m.Entries = append(m.Entries, &raftpb.Entry{Index: &p.index, Term: &p.term, Type: &typ, Data: data})
	}
	return ofTerm(m, nil)
}

var errEntry = errors.New("not an entry of a replica")

func checkEntry(typ raftpb.EntryType, data []byte) error {
	switch typ {
	case raftpb.EntryNormal:
		if n := len(data); n > 0 && n < bodyHeaderSize && n != trimSize {
			return fmt.Errorf("%w: %d bytes", errEntry, len(data))
		}
		return nil
	case raftpb.EntryConfChangeV2:
		return proto.Unmarshal(data, &raftpb.ConfChangeV2{})
	case raftpb.EntryConfChange:
	}
	return fmt.Errorf("%w: type %d", errEntry, typ)
}

// changesIn returns the changes in an entry that checkEntry has accepted.
func changesIn(data []byte) []*raftpb.ConfChangeSingle {
	c := &raftpb.ConfChangeV2{}
	_ = proto.Unmarshal(data, c)
	return c.GetChanges()
}

// readSnapshot reads the position where the log begins.
func readSnapshot(m *raftpb.Message, brings []byte) error {
	r := &records{b: brings}
	if kind := r.u8(); kind != recAnew {
		return fmt.Errorf("%w: record of kind %d as a beginning", errMessage, kind)
	}
	p, c := r.position(), r.configuration()
	if r.bad || r.off < len(brings) || p.index < first.index || p.term == 0 || p.term > m.GetTerm() || !sound(c) {
		return fmt.Errorf("%w: a beginning behind %d of term %d with %v, in term %d", errMessage, p.index, p.term, c, m.GetTerm())
	}
	m.Snapshot = &raftpb.Snapshot{Metadata: &raftpb.SnapshotMetadata{Index: &p.index, Term: &p.term, ConfState: c}}
	return nil
}

// sound reports whether a configuration is consistent.
func sound(c *raftpb.ConfState) bool {
	now := slices.Concat(c.GetVoters(), c.GetLearners())
	for _, nodes := range [...][]uint64{now, c.GetVotersOutgoing(), c.GetLearnersNext()} {
		nodes = slices.Sorted(slices.Values(nodes))
		if slices.Contains(nodes, 0) || len(slices.Compact(slices.Clone(nodes))) < len(nodes) {
			return false
		}
	}
	for _, n := range c.GetLearnersNext() {
		if !slices.Contains(c.GetVotersOutgoing(), n) {
			return false
		}
	}
	for _, n := range c.GetLearners() {
		if slices.Contains(c.GetVotersOutgoing(), n) {
			return false
		}
	}
	return len(c.GetVoters()) > 0
}
