package journal

import "github.com/curfewmq/curfew/core/wlog"

// commitGroup is an entry, and the commits in it. It belongs to the holder of the writer's mu while it is in the queue, and to
// run from take to give.
type commitGroup struct {
	entry   []byte
	commits []commit
	freed   []Delta      // subtracted from the live bytes when the entry is durable, and those that vouchers add
	purpose wlog.Purpose // the lowest of its commits'
}

// commit is one call's part of a group. It ends where the next one begins.
type commit struct {
	completer  Completer // may be nil
	off        int       // where its operations begin in the entry
	freed      int       // where its deltas begin in the group's freed
	brought    int64     // bytes of its records
	refusal    error     // why its operations are not in the entry; nil = they are
	lasting    uint32    // the first extent that has records of it, though they are not written; 0 = there are vouchers for all
	settles    uint32    // the last extent that has or had records that it has settled, if it was written before its turn
	purpose    wlog.Purpose
	without    Parts // what its operations were written without, or need not be repeated with
	moves      moves // found when it waits for space
	relocation bool  // made by Relocate
	inOrder    bool  // not written before an earlier one of that kind
	chosen     bool  // for the entry that is being composed
	written    bool  // before its turn; its completer was called and its deltas are applied, but for their numbers
}

// add adds a commit. Its purpose is at least c.purpose.
func (g *commitGroup) add(ops []byte, live []Delta, c commit, x *extents) {
	c.off, c.freed = len(g.entry), len(g.freed)
	c.purpose = max(c.purpose, purposeOf(ops, live, x))
	if len(ops) > 0 {
		g.purpose = min(g.purpose, c.purpose)
	}
	for _, d := range live {
		c.brought += max(d.Bytes, 0)
		switch {
		case d.Bytes < 0 || IsVoucher(d.Extent) && x.brings(d.Extent):
			g.freed = append(g.freed, d)
		case IsVoucher(d.Extent): // it counts at once
		case c.lasting == 0:
			c.lasting = d.Extent
		default:
			c.lasting = min(c.lasting, d.Extent)
		}
	}
	g.commits = append(g.commits, c)
	g.entry = append(g.entry, ops...)
}

// purposeOf returns the purpose of a commit. One that frees half of what it brings, as a message does that goes from one queue
// to another, is Moving, but not if what it frees is not in the log. Empty commits without deltas are Bringing, because they must
// not overtake anything.
func purposeOf(ops []byte, live []Delta, x *extents) wlog.Purpose {
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
	case brought <= 2*x.freed(live):
		return wlog.Moving
	}
	return wlog.Bringing
}

// ops returns the operations of the i-th commit.
func (g *commitGroup) ops(i int) []byte {
	if i+1 < len(g.commits) {
		return g.entry[g.commits[i].off:g.commits[i+1].off]
	}
	return g.entry[g.commits[i].off:]
}

// deltas returns what the i-th commit frees.
func (g *commitGroup) deltas(i int) []Delta {
	if i+1 < len(g.commits) {
		return g.freed[g.commits[i].freed:g.commits[i+1].freed]
	}
	return g.freed[g.commits[i].freed:]
}

// refuse adds a commit without operations that will fail.
func (g *commitGroup) refuse(c Completer, why error) {
	g.commits = append(g.commits, commit{completer: c, off: len(g.entry), freed: len(g.freed), refusal: why})
}

// split moves the commits of about half of the entry's bytes to rest, which is empty. It returns false if there is only one.
func (g *commitGroup) split(rest *commitGroup) bool {
	if len(g.commits) < 2 {
		return false
	}
	n := 1
	for n < len(g.commits)-1 && g.commits[n+1].off <= len(g.entry)/2 {
		n++
	}
	first := g.commits[n]
	for _, c := range g.commits[n:] {
		c.off -= first.off
		c.freed -= first.freed
		rest.commits = append(rest.commits, c)
	}
	rest.entry = append(rest.entry, g.entry[first.off:]...)
	rest.freed = append(rest.freed, g.freed[first.freed:]...)
	rest.setPurpose()
	g.truncate(n, first.off, first.freed)
	return true
}

// prune removes written commits that need not be written again: relocations, and those without unwritten operations before
// them. Of the others it leaves what must be repeated. It returns by how many bytes the entry shrinks, and whether written commits
// remain.
func (g *commitGroup) prune(p *pruning) (bytes int, remain bool) {
	n, off, freed := 0, 0, 0
	for i, c := range g.commits {
		ops, deltas := g.ops(i), g.deltas(i)
		before := len(ops)
		switch {
		case !c.written:
			p.pass(&c, ops)
		case c.relocation || !p.some:
			ops = nil
		default:
			ops = p.repeated(&c, ops, deltas)
		}
		bytes += before - len(ops)
		if c.written && len(ops) == 0 {
			continue
		}
		remain = remain || c.written
		c.off, c.freed = off, freed
		off += copy(g.entry[off:], ops)
		freed += copy(g.freed[freed:], deltas)
		g.commits[n] = c
		n++
	}
	g.truncate(n, off, freed)
	return bytes, remain
}

// truncate keeps the first commits, with so many bytes and deltas.
func (g *commitGroup) truncate(commits, bytes, freed int) {
	clear(g.commits[commits:])
	g.commits, g.entry, g.freed = g.commits[:commits], g.entry[:bytes], g.freed[:freed]
	g.setPurpose()
}

func (g *commitGroup) setPurpose() {
	g.purpose = wlog.Settling
	for i, c := range g.commits {
		if len(g.ops(i)) > 0 {
			g.purpose = min(g.purpose, c.purpose)
		}
	}
}

// appendWritten appends the operations of written commits to an entry. It returns the entry, and its purpose, which was p.
func (g *commitGroup) appendWritten(entry []byte, p wlog.Purpose) ([]byte, wlog.Purpose) {
	for i, c := range g.commits {
		if ops := g.ops(i); c.written && len(ops) > 0 {
			entry, p = append(entry, ops...), min(p, c.purpose)
		}
	}
	return entry, p
}

// complete calls the completers: the entry is durable, or failed with err.
func (g *commitGroup) complete(err error) {
	for i := range g.commits {
		c := &g.commits[i]
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
