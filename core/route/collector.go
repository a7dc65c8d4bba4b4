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
	seen     map[D]struct{}                // the first elements of dst; nil while dst is short
	inSeen   int                           // how many these are
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
	if g.inSeen < len(g.dst) {
		g.fillSeen()
	}
	if _, listed := g.seen[d]; listed {
		return
	}
	g.seen[d] = struct{}{}
	g.dst = append(g.dst, d)
	g.inSeen++
}

func (g *collector[D]) fillSeen() {
	if g.seen == nil {
		g.seen, _ = g.seenSets.Get().(map[D]struct{})
	}
	if g.seen == nil {
		g.seen = make(map[D]struct{}, 4*maxLinear)
	}
	for _, d := range g.dst[g.inSeen:] {
		g.seen[d] = struct{}{}
	}
	g.inSeen = len(g.dst)
}

// Seen knows the destinations in a list, for a message that goes through several exchanges: otherwise each of them would have to look at
// those of all before. The zero Seen is for an empty list.
type Seen[D comparable] struct {
	set map[D]struct{}
	n   int // the set has the first n elements of the list
}

// Reset makes s be for an empty list.
func (s *Seen[D]) Reset() {
	switch {
	case s.n > largeMap:
		s.set = nil
	case s.n > 0: // clearing costs as much as the map was once large
		clear(s.set)
	}
	s.n = 0
}

// finish recycles the map and returns the list.
func (g *collector[D]) finish() []D {
	recycleMap(g.seenSets, g.seen)
	return g.dst
}

// largeMap is the number of elements above which a map is not reused.
const largeMap = 4096

// recycleMap clears a map and returns it to the pool. A large map is left to the garbage collector, because clearing it would
// cost every later user.
func recycleMap[K comparable, V any](pool *sync.Pool, m map[K]V) {
	if m == nil || len(m) > largeMap {
		return
	}
	clear(m)
	pool.Put(m)
}
