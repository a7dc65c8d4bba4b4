package journal

import (
	"iter"
	"slices"
)

// gather is the line of batches on their way to the log: commits go into the
// last one, the first one is appended next. It belongs to whoever holds the
// shard's mu.
type gather struct {
	line  []*batch
	spare []*batch
	most  int // bytes; a batch that would grow beyond begins the next one
}

// maxCommits is how many commits a batch has at most, so that its memory is worth
// keeping even if they are tiny.
const maxCommits = 32 << 10

// batch returns the batch that n more bytes go into, with room for them.
func (g *gather) batch(n int) *batch {
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
func (g *gather) grow(b *batch, n int) {
	const least = 16 << 10
	need := len(b.entry) + n
	if need <= cap(b.entry) {
		return
	}
	size := max(need, min(max(2*cap(b.entry), least), g.most))
	b.entry = append(make([]byte, 0, size), b.entry...)
}

func (g *gather) fresh() *batch {
	last := len(g.spare) - 1
	if last < 0 {
		return new(batch)
	}
	b := g.spare[last]
	g.spare[last] = nil
	g.spare = g.spare[:last]
	return b
}

// from goes through a batch that was taken out and the line behind it.
func (g *gather) from(first *batch) iter.Seq[*batch] {
	return func(yield func(*batch) bool) {
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
func (g *gather) take() *batch {
	if len(g.line) == 0 {
		return nil
	}
	b := g.line[0]
	g.line = slices.Delete(g.line, 0, 1)
	return b
}

// give takes back a batch that is done with, and keeps it if it is of ordinary
// size and the line may get as long again.
func (g *gather) give(b *batch) {
	const most = 8
	if len(g.spare) == most || cap(b.entry) > g.most || cap(b.freed) > maxCommits {
		return
	}
	b.reset()
	g.spare = append(g.spare, b)
}

// rest drops memory that only a busy shard has use for: one batch to append and
// one to gather in stay.
func (g *gather) rest() {
	const most = 2
	if len(g.spare) > most {
		clear(g.spare[most:])
		g.spare = g.spare[:most]
	}
}

// shorten halves b, whose entry does not fit the log. It reports false if b is
// one commit.
func (g *gather) shorten(b *batch) bool {
	rest := g.fresh()
	if !b.cut(rest) {
		g.give(rest)
		return false
	}
	g.line = slices.Insert(g.line, 0, rest)
	return true
}
