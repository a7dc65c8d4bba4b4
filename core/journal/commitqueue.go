package journal

import (
	"iter"
	"slices"
)

// commitQueue is the line of batches on their way to the log: commits go into the
// last one, the first one is appended next. It belongs to whoever holds the
// shard's mu.
type commitQueue struct {
	line  []*commitGroup
	spare []*commitGroup
	most  int // bytes; a batch that would grow beyond begins the next one
}

// maxCommits is how many commits a batch has at most, so that its memory is worth
// keeping even if they are tiny.
const maxCommits = 32 << 10

// batch returns the batch that n more bytes go into, with room for them.
func (g *commitQueue) batch(n int) *commitGroup {
	if last := len(g.line) - 1; last >= 0 {
		b := g.line[last]
		if len(b.commits) < maxCommits && (len(b.entry) == 0 || len(b.entry)+n <= g.most) {
			g.grow(b, n)
			return b
		}
	}
	b := g.fresh()
	g.line = append(g.line, b)
	g.grow(b, n)
	return b
}

// grow makes room in b by doubling, but not beyond most unless it must: a buffer
// that is larger is not kept.
func (g *commitQueue) grow(b *commitGroup, n int) {
	const least = 16 << 10
	need := len(b.entry) + n
	if need <= cap(b.entry) {
		return
	}
	size := max(need, min(max(2*cap(b.entry), least), g.most))
	b.entry = append(make([]byte, 0, size), b.entry...)
}

func (g *commitQueue) fresh() *commitGroup {
	last := len(g.spare) - 1
	if last < 0 {
		return new(commitGroup)
	}
	b := g.spare[last]
	g.spare[last] = nil
	g.spare = g.spare[:last]
	return b
}

// from goes through a batch that was taken out and the line behind it.
func (g *commitQueue) from(first *commitGroup) iter.Seq[*commitGroup] {
	return func(yield func(*commitGroup) bool) {
		for i := -1; i < len(g.line); i++ {
			b := first
			if i >= 0 {
				b = g.line[i]
			}
			if !yield(b) {
				return
			}
		}
	}
}

// take removes the first batch, nil if there is none.
func (g *commitQueue) take() *commitGroup {
	if len(g.line) == 0 {
		return nil
	}
	b := g.line[0]
	g.line = slices.Delete(g.line, 0, 1)
	return b
}

// give takes back a batch that is done with, and keeps it if it is of ordinary
// size and the line may get as long again.
func (g *commitQueue) give(b *commitGroup) {
	const most = 8
	if len(g.spare) == most || cap(b.entry) > g.most || cap(b.freed) > maxCommits {
		return
	}
	b.reset()
	g.spare = append(g.spare, b)
}

// rest drops memory that only a busy shard has use for: one batch to append and
// one to gather in stay.
func (g *commitQueue) rest() {
	const most = 2
	if len(g.spare) > most {
		clear(g.spare[most:])
		g.spare = g.spare[:most]
	}
}

// shorten halves b, whose entry does not fit the log. It reports false if b is
// one commit.
func (g *commitQueue) shorten(b *commitGroup) bool {
	rest := g.fresh()
	if !b.cut(rest) {
		g.give(rest)
		return false
	}
	g.line = slices.Insert(g.line, 0, rest)
	return true
}
