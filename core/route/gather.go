package route

import (
	"slices"
	"sync"
)

// group is bindings that match together. Their order is that of binding, except
// that the last one takes the place of one that is removed.
type group[D comparable] struct {
	members []*binding[D]
	argued  int // members with arguments
}

// add lists b. Bindings of one group that differ in their arguments alone lead
// to the same destination, which is why those are counted.
func (g *group[D]) add(b *binding[D]) {
	if b.args != "" {
		g.argued++
	}
	g.put(b)
}

func (g *group[D]) remove(b *binding[D]) {
	if b.args != "" {
		g.argued--
	}
	g.take(b)
}

func (g *group[D]) put(b *binding[D]) {
	b.group, b.slot = g, len(g.members)
	g.members = append(g.members, b)
}

func (g *group[D]) take(b *binding[D]) {
	last := len(g.members) - 1
	moved := g.members[last]
	g.members[b.slot], moved.slot = moved, b.slot
	g.members[last] = nil
	g.members = g.members[:last]
	b.group = nil
}

// gather collects the destinations of one message, each once. It lives on the
// stack of Match.
type gather[D comparable] struct {
	dst  []D
	seen map[D]struct{} // what is in dst, once dst is long
	sets *sync.Pool     // where seen comes from
}

// short is how long a list may be to be searched from end to end.
const short = 16

// group adds the destinations of a group. Those of the first one need no
// comparing: without arguments, no two of them are the same.
func (g *gather[D]) group(m *group[D]) {
	if len(g.dst) == 0 && m.argued == 0 {
		g.dst = slices.Grow(g.dst, len(m.members))
		for _, b := range m.members {
			g.dst = append(g.dst, b.destination)
		}
		return
	}
	for _, b := range m.members {
		g.add(b.destination)
	}
}

func (g *gather[D]) add(d D) {
	if len(g.dst) <= short {
		if !slices.Contains(g.dst, d) {
			g.dst = append(g.dst, d)
		}
		return
	}
	if g.seen == nil {
		g.note()
	}
	if _, listed := g.seen[d]; listed {
		return
	}
	g.seen[d] = struct{}{}
	g.dst = append(g.dst, d)
}

func (g *gather[D]) note() {
	g.seen, _ = g.sets.Get().(map[D]struct{})
	if g.seen == nil {
		g.seen = make(map[D]struct{}, 4*short)
	}
	for _, d := range g.dst {
		g.seen[d] = struct{}{}
	}
}

// done gives back what was borrowed and returns the list.
func (g *gather[D]) done() []D {
	recycle(g.sets, g.seen)
	return g.dst
}

// recycle puts a map back, emptied. One that grew large is left to the garbage
// collector: to clear it would cost every later user.
func recycle[K comparable, V any](pool *sync.Pool, m map[K]V) {
	const large = 4096
	if m == nil || len(m) > large {
		return
	}
	clear(m)
	pool.Put(m)
}
