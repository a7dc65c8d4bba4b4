package quorum

import (
	"math"
	"slices"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"

	"github.com/curfewmq/curfew/core/wlog"
)

// A disk that is full to the last byte must not stop a replica for ever. Raft's writes may
// be neither reordered nor left out, except for entries that are to be replaced, because
// other nodes may rely on them. The records that would free the disk come behind the write
// that does not fit. An example:
//
//	The disk holds entries 1-900, and is full. Entry 901 (1 MB) does not fit.
//	Entries 902-950 wait behind it. Entry 950 says that no entry before 940 is needed.
//	A replica that waits for space for 901 waits for ever.
//
// So the shard's owner also states in the stamp of its messages how far the log may be
// trimmed (stamp.go). After a refused write the replica first writes only records that free
// space: a trim, or a new beginning of the log. In the example the message with entry 950
// is stamped 940. The replica trims through 900, writes 901 to 950, and trims through 939.
// Meanwhile the other nodes continue without the replica.
//
// The trim relies on entries that a majority has and that the replica may still lack. Until
// the replica has them, its log alone is incomplete, see [Refound].

// refused takes back a write that the local log has refused, and of which nothing was
// written. nextWrite returns it in parts.
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

// stillFull notes that a probe has found no space for the refused write, see large.
func (g *group) stillFull() {
	g.dropReplaced()
	g.attest()
	g.collect()
}

// split halves the entries of the first message, because half of them may fit.
func split(ms []*raftpb.Message) []*raftpb.Message {
	if len(ms) == 0 || len(ms[0].GetEntries()) < 2 || ms[0].GetSnapshot() != nil {
		return ms
	}
	m, es := ms[0], ms[0].GetEntries()
	half := len(es) / 2
	first := &raftpb.Message{Type: m.Type, To: m.To, From: m.From, Term: m.Term, Vote: m.Vote, Commit: m.Commit, Entries: es[:half]}
	if last := es[half-1].GetIndex(); m.GetCommit() > last { // a log must not state a commit beyond its end
		first.Commit = &last
	}
	rest := &raftpb.Message{Type: m.Type, To: m.To, From: m.From, Term: m.Term, Vote: m.Vote, Commit: m.Commit, Entries: es[half:], Responses: m.GetResponses()}
	return append([]*raftpb.Message{first, rest}, ms[1:]...)
}

// large returns the size of the next write if the caller has to probe for space first: the
// last write was refused, and the next one is large and frees nothing. Otherwise it returns
// 0.
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

// attest reports to Raft, in the present term, which entries are on the disk and will not
// be replaced. Raft ignores the reports of writes of earlier terms, and the report in this
// term would come behind the waiting writes. Without attest Raft would not apply the
// entries on the disk, and so would not trim them.
func (g *group) attest() {
	last := g.disk.last().index
	for _, m := range g.writes {
		if es := m.GetEntries(); len(es) > 0 {
			last = min(last, es[0].GetIndex()-1)
		}
	}
	term, err := g.disk.Term(last)
	if err != nil {
		return // the entry was trimmed
	}
	_ = g.node.Step(&raftpb.Message{
		Type: raftpb.MsgStorageAppendResp.Enum(), From: new(uint64(raft.LocalAppendThread)), To: &g.id,
		Term: new(g.term), Index: &last, LogTerm: &term,
	})
}

// queue appends a message of Raft to the waiting writes.
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

// dropReplaced drops waiting entries that later messages replace: they need space, and
// their replacements may need less. With entries 5-9 and then 7-8 waiting, the first
// message keeps 5-6. Answers that claim a dropped entry go with it; only an owner of an
// earlier term would read them. Raft knows that it has replaced the entries.
func (g *group) dropReplaced() {
	from := uint64(math.MaxUint64) // entries from this index on are replaced
	for _, m := range slices.Backward(g.writes) {
		if m.GetSnapshot() != nil {
			return // messages before it are void, see skipTo
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

// claimless reports whether an answer claims no entry to be on the disk. A leader needs
// such an answer to find out which entries the node lacks, or that there is a later term.
func claimless(m *raftpb.Message) bool {
	return m.GetReject() || m.GetType() == raftpb.MsgAppResp && m.GetIndex() == 0
}

// answerEarly delivers answers that wait for writes although they claim no entry.
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

// dropRepeats drops messages that repeat earlier ones.
func (g *group) dropRepeats() {
	kept := make([]*raftpb.Message, 0, len(g.writes))
	for _, m := range g.writes {
		if !repeats(m, kept) {
			kept = append(kept, m)
		}
	}
	g.writes = kept
}

// repeats reports whether m has nothing to write, and each of its answers also waits for a
// message in before, at or behind the last one that has something to write. A full disk
// collects many such messages.
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

// nextFreeing returns a write that frees space, if the last write was refused; nil if there is none.
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

// beginning returns the index in writes of the last message that says only where the log goes on; -1 = there is none.
func (g *group) beginning() int {
	for i, m := range slices.Backward(g.writes) {
		if m.GetSnapshot() != nil && len(m.GetEntries()) == 0 {
			return i
		}
	}
	return -1
}

// skipTo returns a write that makes the log go on where the i-th message says. It voids the
// entries of the messages before, whose answers are sent as if they had been written.
func (g *group) skipTo(i int) *write {
	w := g.newWrite(wlog.Trimming, i+1)
	g.encodeHardState(w, false, true, 0)
	g.encodeTime(w, true)
	w.encode(w.messages[i])
	return w
}

// frees reports whether a trim through an entry would free space in the local log.
func (g *group) frees(through uint64) bool {
	d := g.disk
	before := wlog.Index(math.MaxUint64) // the record of the trim stays
	if n := through - d.base.index; n < uint64(len(d.entries)) {
		before = d.entries[n].at
	}
	return d.log.Frees(before)
}
