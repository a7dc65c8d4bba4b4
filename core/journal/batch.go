package journal

import "github.com/curfewmq/curfew/core/wlog"

// commitGroup is an entry that is being gathered or appended, and the commits in it.
// It belongs to whoever holds the shard's mu while it is in the line, and to run
// from when it is taken out until it is given back.
type commitGroup struct {
	entry   []byte
	commits []commit
	freed   []Delta // to be taken off the live bytes when the entry is durable
	brings  int     // commits in the entry that bring more
	moves   int     // those that move
}

// commit is one call's part of a batch; it ends where the next one begins.
type commit struct {
	completer Completer // may be nil
	off       int       // where its operations begin in the entry
	freed     int       // where its deltas begin in freed
	refusal   error     // why its operations are not in the entry; nil = they are
	purpose   wlog.Purpose
	move      bool // it only copies records: see Move
	ahead     bool // it was written ahead of its turn, and its completer and deltas are done with
}

// put adds a commit, whose purpose is at least that of c.
func (b *commitGroup) put(ops []byte, live []Delta, c commit) {
	c.off, c.freed = len(b.entry), len(b.freed)
	c.purpose = max(c.purpose, purposeOf(ops, live))
	if len(ops) > 0 {
		b.count(c.purpose)
	}
	b.commits = append(b.commits, c)
	b.entry = append(b.entry, ops...)
	for _, d := range live {
		if d.Bytes < 0 {
			b.freed = append(b.freed, d)
		}
	}
}

func (b *commitGroup) count(p wlog.Purpose) {
	switch p {
	case wlog.Bringing:
		b.brings++
	case wlog.Moving:
		b.moves++
	case wlog.Settling:
	}
}

// purposeOf says what a commit is for. One that frees half of what it brings, as a
// message that goes from one queue to another does, moves. Empty ones that say
// nothing of what is live must not overtake anything.
func purposeOf(ops []byte, live []Delta) wlog.Purpose {
	var brought, freed int64
	for _, d := range live {
		brought += max(d.Bytes, 0)
		freed -= min(d.Bytes, 0)
	}
	switch {
	case freed == 0 && (brought > 0 || len(ops) > 0 || len(live) == 0):
		return wlog.Bringing
	case brought == 0:
		return wlog.Settling
	case brought <= 2*freed:
		return wlog.Moving
	}
	return wlog.Bringing
}

// purpose is that of the entry as a whole.
func (b *commitGroup) purpose() wlog.Purpose {
	switch {
	case b.brings > 0:
		return wlog.Bringing
	case b.moves > 0:
		return wlog.Moving
	}
	return wlog.Settling
}

// recount counts purposes anew.
func (b *commitGroup) recount() {
	b.brings, b.moves = 0, 0
	for i := range b.commits {
		if b.end(i) > b.commits[i].off {
			b.count(b.commits[i].purpose)
		}
	}
}

// end is where the i-th commit's operations end in the entry.
func (b *commitGroup) end(i int) int {
	if i+1 < len(b.commits) {
		return b.commits[i+1].off
	}
	return len(b.entry)
}

// deltas are those of the i-th commit.
func (b *commitGroup) deltas(i int) []Delta {
	if i+1 < len(b.commits) {
		return b.freed[b.commits[i].freed:b.commits[i+1].freed]
	}
	return b.freed[b.commits[i].freed:]
}

// refuse adds a commit without operations that is going to fail.
func (b *commitGroup) refuse(c Completer, why error) {
	b.commits = append(b.commits, commit{completer: c, off: len(b.entry), freed: len(b.freed), refusal: why})
}

// cut leaves about half of the entry's bytes in b and adds the commits behind
// them to rest, which is empty. A commit stays whole: cut reports false, having
// done nothing, when there is only one.
func (b *commitGroup) cut(rest *commitGroup) bool {
	if len(b.commits) < 2 {
		return false
	}
	n := 1
	for n < len(b.commits)-1 && b.commits[n+1].off <= len(b.entry)/2 {
		n++
	}
	first := b.commits[n]
	for _, c := range b.commits[n:] {
		c.off -= first.off
		c.freed -= first.freed
		rest.commits = append(rest.commits, c)
	}
	rest.entry = append(rest.entry, b.entry[first.off:]...)
	rest.freed = append(rest.freed, b.freed[first.freed:]...)
	clear(b.commits[n:])
	b.entry, b.commits, b.freed = b.entry[:first.off], b.commits[:n], b.freed[:first.freed]
	b.recount()
	rest.recount()
	return true
}

// prune takes out commits that were written ahead of their turn and need not be
// written again: moves, and those with nothing before them that was not written,
// which first says. It returns how many bytes shorter the entry is, and whether
// there are any left.
func (b *commitGroup) prune(first *bool) (bytes int, owed bool) {
	done := func(i int) bool {
		c := &b.commits[i]
		if c.ahead && (c.move || *first) {
			return true
		}
		owed = owed || c.ahead
		*first = *first && b.end(i) == c.off
		return false
	}
	n, off, freed := 0, 0, 0
	for i := range b.commits {
		ops, deltas := b.entry[b.commits[i].off:b.end(i)], b.deltas(i)
		if done(i) {
			bytes += len(ops)
			continue
		}
		c := b.commits[i]
		c.off, c.freed = off, freed
		off += copy(b.entry[off:], ops)
		freed += copy(b.freed[freed:], deltas)
		b.commits[n] = c
		n++
	}
	clear(b.commits[n:])
	b.entry, b.commits, b.freed = b.entry[:off], b.commits[:n], b.freed[:freed]
	b.recount()
	return bytes, owed
}

// again adds to entry what was written ahead of its turn, once more, and
// returns the entry and its purpose, which was p.
func (b *commitGroup) again(entry []byte, p wlog.Purpose) ([]byte, wlog.Purpose) {
	for i := range b.commits {
		if c := &b.commits[i]; c.ahead && b.end(i) > c.off {
			entry, p = append(entry, b.entry[c.off:b.end(i)]...), min(p, c.purpose)
		}
	}
	return entry, p
}

// complete tells those who wait.
func (b *commitGroup) complete(err error) {
	for _, c := range b.commits {
		switch {
		case c.completer == nil:
		case err != nil:
			c.completer.Failed(err)
		case c.refusal != nil:
			c.completer.Failed(c.refusal)
		default:
			c.completer.Durable()
		}
	}
}

// reset makes b empty and keeps its memory.
func (b *commitGroup) reset() {
	clear(b.commits)
	b.entry, b.commits, b.freed = b.entry[:0], b.commits[:0], b.freed[:0]
	b.brings, b.moves = 0, 0
}
