package quorum

import (
	"math"
	"slices"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"

	"github.com/curfewmq/curfew/core/wlog"
)

// A full disk refuses what Raft wants written. Nothing can be left out but entries that are to be replaced: others may have it already. So the node
// waits for space, and the others go on without it. Meanwhile it writes, before its turn, only what frees space: that the log begins later. The
// shard's owner says with each message how much of the log nobody needs any more, see stamp.go: the entries that say so come behind those that do
// not fit. What is needed stands in entries that a majority has, and that the node may lack: until it has them, its log alone is not whole, see
// [Refound].

// refused notes that there was no space for a write, of which nothing was written. It is not returned again as it is.
func (g *group) refused(w *write) {
	g.writes = append(split(w.messages), g.writes...)
	g.dropReplaced()
	g.dropRepeats()
	g.noted = w.before
	g.keepSpare(w)
	if !g.full {
		g.full = true
		g.answerEarly(g.writes)
	}
	g.attest()
	g.collect()
}

// stillFull notes that there is no space yet for what was refused, while it is not tried as it is, see large.
func (g *group) stillFull() {
	g.dropReplaced()
	g.attest()
	g.collect()
}

// split halves the entries of the first message: a part may fit.
func split(ms []*raftpb.Message) []*raftpb.Message {
	if len(ms) == 0 || len(ms[0].GetEntries()) < 2 || ms[0].GetSnapshot() != nil {
		return ms
	}
	m, es := ms[0], ms[0].GetEntries()
	half := len(es) / 2
	first := &raftpb.Message{Type: m.Type, To: m.To, From: m.From, Term: m.Term, Vote: m.Vote, Commit: m.Commit, Entries: es[:half]}
	if last := es[half-1].GetIndex(); m.GetCommit() > last { // a log does not know more to be committed than it has
		first.Commit = &last
	}
	rest := &raftpb.Message{Type: m.Type, To: m.To, From: m.From, Term: m.Term, Vote: m.Vote, Commit: m.Commit, Entries: es[half:], Responses: m.GetResponses()}
	return append([]*raftpb.Message{first, rest}, ms[1:]...)
}

// large returns how large the next write is that was refused and frees nothing, unless it is so small that it may be tried as it is.
func (g *group) large() int {
	if !g.full || len(g.writes) == 0 {
		return 0
	}
	m := g.writes[0]
	size := payload(m) + len(m.GetEntries())*entryHeaderSize + hardStateSize + timeSize
	if size <= spareBytes || g.canFree() {
		return 0
	}
	return size
}

// attest tells Raft in the present term what is on the disk, but for entries that will be replaced: what a write of an earlier term was answered
// with does not count, and the answer that does comes behind the writes that wait. Without it those entries are not applied, and so not trimmed.
func (g *group) attest() {
	last := g.disk.last().index
	for _, m := range g.writes {
		if es := m.GetEntries(); len(es) > 0 {
			last = min(last, es[0].GetIndex()-1)
		}
	}
	term, err := g.disk.Term(last)
	if err != nil {
		return // it is gone
	}
	_ = g.node.Step(&raftpb.Message{
		Type: raftpb.MsgStorageAppendResp.Enum(), From: new(uint64(raft.LocalAppendThread)), To: &g.id,
		Term: new(g.term), Index: &last, LogTerm: &term,
	})
}

// queue has a message of Raft written in its turn.
func (g *group) queue(m *raftpb.Message) {
	g.writes = append(g.writes, m)
	g.unwritten += payload(m)
	if !g.full {
		return
	}
	n := len(g.writes)
	g.answerEarly(g.writes[n-1:])
	if repeats(m, g.writes[:n-1]) {
		g.writes = g.writes[:n-1]
	}
}

// dropReplaced drops the entries that later messages replace, as if they had never come: they need space, and what replaces them may need less.
// What is claimed of them goes with them; only an owner of an earlier term would hear it. Raft knows itself that it has replaced them.
func (g *group) dropReplaced() {
	from := uint64(math.MaxUint64) // the entries from there on are replaced
	for _, m := range slices.Backward(g.writes) {
		if m.GetSnapshot() != nil {
			return // what comes before is void, see skipTo
		}
		m.Responses = slices.DeleteFunc(m.GetResponses(), func(r *raftpb.Message) bool {
			return r.GetType() == raftpb.MsgAppResp && !r.GetReject() && r.GetIndex() >= from
		})
		es := m.GetEntries()
		if len(es) == 0 {
			continue
		}
		begins := es[0].GetIndex()
		if es[len(es)-1].GetIndex() >= from {
			g.unwritten -= payload(m)
			m.Entries = es[:from-min(from, begins)]
			g.unwritten += payload(m)
		}
		from = min(from, begins)
	}
}

// claimless reports whether an answer claims nothing to be on the disk. A leader needs it to find out what the node lacks, or that there is a
// later term.
func claimless(m *raftpb.Message) bool {
	return m.GetReject() || m.GetType() == raftpb.MsgAppResp && m.GetIndex() == 0
}

// answerEarly delivers what waits for writes and claims nothing.
func (g *group) answerEarly(writes []*raftpb.Message) {
	var early []*raftpb.Message
	for _, m := range writes {
		m.Responses = slices.DeleteFunc(m.GetResponses(), func(r *raftpb.Message) bool {
			if !claimless(r) {
				return false
			}
			early = append(early, r)
			return true
		})
	}
	g.answer(early)
}

// dropRepeats drops the messages that repeat others before them.
func (g *group) dropRepeats() {
	kept := make([]*raftpb.Message, 0, len(g.writes))
	for _, m := range g.writes {
		if !repeats(m, kept) {
			kept = append(kept, m)
		}
	}
	g.writes = kept
}

// repeats reports whether a message brings nothing to write, and all that waits for it waits for those before it, too, of which the last that
// brings something is the first that counts. Such messages become many while a disk is full.
func repeats(m *raftpb.Message, before []*raftpb.Message) bool {
	if brings(m) {
		return false
	}
	for _, r := range m.GetResponses() {
		known := false
		for _, b := range slices.Backward(before) {
			known = slices.ContainsFunc(b.GetResponses(), func(b *raftpb.Message) bool { return proto.Equal(r, b) })
			if known || brings(b) {
				break
			}
		}
		if !known {
			return false
		}
	}
	return len(before) > 0
}

func brings(m *raftpb.Message) bool {
	_, some := hardStateOf(m)
	return some || len(m.GetEntries()) > 0 || m.GetSnapshot() != nil
}

// nextFreeing returns a write that frees space, if the last one was refused; nil if there is none.
func (g *group) nextFreeing() *write {
	if !g.full {
		return nil
	}
	if i := g.beginning(); i >= 0 {
		return g.skipTo(i)
	}
	if through := g.trimThrough(); through > 0 && g.frees(through) {
		w := g.newWrite(wlog.Trimming, 0)
		g.encodeHardState(w, false, false, through)
		g.encodeTime(w, true)
		g.encodeTrim(w, through)
		return w
	}
	return nil
}

// canFree reports whether nextFreeing returns a write.
func (g *group) canFree() bool {
	through := g.trimThrough()
	return g.beginning() >= 0 || through > 0 && g.frees(through)
}

// beginning returns which message says where the log goes on; -1 = none does.
func (g *group) beginning() int {
	for i, m := range slices.Backward(g.writes) {
		if m.GetSnapshot() != nil && len(m.GetEntries()) == 0 {
			return i
		}
	}
	return -1
}

// skipTo returns a write that has the log go on where the i-th message says. What the messages before it bring is void then: they are answered
// as if it had been written.
func (g *group) skipTo(i int) *write {
	w := g.newWrite(wlog.Trimming, i+1)
	g.encodeHardState(w, false, true, 0)
	g.encodeTime(w, true)
	w.encode(w.messages[i])
	return w
}

// frees reports whether the local log gets space by a trim through an entry.
func (g *group) frees(through uint64) bool {
	d := g.disk
	before := wlog.Index(math.MaxUint64) // what says that it is trimmed stays
	if n := through - d.base.index; n < uint64(len(d.entries)) {
		before = d.entries[n].at
	}
	return d.log.Frees(before)
}
