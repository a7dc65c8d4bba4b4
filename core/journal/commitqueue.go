package journal

import "slices"

// commitQueue is the queue of groups to append. Commits are added to the last group, and
// the first is appended next. It belongs to the holder of the writer's mu.
type commitQueue struct {
	groups   []*commitGroup
	spare    []*commitGroup
	maxEntry int // bytes; a commit that would make the last entry longer begins the next group
}

// maxCommits limits the commits of a group, so that its memory can be reused even if
// commits are tiny.
const maxCommits = 32 << 10

// last returns the group that n more bytes are added to, with capacity for them. Its
// entry is in the current extent.
func (q *commitQueue) last(n int, x *extents) *commitGroup {
	if i := len(q.groups) - 1; i >= 0 {
		g := q.groups[i]
		if g.extent == x.current() && len(g.commits) < maxCommits && (len(g.entry) == 0 || len(g.entry)+n <= q.maxEntry) {
			q.grow(g, n)
			return g
		}
	}
	g := q.newGroup()
	g.extent = x.begin()
	q.groups = append(q.groups, g)
	q.grow(g, n)
	return g
}

// grow makes capacity for n more bytes by doubling. It exceeds maxEntry only if it must,
// because such a buffer is not reused.
func (q *commitQueue) grow(g *commitGroup, n int) {
	const least = 16 << 10
	need := len(g.entry) + n
	if need <= cap(g.entry) {
		return
	}
	size := max(need, min(max(2*cap(g.entry), least), q.maxEntry))
	g.entry = append(make([]byte, 0, size), g.entry...)
}

func (q *commitQueue) newGroup() *commitGroup {
	i := len(q.spare) - 1
	if i < 0 {
		return &commitGroup{}
	}
	g := q.spare[i]
	q.spare[i] = nil
	q.spare = q.spare[:i]
	return g
}

// take removes and returns the first group, nil if there is none.
func (q *commitQueue) take() *commitGroup {
	if len(q.groups) == 0 {
		return nil
	}
	g := q.groups[0]
	q.groups = slices.Delete(q.groups, 0, 1)
	return g
}

// give takes back a group that is done. It is reused if it is of ordinary size and the
// queue may get as long again.
func (q *commitQueue) give(g *commitGroup) {
	const most = 8
	if len(q.spare) == most || cap(g.entry) > q.maxEntry || cap(g.freed) > maxCommits {
		return
	}
	g.truncate(0, 0, 0)
	q.spare = append(q.spare, g)
}

// trimSpare frees memory that only a busy log needs. One group to append and one to add to remain.
func (q *commitQueue) trimSpare() {
	const most = 2
	if len(q.spare) > most {
		clear(q.spare[most:])
		q.spare = q.spare[:most]
	}
}

// split puts half of a group that was taken back into the queue. It returns false if the
// group is one commit.
func (q *commitQueue) split(g *commitGroup, x *extents) bool {
	rest := q.newGroup()
	if !g.split(rest) {
		q.give(rest)
		return false
	}
	rest.extent = g.extent
	x.beginMore(rest.extent)
	q.groups = slices.Insert(q.groups, 0, rest)
	return true
}

// commitGroup is an entry, and the commits in it. It belongs to the holder of the
// writer's mu while it is in the queue, and to run from take to give.
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

func (g *commitGroup) add(ops []byte, live []Delta, c Completer) {
	g.commits = append(g.commits, commit{completer: c, off: len(g.entry), freed: len(g.freed)})
	for _, d := range live {
		if d.Bytes < 0 {
			g.freed = append(g.freed, d)
		}
	}
	g.entry = append(g.entry, ops...)
}

// refuse adds a commit without operations, which will fail.
func (g *commitGroup) refuse(c Completer, why error) {
	g.commits = append(g.commits, commit{completer: c, off: len(g.entry), freed: len(g.freed), refusal: why})
}

// split moves the commits of about half of the entry's bytes to rest, which is empty. It
// returns false if there is only one.
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
