package journal

import (
	"iter"
	"math"
	"slices"

	"github.com/curfewmq/curfew/core/wlog"
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

// addAll holds back, in one pass, all commits that settle or relocate a part of a move, or a record of what is held back: where few commits
// are tried at a time, add would find them in as many attempts. What settles the whole of a move is not held back; nor are copies, if
// only what settles is tried: they are not chosen, and need not hold back what settles others in the same commit.
func (h *heldBack) addAll(least wlog.Purpose) {
	parts := newMoveParts()
	for g := range h.writer.queue.from(h.first) {
		for i := range g.commits {
			c, ops := &g.commits[i], g.ops(i)
			if c.written || c.refusal != nil || c.relocation && (least > wlog.Moving || h.writer.isVoid(c)) {
				continue
			}
			brought, settled := h.writer.o.Operations.Records(ops)
			if h.divides(parts, settled) || c.relocation && h.divides(parts, runsOf(brought)) {
				h.commits[c] = true
			}
			if h.commits[c] || h.moves[c] {
				for r := range brought {
					parts.add(r, c)
				}
			}
		}
	}
}

// moveParts is records of commits that wait.
type moveParts struct {
	of      map[Record]*commit
	records map[*commit]int // how many there are of each
}

func newMoveParts() *moveParts {
	return &moveParts{of: map[Record]*commit{}, records: map[*commit]int{}}
}

func (p *moveParts) add(r Record, c *commit) {
	if _, ok := p.of[r]; !ok {
		p.records[c]++
	}
	p.of[r] = c
}

// in iterates over the records that a run has of them.
func (p *moveParts) in(run Run) iter.Seq[*commit] {
	return func(yield func(*commit) bool) {
		if int(run.Count) > len(p.of) {
			for r, c := range p.of {
				if r.Queue == run.Queue && r.Ref-run.Ref < uint64(run.Count) && !yield(c) {
					return
				}
			}
			return
		}
		for range run.Count {
			if c, ok := p.of[run.Record]; ok && !yield(c) {
				return
			}
			run.Ref++
		}
	}
}

// have reports whether runs have one of them.
func (p *moveParts) have(runs iter.Seq[Run]) bool {
	for run := range runs {
		for range p.in(run) {
			return true
		}
	}
	return false
}

// divides reports whether runs have a part of a move, or records of a commit that is held back.
func (h *heldBack) divides(parts *moveParts, runs iter.Seq[Run]) bool {
	var had map[*commit]int
	for run := range runs {
		for c := range parts.in(run) {
			if h.commits[c] {
				return true
			}
			if had == nil {
				had = map[*commit]int{}
			}
			had[c]++
		}
	}
	for c, n := range had {
		if n < parts.records[c] {
			return true
		}
	}
	return false
}

// runsOf returns records as runs.
func runsOf(records iter.Seq[Record]) iter.Seq[Run] {
	return func(yield func(Run) bool) {
		for r := range records {
			if !yield(Run{Record: r, Count: 1}) {
				return
			}
		}
	}
}

func (h *heldBack) has(c *commit) bool { return h != nil && h.commits[c] }

// add holds back those of the chosen commits that would settle or relocate a part of a move that is not chosen, or a record of what is
// held back. It reports whether there are any: then no commit is chosen any more.
func (h *heldBack) add(void map[*commit]bool) (some bool) {
	parts := newMoveParts()
	for g := range h.writer.queue.from(h.first) {
		for i := range g.commits {
			c := &g.commits[i]
			if h.commits[c] || h.moves[c] && !c.chosen {
				brought, _ := h.writer.o.Operations.Records(g.ops(i))
				for r := range brought {
					parts.add(r, c)
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
func (w *Writer) touches(parts *moveParts, ops []byte, relocation, void bool) bool {
	if relocation && void {
		return false
	}
	brought, settled := w.o.Operations.Records(ops)
	return parts.have(settled) || relocation && parts.have(runsOf(brought))
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
	h, few := w.heldBack(first), a.front || a.size < w.ordinary()
	alone := 0 // how many commits are tried one by one: one may settle a move together with what moves a part of that on
	switch {
	case h == nil || !few:
	case a.size == 1 && !a.front:
		alone = 16
	default:
		h.addAll(a.least)
	}
	for {
		some := w.choose(first, a, h)
		switch {
		case some:
			void = w.chooseVoid(first, h)
			if h == nil || !h.add(void) {
				return void
			}
			if alone--; alone == 0 {
				h.addAll(a.least)
			}
		case h == nil || len(h.commits) == 0 || few || a.size == math.MaxInt:
			return nil
		default: // they may settle the whole of a move together
			a.size = math.MaxInt
			clear(h.commits)
		}
	}
}
