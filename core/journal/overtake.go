package journal

import (
	"errors"
	"iter"
	"slices"

	"github.com/curfewmq/curfew/core/wlog"
)

// While the log is full, commits that bring more wait at the head of the queue. Commits that free space must not wait behind
// them, because nothing else makes the log less full. So commits that settle or relocate are written before their turn.
//
// Such a commit may free records of a commit that still waits, which would be live again after a replay. Therefore each entry
// that is written later in its turn repeats the commits that overtook it. So the log is right after every entry.

// overtaking is an entry of commits that are written before their turn.
type overtaking struct {
	entry   []byte
	purpose wlog.Purpose
	commits []overtaker
}

// overtaker is the i-th commit of a group.
type overtaker struct {
	group *commitGroup
	i     int
}

// overtake writes commits that overtake g, or parts of g, and reports whether there were any. If they do not fit, it tries with
// commits that only settle, with one of them, and then with one that may move.
func (w *Writer) overtake(g *commitGroup) (some bool, err error) {
	const ordinary = 256 << 10
	for _, try := range []struct {
		least wlog.Purpose
		size  int
	}{{wlog.Moving, ordinary}, {wlog.Settling, ordinary}, {wlog.Settling, 1}, {wlog.Moving, 1}} {
		o := w.overtaking(g, try.least, try.size)
		if len(o.commits) == 0 {
			continue
		}
		var at wlog.Index
		if len(o.entry) > 0 {
			at, err = w.log.Append(w.ctx, o.entry, o.purpose)
		}
		if errors.Is(err, wlog.ErrFull) {
			err = nil
			continue
		}
		if err == nil {
			w.overtook(g, o, at)
		}
		return true, err
	}
	return false, nil
}

// overtaking gathers commits with a purpose of at least least that overtake the group, in an entry of about size bytes.
func (w *Writer) overtaking(first *commitGroup, least wlog.Purpose, size int) (o overtaking) {
	w.mu.Lock()
	defer w.mu.Unlock()
	o.purpose = wlog.Settling
	enough, ahead := false, w.ahead(first)
	for g := range w.queue.from(first) {
		for i := range g.commits {
			c, ops := &g.commits[i], g.ops(i)
			if c.written && len(o.entry) > 0 {
				o.add(c, ops)
			}
			void := w.isVoid(c)
			if enough || c.written || c.refusal != nil || c.purpose < least && !void {
				continue
			}
			if void {
				ops = nil
			}
			repeated := len(ops)
			if c.relocation {
				repeated = 0
			}
			if repeated > w.bounds.most(c.purpose)-ahead {
				continue
			}
			if enough = len(o.entry) > 0 && len(o.entry)+len(ops) > size; enough {
				continue
			}
			ahead += repeated
			o.commits = append(o.commits, overtaker{g, i})
			o.add(c, ops)
		}
	}
	return o
}

// ahead returns the bytes of the commits that were written before their turn, and which later entries repeat. The caller holds mu.
func (w *Writer) ahead(first *commitGroup) (bytes int) {
	for g := range w.queue.from(first) {
		for i := range g.commits {
			if g.commits[i].written {
				bytes += len(g.ops(i))
			}
		}
	}
	return bytes
}

func (o *overtaking) add(c *commit, ops []byte) {
	if len(ops) > 0 {
		o.entry, o.purpose = append(o.entry, ops...), min(o.purpose, c.purpose)
	}
}

// overtook accounts for commits that were written before their turn, at an index.
func (w *Writer) overtook(first *commitGroup, o overtaking, at wlog.Index) {
	var completers []Completer
	w.mu.Lock()
	w.appended(at, len(o.entry))
	for _, t := range o.commits {
		c := &t.group.commits[t.i]
		deltas := t.group.deltas(t.i)
		w.extents.freeAll(deltas)
		clear(deltas)
		if c.completer != nil {
			completers = append(completers, c.completer)
		}
		c.completer, c.written = nil, true
	}
	w.prune(w.queue.from(first))
	due := w.due()
	w.mu.Unlock()
	for _, c := range completers {
		c.Durable()
	}
	w.carryOut(due)
}

// prune removes written commits with nothing unwritten before them. The caller holds mu.
func (w *Writer) prune(groups iter.Seq[*commitGroup]) {
	w.overtaken = false
	first := true
	for g := range groups {
		bytes, remain := g.prune(&first)
		w.overtaken = w.overtaken || remain
		w.pending -= int64(bytes)
		waiting.Add(-int64(bytes))
	}
}

// wholeEntry returns the group's entry, with all commits behind it that have overtaken it.
func (w *Writer) wholeEntry(g *commitGroup) ([]byte, wlog.Purpose) {
	if !w.overtaken {
		return g.entry, g.purpose
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	entry, purpose := slices.Clone(g.entry), g.purpose
	for _, behind := range w.queue.groups {
		entry, purpose = behind.appendWritten(entry, purpose)
	}
	return entry, purpose
}

// relocation is the completer of a commit that Relocate made.
type relocation struct {
	writer *Writer
	into   []uint32 // extents that its records are accounted to
}

var _ Completer = (*relocation)(nil)

// Durable implements [Completer].
func (r *relocation) Durable() { r.done() }

// Failed implements [Completer].
func (r *relocation) Failed(error) { r.done() }

func (r *relocation) done() {
	r.writer.mu.Lock()
	defer r.writer.mu.Unlock()
	r.writer.relocations--
	r.writer.changed.Broadcast()
}

// isVoid reports whether a commit need not be written, because it relocates only records that are not live any more. The caller
// holds mu.
func (w *Writer) isVoid(c *commit) bool {
	r, ok := c.completer.(*relocation)
	return ok && !slices.ContainsFunc(r.into, w.extents.holds)
}

// Relocate commits copies of live records. live accounts for them in their old and new places. The commit may overtake others
// that wait for space.
func (w *Writer) Relocate(ops []byte, live []Delta) {
	r := &relocation{writer: w}
	for _, d := range live {
		if d.Bytes > 0 {
			r.into = append(r.into, d.Extent)
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.relocations++
	w.commit(ops, live, commit{completer: r, purpose: wlog.Moving, relocation: true})
}

// WaitRelocated waits until all calls of Relocate are durable. It returns an error if commits are refused.
func (w *Writer) WaitRelocated() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	for w.relocations > 0 {
		w.changed.Wait()
	}
	return w.Err()
}
