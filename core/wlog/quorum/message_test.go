package quorum

import (
	"errors"
	"slices"
	"testing"

	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"
)

func message(typ raftpb.MessageType, term, index uint64) *raftpb.Message {
	return &raftpb.Message{
		Type: &typ, From: new(uint64(1)), To: new(uint64(2)), Term: &term, LogTerm: new(term), Index: &index, Commit: new(uint64(0)), RejectHint: new(uint64(0)),
	}
}

// messages returns a message of each type.
func messages() map[string]*raftpb.Message {
	app := message(raftpb.MsgApp, 7, 10)
	app.Entries = []*raftpb.Entry{entry(11, 7, "a header of a body, and a body"), entry(12, 7, "")}
	app.Context = []byte("a term, and time, trims.")
	refused := message(raftpb.MsgAppResp, 7, 10)
	refused.Reject, refused.RejectHint = new(true), new(uint64(8))
	vote := message(raftpb.MsgVote, 7, 10)
	vote.Context = []byte("CampaignTransfer")
	beat := message(raftpb.MsgHeartbeat, 7, 0)
	beat.Commit, beat.Context = new(uint64(9)), []byte("12345678")
	snap := message(raftpb.MsgSnap, 7, 0)
	snap.Snapshot = &raftpb.Snapshot{Metadata: &raftpb.SnapshotMetadata{
		Index: new(uint64(10)), Term: new(uint64(6)), ConfState: &raftpb.ConfState{Voters: []uint64{1, 1 << 60}, Learners: []uint64{2}, AutoLeave: new(true)},
	}}
	read := message(raftpb.MsgReadIndex, 0, 0)
	read.Entries = []*raftpb.Entry{{Data: []byte("12345678")}}
	answer := message(raftpb.MsgReadIndexResp, 7, 10)
	answer.Entries = read.Entries
	declined := message(raftpb.MsgTimeoutNow, 7, 0)
	declined.Reject = new(true)
	told := message(raftpb.MsgVoteResp, 7, 0)
	told.Context = app.Context
	return map[string]*raftpb.Message{
		"vote with a stamp": told,
		"declined":          declined, "entries": app, "no entries": message(raftpb.MsgApp, 7, 10), "refused": refused, "vote": vote, "answer to a vote": message(raftpb.MsgVoteResp, 7, 0),
		"heartbeat": beat, "beginning": snap, "read": read, "answer to a read": answer, "take over": message(raftpb.MsgTimeoutNow, 7, 0),
	}
}

// A decoded message is the message that was encoded.
func TestMessages(t *testing.T) {
	for name, m := range messages() {
		t.Run(name, func(t *testing.T) {
			got, err := decode(encode(m), 1, 2)
			if err != nil {
				t.Fatal(err)
			}
			if !slices.Equal(encode(got), encode(m)) || got.GetFrom() != 1 || got.GetTo() != 2 {
				t.Errorf("got %v, want %v", got, m)
			}
			if len(got.GetContext()) == 0 {
				got.Context = nil
			}
			for _, absent := range [...]**bool{&got.Reject, &m.Reject} {
				if *absent == nil {
					*absent = new(false)
				}
			}
			if !proto.Equal(got, m) {
				t.Errorf("got %v, want %v", got, m)
			}
		})
	}
}

// Messages that no engine sends are refused before Raft, which would trust them, sees them.
func TestWrongMessages(t *testing.T) {
	all := messages()
	for name, b := range map[string][]byte{
		"nothing":                   {},
		"cut off":                   encode(all["vote"])[1:],
		"Raft's own":                encode(message(raftpb.MsgHup, 7, 0)),
		"a proposal":                encode(message(raftpb.MsgProp, 7, 0)),
		"unknown":                   encode(message(200, 7, 0)),
		"no term":                   encode(message(raftpb.MsgVote, 0, 0)),
		"half a stamp":              encode(changed(all["entries"], func(m *raftpb.Message) { m.Context = m.GetContext()[8:] })),
		"half a stamp of a vote":    encode(changed(all["vote with a stamp"], func(m *raftpb.Message) { m.Context = m.GetContext()[8:] })),
		"a gap":                     encode(changed(all["entries"], func(m *raftpb.Message) { m.Index = new(uint64(9)) })),
		"entries of the future":     encode(changed(all["entries"], func(m *raftpb.Message) { m.Term = new(uint64(6)) })),
		"terms that fall":           encode(changed(all["entries"], func(m *raftpb.Message) { m.Entries[1].Term = new(uint64(6)) })),
		"an entry without a header": encode(changed(all["entries"], func(m *raftpb.Message) { m.Entries[0].Data = []byte("x") })),
		"an unknown entry":          encode(changed(all["entries"], func(m *raftpb.Message) { m.Entries[0].Type = raftpb.EntryType(9).Enum() })),
		"no voters":                 encode(changed(all["beginning"], func(m *raftpb.Message) { m.Snapshot.Metadata.ConfState = &raftpb.ConfState{} })),
		"a voter twice": encode(changed(all["beginning"], func(m *raftpb.Message) {
			m.Snapshot.Metadata.ConfState.Learners = []uint64{1}
		})),
		"odd context": encode(changed(all["heartbeat"], func(m *raftpb.Message) { m.Context = []byte("x") })),
	} {
		t.Run(name, func(t *testing.T) {
			if m, err := decode(b, 1, 2); !errors.Is(err, errMessage) {
				t.Errorf("got %v, %v", m, err)
			}
		})
	}
}

func changed(m *raftpb.Message, change func(m *raftpb.Message)) *raftpb.Message {
	m = proto.Clone(m).(*raftpb.Message)
	change(m)
	return m
}

// FuzzMessage checks that the bytes of another node are either refused, or the encoding of the decoded message.
func FuzzMessage(f *testing.F) {
	for _, m := range messages() {
		f.Add(encode(m))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		m, err := decode(slices.Clone(b), 1, 2)
		if err != nil {
			return
		}
		if again, err := decode(encode(m), 1, 2); err != nil || !proto.Equal(m, again) {
			t.Errorf("%v became %v, %v", m, again, err)
		}
	})
}
