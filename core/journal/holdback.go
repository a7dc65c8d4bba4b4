package journal

import (
	"math"
	"slices"
)

// A move of several records, from before space was low, waits whole. A commit that settles a part of them does not overtake it: a
// replay would find what was settled in its old place. Nor does one that relocates a part. While space is low, queues move each record
// in a commit of its own.

// heldBack is the commits that must not be written in an entry that is being composed.
type heldBack struct {
	writer  *Writer
	first   *commitGroup
	moves   map[*commit]bool // of several records, that wait
	commits map[*commit]bool
}

// heldBack returns what is held back at first: nothing. It is nil if nothing can be. The caller holds mu.
func (w *Writer) heldBack(first *commitGroup) *heldBack {
	moves := map[*commit]bool{}
	for g := range w.queue.from(first) {
		for i := range g.commits {
			c := &g.commits[i]
			if c.lasting == 0 || c.written {
				continue
			}
			if c.moves == unknown {
				c.moves = w.movesOf(c, g.ops(i))
			}
			if c.moves == several {
				moves[c] = true
			}
		}
	}
	if len(moves) == 0 {
		return nil
	}
	return &heldBack{w, first, moves, map[*commit]bool{}}
}

// moves says what a commit moves.
type moves uint8

const (
	unknown moves = iota
	one           // at most one record
	several
)

// movesOf returns whether a commit moves several records: it brings them, and does something else.
func (w *Writer) movesOf(c *commit, ops []byte) moves {
	o := w.o.Operations
	if c.relocation || int64(len(ops)) <= c.brought || o.Without == nil {
		return one
	}
	brought, _ := o.Records(ops)
	n := 0
	for range brought {
		n++
	}
	if n < 2 || len(o.Without(slices.Clone(ops), Records|Marks)) == 0 {
		return one
	}
	return several
}

func (h *heldBack) has(c *commit) bool { return h != nil && h.commits[c] }

// add holds back those of the chosen commits that would settle or relocate a part of a move that is not chosen, or a record of what is
// held back. It reports whether there are any: then no commit is chosen any more.
func (h *heldBack) add(void map[*commit]bool) (some bool) {
	parts := map[Record]bool{}
	for g := range h.writer.queue.from(h.first) {
		for i := range g.commits {
			c := &g.commits[i]
			if h.commits[c] || h.moves[c] && !c.chosen {
				brought, _ := h.writer.o.Operations.Records(g.ops(i))
				for r := range brought {
					parts[r] = true
				}
			}
		}
	}
	for g := range h.writer.queue.from(h.first) {
		for i := range g.commits {
			c := &g.commits[i]
			if c.chosen && h.writer.touches(parts, g.ops(i), c.relocation, void[c]) {
				h.commits[c], some = true, true
			}
		}
	}
	if some {
		h.clear()
	}
	return some
}

// touches reports whether a commit settles or relocates one of the records.
func (w *Writer) touches(records map[Record]bool, ops []byte, relocation, void bool) bool {
	if relocation && void {
		return false
	}
	brought, settled := w.o.Operations.Records(ops)
	for run := range settled {
		if int(run.Count) > len(records) {
			set := newRecordSet()
			set.add(run)
			for r := range records {
				if set.has(r) {
					return true
				}
			}
			continue
		}
		for range run.Count {
			if records[run.Record] {
				return true
			}
			run.Ref++
		}
	}
	if relocation {
		for r := range brought {
			if records[r] {
				return true
			}
		}
	}
	return false
}

// clear has no commit chosen.
func (h *heldBack) clear() {
	for g := range h.writer.queue.from(h.first) {
		for i := range g.commits {
			g.commits[i].chosen = false
		}
	}
}

// chooseAll chooses the commits for an entry, and returns those that are written without their records. The caller holds mu.
func (w *Writer) chooseAll(first *commitGroup, a attempt) (void map[*commit]bool) {
	h := w.heldBack(first)
	for {
		some := w.choose(first, a, h)
		switch {
		case some:
			void = w.chooseVoid(first, h)
			if h == nil || !h.add(void) {
				return void
			}
		case h == nil || len(h.commits) == 0 || a.size == 1 || a.size == math.MaxInt:
			return nil
		default: // they may settle the whole of a move together
			a.size = math.MaxInt
			clear(h.commits)
		}
	}
}
