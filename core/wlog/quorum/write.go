package quorum

import (
	"slices"

	"go.etcd.io/raft/v3/raftpb"

	"github.com/curfewmq/curfew/core/wlog"
)

// write is what goes to the disk in one append.
type write struct {
	data    []byte
	purpose wlog.Purpose

	messages []*raftpb.Message
	before   noted     // what the group had noted before it
	hard     hardState // zero = it stays as it is
	anew     bool      // the log goes on behind begins, without any entry
	begins   position  // where the log begins from then on; zero = where it did
	conf     *raftpb.ConfState
	entries  []stored
	indexes  []uint64 // of entries
}

// noted is what a group knows of the writes that it has returned.
type noted struct {
	hard hardState // the latest
	time kept      // of the shard, that was written or is about to be
}

// nextWrite returns what is to be written next, about maxBytes of it at most; nil if there is nothing. The caller appends its data, if
// there is some, for its purpose, makes it durable, and calls written, or refused if there was no space for it; what fails otherwise is not
// tried again, because nobody knows whether it is there.
func (g *group) nextWrite(maxBytes int) *write {
	if w := g.nextFreeing(); w != nil {
		return w
	}
	if g.full {
		maxBytes = 1 // a part may fit
	}
	n, size := 0, 0
	for _, m := range g.writes {
		if n > 0 && (size >= maxBytes || m.GetSnapshot() != nil) {
			break
		}
		n++
		size += payload(m) + len(m.GetEntries())*entryHeaderSize
	}
	w := g.newWrite(wlog.Settling, n)
	anew, trim := n > 0 && w.messages[0].GetSnapshot() != nil, uint64(0)
	if !anew {
		trim = g.trimThrough()
	}
	g.encodeHardState(w, size > 0, anew, trim)
	g.encodeTime(w, anew || trim > 0)
	w.data = slices.Grow(w.data, size)
	for _, m := range w.messages {
		w.encode(m)
	}
	if trim > 0 {
		g.encodeTrim(w, trim)
	}
	if n == 0 && len(w.data) == 0 {
		g.spare = w.data
		return nil
	}
	return w
}

// newWrite returns a write that has the first n of the messages, and no data yet.
func (g *group) newWrite(p wlog.Purpose, n int) *write {
	w := &write{data: g.spare[:0], purpose: p, messages: g.writes[:n:n], before: g.noted}
	g.spare, g.writes = nil, g.writes[n:]
	for _, m := range w.messages {
		if h, some := hardStateOf(m); some {
			g.noted.hard = h
		}
	}
	return w
}

// spareBytes is how much memory for what is written is kept for the next time.
const spareBytes = 2 * maxSize

// keepSpare keeps the memory of a write for the next one.
func (g *group) keepSpare(w *write) {
	if cap(w.data) <= spareBytes {
		g.spare = w.data
	}
}

// encodeHardState adds the hard state, if the log has another one. That entries are committed is no reason to write: a node that does
// not know it any more is told again. It goes with entries that are written.
func (g *group) encodeHardState(w *write, entries, anew bool, trim uint64) {
	h, known := g.noted.hard, g.disk.hard
	h.commit = max(h.commit, trim)
	switch {
	case trim > 0 || anew: // the entry that had it may be trimmed
	case h == known, !entries && h.term == known.term && h.vote == known.vote:
		return
	}
	w.hard = h
	w.data = appendHardState(w.data, h)
}

// encodeTime adds what is known of the shard's time, if the log has something else, or if the entry that had it may be trimmed.
func (g *group) encodeTime(w *write, trims bool) {
	if g.time.term == 0 || g.time == g.noted.time && !trims {
		return
	}
	g.noted.time = g.time
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
// large, or the disk is full: each trim writes the configuration again.
func (g *group) trimThrough() uint64 {
	d, before := g.disk, g.head.trim
	if g.full && !g.options.prompt {
		before = max(before, g.told)
	}
	through := min(before, g.applied+1) - 1
	if before == 0 || g.pinned > 0 || through <= d.base.index || through > d.last().index {
		return 0
	}
	if !g.full && through < d.base.index+uint64(g.options.trimEach) && d.between(d.base.index, through) < g.options.trimBytes {
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
	g.keepSpare(w)
	if w.purpose != wlog.Trimming {
		g.full = false
	}
	if w.hard != (hardState{}) {
		d.hard = w.hard
	}
	if w.anew {
		d.restart(w.begins, w.conf)
		g.applied, g.head.trim, g.told = w.begins.index, 0, 0
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
