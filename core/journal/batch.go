package journal

import "github.com/curfewmq/curfew/core/wlog"

// batch is an entry that is being gathered or appended, and the commits in it.
// It belongs to whoever holds the shard's mu while it is in the line, and to run
// from when it is taken out until it is given back.
type batch struct {
	entry   []byte
	commits []commit
	freed   []Delta // to be taken off the live bytes when the entry is durable
}

// commit is one call's part of a batch; it ends where the next one begins.
type commit struct {
	completer Completer // may be nil
	off       int       // where its operations begin in the entry
	freed     int       // where its deltas begin in freed
	refusal   error     // why its operations are not in the entry; nil = they are
}

// put adds a commit.
func (b *batch) put(ops []byte, live []Delta, c Completer) {
	b.commits = append(b.commits, commit{completer: c, off: len(b.entry), freed: len(b.freed)})
	b.entry = append(b.entry, ops...)
	for _, d := range live {
		if d.Bytes < 0 {
			b.freed = append(b.freed, d)
		}
	}
}

// refuse adds a commit without operations that is going to fail.
func (b *batch) refuse(c Completer, why error) {
	b.commits = append(b.commits, commit{completer: c, off: len(b.entry), freed: len(b.freed), refusal: why})
}

// cut leaves about half of the entry's bytes in b and adds the commits behind
// them to rest, which is empty. A commit stays whole: cut reports false, having
// done nothing, when there is only one.
func (b *batch) cut(rest *batch) bool {
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
	return true
}

// complete tells those who wait.
func (b *batch) complete(at wlog.Index, err error) {
	for _, c := range b.commits {
		switch {
		case c.completer == nil:
		case err != nil:
			c.completer.Failed(err)
		case c.refusal != nil:
			c.completer.Failed(c.refusal)
		default:
			c.completer.Durable(at, c.off)
		}
	}
}

// reset makes b empty and keeps its memory.
func (b *batch) reset() {
	clear(b.commits)
	b.entry, b.commits, b.freed = b.entry[:0], b.commits[:0], b.freed[:0]
}
