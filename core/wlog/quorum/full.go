package quorum

import (
	"math"
	"slices"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"

	"github.com/curfewmq/curfew/core/wlog"
)

// A full disk refuses what Raft wants written. Nothing can be left out: others may have it already. So the node waits for space, and the others
// go on without it. Meanwhile it writes, before its turn, only what frees space: that the log begins later. The shard's owner says with each
// message how much of the log nobody needs any more, see stamp.go: the entries that say so come behind those that do not fit. What is needed
// stands in entries that a majority has, and that the node may lack: until it has them, its log alone is not whole, see [Refound].

// refused notes that there was no space for a write, of which nothing was written. It is not returned again as it is.
func (g *group) refused(w *write) {
	g.writes = append(w.messages, g.writes...)
	g.noted = w.before
	g.keepSpare(w)
	if !g.full {
		g.full = true
		g.answerEarly(g.writes)
	}
	g.attest()
	g.collect()
}

// attest tells Raft in the present term what is on the disk: what a write of an earlier term was answered with does not count, and the answer
// that does comes behind the writes that wait. Without it those entries are not applied, and so not trimmed.
func (g *group) attest() {
	last := g.disk.last()
	for _, m := range g.writes {
		if es := m.GetEntries(); len(es) > 0 && es[0].GetIndex() <= last.index {
			return // it will be replaced
		}
	}
	_ = g.node.Step(&raftpb.Message{
		Type: raftpb.MsgStorageAppendResp.Enum(), From: new(uint64(raft.LocalAppendThread)), To: &g.id,
		Term: new(g.term), Index: &last.index, LogTerm: &last.term,
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
	if n > 1 && repeats(m, g.writes[n-2]) {
		g.writes = g.writes[:n-1]
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

// repeats reports whether a message brings nothing to write, and all that waits for it waits for the one before, too: that becomes many while
// a disk is full.
func repeats(m, before *raftpb.Message) bool {
	if _, some := hardStateOf(m); some || len(m.GetEntries()) > 0 || m.GetSnapshot() != nil {
		return false
	}
	for _, r := range m.GetResponses() {
		if !slices.ContainsFunc(before.GetResponses(), func(b *raftpb.Message) bool { return proto.Equal(r, b) }) {
			return false
		}
	}
	return true
}

// nextFreeing returns a write that frees space, if the last one was refused; nil if there is none.
func (g *group) nextFreeing() *write {
	if !g.full {
		return nil
	}
	for i, m := range slices.Backward(g.writes) {
		if m.GetSnapshot() != nil && len(m.GetEntries()) == 0 {
			return g.skipTo(i)
		}
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
	l, ok := d.log.(interface{ Frees(before wlog.Index) bool })
	if !ok {
		return true
	}
	before := wlog.Index(math.MaxUint64) // what says that it is trimmed stays
	if n := through - d.base.index; n < uint64(len(d.entries)) {
		before = d.entries[n].at
	}
	return l.Frees(before)
}
