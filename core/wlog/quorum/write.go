package quorum

import (
	"context"
	"errors"
	"slices"
	"time"

	"go.etcd.io/raft/v3/raftpb"

	"github.com/curfewmq/curfew/core/wlog"
)

// write is the contents of one append to the local log.
type write struct {
	data    []byte
	purpose wlog.Purpose

	messages []*raftpb.Message
	before   noted     // the group's noted, as it was before the write
	hard     hardState // zero = unchanged
	anew     bool      // all entries are void, and the log goes on behind begins
	begins   position  // the log begins behind this position; zero = unchanged
	conf     *raftpb.ConfState
	entries  []stored
	indexes  []uint64 // of entries
}

// noted is the state of the disk after all writes that nextWrite has returned.
type noted struct {
	hard hardState // the latest one
	time kept      // the time that was written or is about to be
}

// nextWrite returns the next write, of about maxBytes at most; nil if there is nothing to write. The caller appends its data, if any, for
// its purpose, makes it durable and calls written, or calls refused if the local log has no space. After any other failure the write is not
// repeated, because it is unknown whether the data is on the disk.
func (g *group) nextWrite(maxBytes int) *write {
	if w := g.nextFreeing(); w != nil {
		return w
	}
	if g.full {
		maxBytes = 1 // half of the entries may fit
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

// newWrite returns a write for the first n messages, without data.
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

// spareBytes is the size up to which memory of a write or proposal is kept for the next one.
const spareBytes = 2 * maxSize

// keepSpare keeps the memory of a write for the next one.
func (g *group) keepSpare(w *write) {
	if cap(w.data) <= spareBytes {
		g.spare = w.data
	}
}

// encodeHardState adds the hard state, if it differs from that of the log. A new commit index alone is no reason to write, because other
// nodes will repeat it; it is written together with entries.
func (g *group) encodeHardState(w *write, entries, anew bool, trim uint64) {
	h, known := g.noted.hard, g.disk.hard
	h.commit = max(h.commit, trim)
	switch {
	case trim > 0 || anew: // a trim may remove the entry that has the hard state
	case h == known, !entries && h.term == known.term && h.vote == known.vote:
		return
	}
	w.hard = h
	w.data = appendHardState(w.data, h)
}

// encodeTime adds the shard's time, if it differs from that of the log or a trim may remove the entry that has it.
func (g *group) encodeTime(w *write, trims bool) {
	if g.time.term == 0 || g.time == g.noted.time && !trims {
		return
	}
	g.noted.time = g.time
	w.data = appendTime(w.data, g.time)
}

// encode adds a message without its hard state.
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

// trimThrough returns the index through which a write should trim entries that are not needed; 0 = it should not. Each trim writes the
// configuration again, so entries are trimmed only if they are many or large, or the disk is full.
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
	term, _ := d.Term(through) // the entry is there
	w.begins, w.conf = position{through, term}, d.configurationAt(through)
	w.data = appendBeginning(w.data, recBeginning, w.begins, w.conf)
}

// written notes that a write is durable in an entry of the local log; at is 0 if the write had no data. It returns the index before which
// the local log has become unnecessary, 0 if that has not changed.
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

// job is one request to the local log.
type job struct {
	probe int  // make space for so many bytes, and write nothing; 0 = no probe
	look  bool // only ask how much space there is
	write *write
	trim  wlog.Index // trim before this entry; 0 = do not trim
	at    wlog.Index
	err   error
}

// fullPause is how long write waits on a full disk before the next attempt.
const fullPause = 100 * time.Millisecond

// write is the goroutine that writes to the local log.
func (r *replica) write(ctx context.Context) {
	r.look()
	for j := range r.jobs {
		if j.trim > 0 {
			j.err = r.disk.log.Trim(j.trim)
		}
		if j.probe > 0 && j.err == nil {
			j.err = r.makeSpace(j.probe)
		}
		if j.write != nil && len(j.write.data) > 0 && j.err == nil {
			j.at, j.err = r.disk.log.Append(ctx, j.write.data, j.write.purpose)
		}
		if j.full() {
			r.pause()
		}
		r.look()
		r.done <- j
	}
	close(r.done)
}

// look notes how much space the local log has. That may wait for the disk, so only the
// write goroutine calls look.
func (r *replica) look() {
	r.localRoom.Store(min(r.disk.log.Room()&^(roomStep-1), plenty))
}

// makeSpace makes space in the local log for a large write of size bytes.
func (r *replica) makeSpace(size int) error {
	return r.disk.log.Reserve(size, wlog.Settling)
}

// full reports whether the local log had no space for a write.
func (j *job) full() bool { return errors.Is(j.err, wlog.ErrFull) }

// pause gives the disk time to get space.
func (r *replica) pause() {
	select {
	case <-time.After(fullPause):
	case <-r.stop:
	}
}

// wrote handles a job that write has done.
func (r *replica) wrote(j job) error {
	r.writing = false
	switch {
	case j.probe > 0 && (j.err == nil || j.full()):
		if r.probed = j.err == nil; !r.probed {
			r.group.stillFull()
		}
		return nil
	case j.full():
		r.group.refused(j.write)
		return nil
	case j.err != nil:
		r.fail(j.err)
		return nil
	case j.write == nil:
		return nil
	}
	before, err := r.group.written(j.write, j.at)
	r.trims = max(r.trims, before)
	return err
}

// reserve makes space in the local log for an entry of the shard. It fails with ErrFull if
// a majority of the nodes has no space. A disk may never answer, so reserve returns when
// lost is closed: the appending goroutine has clients to answer.
func (r *replica) reserve(size int, purpose wlog.Purpose, lost <-chan struct{}) error {
	if purpose < wlog.Purpose(r.least.Load()) {
		return wlog.ErrFull
	}
	l := r.disk.log
	size += bodyHeaderSize + entryHeaderSize + hardStateSize + timeSize
	if l.HasSpace(size, purpose) {
		return nil
	}
	began := time.Now()
	r.reserving.Store(&began)
	defer r.reserving.Store(nil)
	done := make(chan error, 1)
	go func() { done <- l.Reserve(size, purpose) }()
	select {
	case err := <-done:
		return err
	case <-lost:
		return wlog.ErrLost
	case <-r.ended:
		return wlog.ErrLost
	}
}

// stalled reports whether the local log has not answered for so long that another node should own the shard.
func (r *replica) stalled() bool {
	since := r.reserving.Load()
	return r.writing && time.Since(r.since) >= r.stall || since != nil && time.Since(*since) >= r.stall
}

// fail notes that the local log has failed. A leader stays in office until another node has
// taken over: it may send entries that it has not written, and its own copy counts for no
// confirmation any more.
func (r *replica) fail(err error) {
	r.failed = err
	if r.log != nil {
		r.log.lose()
	}
	if r.group.passive = true; len(r.group.peers()) > 0 {
		r.farewell = electionTicks
		r.group.handOver()
	}
}
