package journal

import (
	"errors"
	"math"
	"slices"

	"github.com/curfewmq/curfew/core/wlog"
)

// While the log is full, commits that bring more wait at the head of the queue. Commits that free space must not wait behind
// them, because nothing else makes the log less full. So commits that settle or relocate are written before their turn.
//
// Such a commit may free records of a commit that still waits, which would be live again after a replay. There are two rules for
// that, so that the log is right after every entry:
//
//   - A commit whose records are all settled or relocated, by an entry or before, is written in that entry, without them. So it waits
//     no longer, and is durable no later than what settles its records, or copies them.
//   - Any other entry with a commit repeats, behind it, what overtook it and may settle or change its records.

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
	void  bool // its records are not written
}

// overtake writes commits that overtake g, or parts of g, and reports whether there were any: commits that settle first, because
// others may need no space then. If not all of these fit, it is those that let the log be trimmed, and nothing else: that would take
// their space.
func (w *Writer) overtake(g *commitGroup) (some bool, err error) {
	a := attempt{least: wlog.Settling, size: w.ordinary()}
	some, left, err := w.try(g, a)
	if left > 0 {
		front, err := w.overtakeAs(g, attempt{least: a.least, front: true, size: w.ordinary()})
		if front || err != nil {
			return front, err
		}
		if some, err = w.overtakeLess(g, a, left); err != nil {
			return false, err
		}
	}
	if err != nil {
		return false, err
	}
	moved, err := w.overtakeAs(g, attempt{least: wlog.Moving, size: w.ordinary()})
	return some || moved, err
}

// attempt says which commits may overtake, and about how many bytes of them; 1 = one commit.
type attempt struct {
	least wlog.Purpose
	front bool // only those that settle records at the log's front
	size  int
	large large
}

// large says what becomes of commits that are larger than an attempt's size.
type large uint8

const (
	largeToo  large = iota // they are taken in their turn, as the first
	largeLast              // the smallest is taken if there is no other commit
	largeOnly              // the smallest is taken, and nothing else
)

// overtakeAs writes an entry of commits, as many as fit. What is left of a full log must not go to the headers of entries with one commit
// each, so that it tries some sizes in between.
func (w *Writer) overtakeAs(g *commitGroup, a attempt) (some bool, err error) {
	some, left, err := w.try(g, a)
	if left == 0 || a.size == 1 {
		return some, err
	}
	return w.overtakeLess(g, a, left)
}

// overtakeLess is overtakeAs after an attempt with an entry of so many bytes, which did not fit. A commit that is too large for the next one, a
// purge for example, is tried alone before that: smaller ones might take its space, and it need not wait until there are none.
func (w *Writer) overtakeLess(g *commitGroup, a attempt, left int) (some bool, err error) {
	a.size, a.large = smaller(min(a.size, left)), largeOnly
	if a.size > 1 { // else the next attempt has the smallest of all
		if some, _, err = w.try(g, a); some || err != nil {
			return some, err
		}
	}
	a.large = largeLast
	return w.overtakeAs(g, a)
}

// try makes an attempt. If its entry does not fit, it returns how many bytes that has.
func (w *Writer) try(g *commitGroup, a attempt) (some bool, left int, err error) {
	o := w.overtaking(g, a)
	if len(o.commits) == 0 {
		return false, 0, nil
	}
	var at wlog.Index
	if len(o.entry) > 0 {
		at, err = w.log.Append(w.ctx, o.entry, o.purpose)
	}
	switch {
	case err == nil:
		w.overtook(g, o, at)
		return true, 0, nil
	case errors.Is(err, wlog.ErrFull):
		return false, len(o.entry), nil
	}
	return false, 0, err
}

// ordinary returns how many bytes of commits an entry of them has, if there is space.
func (w *Writer) ordinary() int { return min(256<<10, w.o.Entry) }

// smaller returns how many bytes of commits to try when so many do not fit.
func smaller(size int) int {
	const step, least = 4, 32
	if size /= step; size >= least {
		return size
	}
	return 1
}

// overtaking gathers commits that overtake the group.
func (w *Writer) overtaking(first *commitGroup, a attempt) (o overtaking) {
	w.mu.Lock()
	defer w.mu.Unlock()
	void := w.chooseAll(first, a)
	o.purpose = wlog.Settling
	for g := range w.queue.from(first) {
		for i := range g.commits {
			c, ops := &g.commits[i], g.ops(i)
			switch {
			case c.chosen:
				c.chosen = false
				t := overtaker{g, i, void[c]}
				o.commits = append(o.commits, t)
				switch {
				case !t.void:
					o.add(ops, w.purposeOf(g, i))
				case !c.relocation:
					o.add(w.o.Operations.Without(slices.Clone(ops), Records), wlog.Settling)
				}
			case c.written && len(o.entry) > 0:
				o.add(ops, c.purpose)
			}
		}
	}
	return o
}

// frontSettlers returns the commits that settle records at the log's front, or records of such a commit, and do nothing else: they may be
// written before others that settle. The caller holds mu.
func (w *Writer) frontSettlers(first *commitGroup) map[*commit]bool {
	const pure = Records | Settlements | Marks
	settlers, moved, o := map[*commit]bool{}, map[uint32]bool{}, w.o.Operations
	for g := range w.queue.from(first) {
		for i := range g.commits {
			c, deltas := &g.commits[i], g.deltas(i)
			if c.written || c.refusal != nil || o.Without == nil {
				continue
			}
			if !w.extents.freesAny(deltas, moved) {
				continue
			}
			for _, d := range deltas {
				if d.Bytes > 0 {
					moved[d.Extent] = true
				}
			}
			if c.brought == 0 && len(o.Without(slices.Clone(g.ops(i)), pure)) == 0 {
				settlers[c] = true
			}
		}
	}
	return settlers
}

// choose chooses commits for an entry, and reports whether there are any. The caller holds mu.
func (w *Writer) choose(first *commitGroup, a attempt, h *heldBack) (some bool) {
	size, ahead := 0, w.ahead(first)
	waits := false // one that is in order, so that those behind it do, too
	var large *commit
	most := math.MaxInt // bytes of a larger one than large
	var front map[*commit]bool
	if a.front {
		front = w.frontSettlers(first)
	}
	for g := range w.queue.from(first) {
		for i := range g.commits {
			c, ops := &g.commits[i], g.ops(i)
			void := w.isVoid(c)
			purpose := w.purposeOf(g, i)
			if c.written || c.refusal != nil {
				continue
			}
			behind := waits && c.inOrder
			waits = waits || c.inOrder // unless it is chosen
			if purpose < a.least && !void || h.has(c) || a.front && !front[c] || behind {
				continue
			}
			if void {
				ops = nil
			}
			repeated := len(ops)
			if c.relocation {
				repeated = 0
			}
			if repeated > w.bounds.most(purpose)-ahead {
				continue
			}
			if len(ops) > a.size && a.large != largeToo {
				if len(ops) < most {
					large, most = c, len(ops)
				}
				continue
			}
			if a.large == largeOnly {
				continue
			}
			if size > 0 && size+len(ops) > a.size {
				return true
			}
			c.chosen, some = true, true
			waits = waits && !c.inOrder
			ahead, size = ahead+repeated, size+len(ops)
		}
	}
	if !some && large != nil {
		large.chosen, some = true, true
	}
	return some
}

// chooseVoid chooses, too, commits whose records are all settled by now or by what was chosen, and returns all that are written
// without their records. The caller holds mu.
func (w *Writer) chooseVoid(first *commitGroup, h *heldBack) map[*commit]bool {
	void, going := map[*commit]bool{}, w.departure(first)
	for g := range w.queue.backward(first) {
		for i := len(g.commits) - 1; i >= 0; i-- {
			c, deltas := &g.commits[i], g.deltas(i)
			if c.written || c.refusal != nil || h.has(c) {
				continue
			}
			if w.isVoid(c) || going.all(c, g.ops(i), deltas) {
				c.chosen, void[c] = true, true
			}
			if c.chosen {
				going.add(g.ops(i), deltas, c.relocation && !void[c])
			}
		}
	}
	return void
}

// departure is what is settled, or relocated, by an entry that is being composed, or before.
type departure struct {
	writer  *Writer
	bytes   map[uint32]int64 // of vouchers
	records *recordSet       // nil = no commit waits that has records without a voucher, and bytes tells all that is settled
}

// departure returns that of an empty entry. The caller holds mu.
func (w *Writer) departure(first *commitGroup) *departure {
	d := &departure{writer: w, bytes: map[uint32]int64{}}
	for g := range w.queue.from(first) {
		if slices.ContainsFunc(g.commits, func(c commit) bool { return c.lasting != 0 && !c.written }) {
			d.records = newRecordSet()
			if w.gone == nil {
				w.gone = newRecordSet()
			}
		}
	}
	return d
}

// add adds a commit to the entry, which may be one with copies.
func (d *departure) add(ops []byte, deltas []Delta, copies bool) {
	for _, x := range deltas {
		if x.Bytes < 0 && IsVoucher(x.Extent) {
			d.bytes[x.Extent] -= x.Bytes
		}
	}
	if d.records == nil && d.writer.settlesLater(ops) {
		d.records = newRecordSet()
	}
	if d.records != nil {
		d.writer.note(d.records, ops, copies)
	}
}

// settlesLater reports whether other commits may free what operations settle.
func (w *Writer) settlesLater(ops []byte) bool {
	if w.o.Operations.Records == nil {
		return false
	}
	_, settled := w.o.Operations.Records(ops)
	for r := range settled {
		if r.Later {
			return true
		}
	}
	return false
}

// all reports whether all records of a commit are settled, or in the log as copies. It has some.
func (d *departure) all(c *commit, ops []byte, deltas []Delta) (all bool) {
	operations := d.writer.o.Operations
	if operations.Without == nil || c.brought == 0 {
		return false
	}
	if settled := c.lasting == 0 && d.writer.extents.settled(deltas, d.bytes); settled || c.lasting == 0 && d.records == nil {
		return settled
	}
	brought, _ := operations.Records(ops)
	for r := range brought {
		before := c.lasting != 0 && d.writer.gone.has(r)
		if !before && !d.records.has(r) {
			return false
		}
		all = true
	}
	return all
}

// note notes the records that operations settle, or bring, too: copies.
func (w *Writer) note(in *recordSet, ops []byte, copies bool) {
	if w.o.Operations.Records == nil {
		return
	}
	brought, settled := w.o.Operations.Records(ops)
	for r := range settled {
		in.add(r)
	}
	if !copies {
		return
	}
	for r := range brought {
		in.add(Run{Record: r, Count: 1})
	}
}

// purposeOf returns the purpose of the i-th commit of a group by what the log has by now. The caller holds mu.
func (w *Writer) purposeOf(g *commitGroup, i int) wlog.Purpose {
	c := &g.commits[i]
	if c.purpose == wlog.Bringing && 0 < c.brought && c.brought <= 2*w.extents.freed(g.deltas(i)) {
		return wlog.Moving // what it frees was not written before
	}
	return c.purpose
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

func (o *overtaking) add(ops []byte, p wlog.Purpose) {
	if len(ops) > 0 {
		o.entry, o.purpose = append(o.entry, ops...), min(o.purpose, p)
	}
}

// overtook accounts for commits that were written before their turn, at an index.
func (w *Writer) overtook(first *commitGroup, o overtaking, at wlog.Index) {
	var completers []Completer
	w.mu.Lock()
	in := w.appended(at, len(o.entry))
	for _, t := range o.commits {
		c := &t.group.commits[t.i]
		deltas := t.group.deltas(t.i)
		if w.gone != nil {
			w.note(w.gone, t.group.ops(t.i), c.relocation && !t.void)
		}
		c.settles = w.extents.settles(deltas)
		w.extents.applyEarly(deltas, in, t.void)
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
