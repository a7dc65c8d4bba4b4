package route

import (
	"slices"
	"sync"
)

// bindingGroup is a list of bindings that match together, in the order in which they were added; a removed one is replaced by the last.
type bindingGroup[D comparable] struct {
	members []*binding[D]
	argued  int // how many members have arguments
}

// add adds b, and counts whether it has arguments: two bindings of a group that differ only in their arguments have the same
// destination.
func (g *bindingGroup[D]) add(b *binding[D]) {
	if b.args != "" {
		g.argued++
	}
	g.put(b)
}

func (g *bindingGroup[D]) remove(b *binding[D]) {
	if b.args != "" {
		g.argued--
	}
	g.take(b)
}

func (g *bindingGroup[D]) put(b *binding[D]) {
	b.group, b.slot = g, len(g.members)
	g.members = append(g.members, b)
}

func (g *bindingGroup[D]) take(b *binding[D]) {
	last := len(g.members) - 1
	moved := g.members[last]
	g.members[b.slot], moved.slot = moved, b.slot
	g.members[last] = nil
	g.members = g.members[:last]
	b.group = nil
}

// collector collects the destinations of one message, each once. It lives on the stack of Match.
type collector[D comparable] struct {
	dst      []D
	seen     map[D]struct{}                // the elements of dst; nil while dst is short
	seenSets *sync.Pool                    // pool for seen
	added    map[*bindingGroup[D]]struct{} // the groups that were added; nil for a message with one routing key
	matched  bool                          // a destination was found, whether or not it was already in dst
}

// maxLinear is the length up to which a list is searched linearly.
const maxLinear = 16

// addGroup adds the destinations of a group. The first group is appended without comparing: if none of its bindings has
// arguments, their destinations differ.
func (g *collector[D]) addGroup(m *bindingGroup[D]) {
	if g.added != nil && g.isAdded(m) {
		return
	}
	if len(g.dst) == 0 && m.argued == 0 {
		g.matched = len(m.members) > 0
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

// isAdded reports whether another routing key has added the group, and notes that this one does.
func (g *collector[D]) isAdded(m *bindingGroup[D]) bool {
	_, again := g.added[m]
	g.added[m] = struct{}{}
	return again
}

func (g *collector[D]) add(d D) {
	g.matched = true
	if len(g.dst) <= maxLinear {
		if !slices.Contains(g.dst, d) {
			g.dst = append(g.dst, d)
		}
		return
	}
	if g.seen == nil {
		g.startSeen()
	}
	if _, listed := g.seen[d]; listed {
		return
	}
	g.seen[d] = struct{}{}
	g.dst = append(g.dst, d)
}

func (g *collector[D]) startSeen() {
	g.seen, _ = g.seenSets.Get().(map[D]struct{})
	if g.seen == nil {
		g.seen = make(map[D]struct{}, 4*maxLinear)
	}
	for _, d := range g.dst {
		g.seen[d] = struct{}{}
	}
}

// finish recycles the map and returns the list.
func (g *collector[D]) finish() []D {
	recycleMap(g.seenSets, g.seen)
	return g.dst
}

// recycleMap clears a map and returns it to the pool. A large map is left to the garbage collector, because clearing it would
// cost every later user.
func recycleMap[K comparable, V any](pool *sync.Pool, m map[K]V) {
	const large = 4096
	if m == nil || len(m) > large {
		return
	}
	clear(m)
	pool.Put(m)
}
