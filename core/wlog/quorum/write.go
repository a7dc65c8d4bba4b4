package quorum

import (
	"slices"

	"go.etcd.io/raft/v3/raftpb"

	"github.com/curfewmq/curfew/core/wlog"
)

// write is what goes to the disk in one append.
type write struct {
	data []byte

	messages []*raftpb.Message
	hard     hardState // zero = it stays as it is
	anew     bool      // the log goes on behind begins, without any entry
	begins   position  // where the log begins from then on; zero = where it did
	conf     *raftpb.ConfState
	entries  []stored
	indexes  []uint64 // of entries
}

// nextWrite returns what is to be written next, about maxBytes of it at most; nil if there is nothing. The caller appends its data, if
// there is some, makes it durable, and calls written; what fails is not tried again, because nobody knows whether it is there.
func (g *group) nextWrite(maxBytes int) *write {
	w := &write{data: g.spare[:0]}
	g.spare = nil
	size := 0
	for _, m := range g.writes {
		if len(w.messages) > 0 && (size >= maxBytes || m.GetSnapshot() != nil) {
			break
		}
		w.messages = append(w.messages, m)
		size += payload(m) + len(m.GetEntries())*entryHeaderSize
		if h, some := hardStateOf(m); some {
			g.hard = h
		}
	}
	g.writes = g.writes[len(w.messages):]
	trim := g.trimThrough(w)
	g.encodeHardState(w, size > 0, trim)
	g.encodeTime(w, trim)
	w.data = slices.Grow(w.data, size)
	for _, m := range w.messages {
		w.encode(m)
	}
	if trim > 0 {
		g.encodeTrim(w, trim)
	}
	if len(w.messages) == 0 && len(w.data) == 0 {
		g.spare = w.data
		return nil
	}
	return w
}

// spareBytes is how much memory for what is written is kept for the next time.
const spareBytes = 2 * maxSize

// encodeHardState adds the hard state, if the log has another one. That entries are committed is no reason to write: a node that does
// not know it any more is told again. It goes with entries that are written.
func (g *group) encodeHardState(w *write, entries bool, trim uint64) {
	h, known := g.hard, g.disk.hard
	h.commit = max(h.commit, trim)
	anew := len(w.messages) > 0 && w.messages[0].GetSnapshot() != nil
	switch {
	case trim > 0 || anew: // the entry that had it may be trimmed
	case h == known, !entries && h.term == known.term && h.vote == known.vote:
		return
	}
	w.hard = h
	w.data = appendHardState(w.data, h)
}

// encodeTime adds what is known of the shard's time, if the log has something else.
func (g *group) encodeTime(w *write, trim uint64) {
	anew := len(w.messages) > 0 && w.messages[0].GetSnapshot() != nil
	if g.time.term == 0 || g.time == g.timing && trim == 0 && !anew { // the entry that had it may be trimmed
		return
	}
	g.timing = g.time
	w.data = appendTime(w.data, g.time)
}

// encode adds a message, but for its hard state.
func (w *write) encode(m *raftpb.Message) {
	if s := m.GetSnapshot(); s != nil {
		meta := s.GetMetadata()
		w.anew, w.begins, w.conf = true, position{meta.GetIndex(), meta.GetTerm()}, meta.GetConfState()
		w.data = appendBeginning(w.data, recAnew, w.begins, w.conf)
	}
	for _, e := range m.GetEntries() {
		size := len(e.GetData())
		w.entries = append(w.entries, stored{entry: e, off: len(w.data) + entryHeaderSize, size: uint32(size), term: e.GetTerm(), typ: e.GetType()})
		w.indexes = append(w.indexes, e.GetIndex())
		w.data = appendEntry(w.data, e)
	}
}

// trimThrough returns through which entry a write is to say that they are gone, because nobody needs them; 0 unless they are many, or
// large: each trim writes the configuration again.
func (g *group) trimThrough(w *write) uint64 {
	d := g.disk
	through := min(g.head.trim, g.applied+1) - 1
	if g.head.trim == 0 || g.pinned > 0 || through <= d.base.index || through > d.last().index ||
		len(w.messages) > 0 && w.messages[0].GetSnapshot() != nil {
		return 0
	}
	if through < d.base.index+uint64(g.options.trimEach) && d.between(d.base.index, through) < g.options.trimBytes {
		return 0
	}
	return through
}

func (g *group) encodeTrim(w *write, through uint64) {
	d := g.disk
	term, _ := d.Term(through) // it is there
	w.begins, w.conf = position{through, term}, d.configurationAt(through)
	w.data = appendBeginning(w.data, recBeginning, w.begins, w.conf)
}

// written notes that a write is durable, in an entry of the local log; at is 0 if it had no data. It returns before which index of
// the local log nothing is needed any more, 0 if that has not changed.
func (g *group) written(w *write, at wlog.Index) (before wlog.Index, err error) {
	d := g.disk
	if cap(w.data) <= spareBytes {
		g.spare = w.data
	}
	if w.hard != (hardState{}) {
		d.hard = w.hard
	}
	if w.anew {
		d.restart(w.begins, w.conf)
		g.applied, g.head.trim = w.begins.index, 0
		g.restarted(w.begins)
	}
	for i, e := range w.entries {
		e.at = at
		if err := d.put(w.indexes[i], e); err != nil {
			return 0, err
		}
	}
	if w.begins != (position{}) {
		d.forget(w.begins, w.conf)
		if before = at; len(d.entries) > 0 {
			before = min(at, d.entries[0].at)
		}
	}
	for _, m := range w.messages {
		g.unwritten -= payload(m)
		g.answer(m.GetResponses())
	}
	g.collectAcked()
	return before, nil
}
