package journal

// commitGroup is an entry, and the commits in it. It belongs to the holder of the writer's mu while it is in the queue, and to
// run from take to give.
type commitGroup struct {
	entry   []byte
	commits []commit
	freed   []Delta // subtracted from the live bytes when the entry is durable
	extent  uint32  // of the entry
}

// commit is one call's part of a group. It ends where the next one begins.
type commit struct {
	completer Completer // may be nil
	off       int       // where its operations begin in the entry
	freed     int       // where its deltas begin in the group's freed
	refusal   error     // why its operations are not in the entry; nil = they are
}

// add adds a commit.
func (g *commitGroup) add(ops []byte, live []Delta, c Completer) {
	g.commits = append(g.commits, commit{completer: c, off: len(g.entry), freed: len(g.freed)})
	for _, d := range live {
		if d.Bytes < 0 {
			g.freed = append(g.freed, d)
		}
	}
	g.entry = append(g.entry, ops...)
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
	g.truncate(n, first.off, first.freed)
	return true
}

// truncate keeps the first commits, with so many bytes and deltas.
func (g *commitGroup) truncate(commits, bytes, freed int) {
	clear(g.commits[commits:])
	g.commits, g.entry, g.freed = g.commits[:commits], g.entry[:bytes], g.freed[:freed]
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
