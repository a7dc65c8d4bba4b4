package consistenthash

import (
	"math/bits"
	"slices"

	"github.com/curfewmq/curfew/sdk/hook"
)

// A destination of weight 2^n has 256 points on the ring of strength 2^n. One whose weight is between two powers of two has up to
// 511 points on the ring of the lower power. So every weight costs about the same memory.
//
// A message has 12 positions. On each ring, find gives the first point after each position.
// The destination of the nearest point gets the message, where a distance on a ring of
// strength s is divided by s. With one position, the shares of 100 equal destinations would
// have a standard deviation of 6 %; with 12 positions it is 1.3 %. For example, a point 600
// away on the ring of strength 4 counts as 150, and wins against a point 200 away on the
// ring of strength 1.
//
// The distance of a destination depends only on its name, its weight and the message. So a new destination takes
// messages from all others, and no message moves between the others.
//
// These numbers decide where messages go, and must never change.
const (
	points    = 256
	positions = 12
	maxWeight = 1<<31 - 1
	strengths = 31 // 2^0 to 2^30
)

// router distributes the messages of an exchange. It implements [hook.Router].
type router struct {
	on source

	nodes   []node
	free    []int32                    // indexes of unused nodes
	index   map[hook.Destination]int32 // of their nodes
	changed []int32                    // indexes of nodes whose weights have changed since the last Prepare

	rings [strengths]ring
	used  []uint8 // the strengths of the rings that have points
}

type node struct {
	name    uint64 // hash of its name
	dest    hook.Destination
	weight  uint32   // weight that its points on the rings represent; 0 means that it has none
	weights []uint32 // of its bindings, ascending; the last one is used
	text    string   // its name, to distinguish two with the same hash
	changed bool     // listed in router.changed
}

var _ hook.Preparer = (*router)(nil)

func (r *router) Bind(b *hook.Binding) {
	weight, err := parseWeight(b.Key)
	if err != nil {
		return // the binding was refused
	}
	i, known := r.index[b.Destination]
	if !known {
		i = r.newNode(b)
	}
	n := &r.nodes[i]
	at, _ := slices.BinarySearch(n.weights, weight)
	n.weights = slices.Insert(n.weights, at, weight)
	r.change(i)
}

func (r *router) Unbind(b *hook.Binding) {
	weight, err := parseWeight(b.Key)
	i, known := r.index[b.Destination]
	if err != nil || !known {
		return
	}
	n := &r.nodes[i]
	at, found := slices.BinarySearch(n.weights, weight)
	if !found {
		return
	}
	n.weights = slices.Delete(n.weights, at, at+1)
	if len(n.weights) > 0 {
		r.change(i)
		return
	}
	r.weigh(i) // before Prepare its index may be reused
	delete(r.index, b.Destination)
	*n = node{changed: n.changed}
	r.free = append(r.free, i)
}

// change leaves a node to Prepare. A deleted queue loses all of its bindings: its points move once, not with each binding.
func (r *router) change(i int32) {
	if n := &r.nodes[i]; !n.changed {
		n.changed = true
		r.changed = append(r.changed, i)
	}
}

// Prepare implements [hook.Preparer].
func (r *router) Prepare() {
	for _, i := range r.changed {
		r.nodes[i].changed = false
		r.weigh(i)
	}
	r.changed = r.changed[:0]
}

func (r *router) newNode(b *hook.Binding) int32 {
	n := node{name: hashName(b.Name, b.ToExchange), dest: b.Destination, text: b.Name}
	var i int32
	if last := len(r.free) - 1; last >= 0 {
		i, r.free = r.free[last], r.free[:last]
		n.changed = r.nodes[i].changed
		r.nodes[i] = n
	} else {
		i = int32(len(r.nodes))
		r.nodes = append(r.nodes, n)
	}
	r.index[b.Destination] = i
	return i
}

// weigh moves a node's points to where its bindings require them.
func (r *router) weigh(i int32) {
	n := &r.nodes[i]
	var weight uint32
	if last := len(n.weights) - 1; last >= 0 {
		weight = n.weights[last]
	}
	if weight == n.weight {
		return
	}
	if n.weight > 0 {
		s := strength(n.weight)
		for p := range n.points() {
			r.rings[s].remove(p, i, r.before)
		}
	}
	n.weight = weight
	if weight > 0 {
		s := strength(weight)
		for p := range n.points() {
			r.rings[s].add(p, i, r.before)
		}
	}
	r.used = r.used[:0]
	for s := range r.rings {
		if r.rings[s].count > 0 {
			r.used = append(r.used, uint8(s))
		}
	}
}

// strength returns the number of the ring for a weight: its binary logarithm.
func strength(weight uint32) int { return bits.Len32(weight) - 1 }

// points yields the positions of the node's points.
func (n *node) points() func(yield func(uint32) bool) {
	return func(yield func(uint32) bool) {
		s := strength(n.weight)
		count := (uint64(n.weight)*points + 1<<s/2) >> s // rounded
		for j := range count {
			if !yield(uint32(mix(n.name+j*wordFactor) >> 33)) {
				return
			}
		}
	}
}

// before reports whether node a comes before node b if both have a point at the same distance.
func (r *router) before(a, b int32) bool {
	x, y := &r.nodes[a], &r.nodes[b]
	return x.name < y.name || x.name == y.name && x.text < y.text
}

func (r *router) Route(m *hook.Publishing, dst []hook.Destination) []hook.Destination {
	if len(r.used) == 0 {
		return dst
	}
	return append(dst, r.nodes[r.place(r.on.hash(m))].dest)
}

// place returns the node for a message with this hash. There must be a node.
func (r *router) place(h uint64) int32 {
	best, least := int32(-1), uint64(1<<63)
	for _, s := range r.used {
		ring := &r.rings[s]
		found := ring.nearest(h)
		node, distance := ring.at(uint32(found)), found>>32<<(strengths-s)
		if distance < least || distance == least && r.before(node, best) {
			best, least = node, distance
		}
	}
	return best
}

// nearest returns the result of find for the position of a message from which the distance is shortest; if there are several, for the
// one with the first point.
func (r *ring) nearest(h uint64) uint64 {
	least := uint64(1<<64 - 1)
	for range positions / 2 {
		h += wordFactor
		x := mix(h)
		least = min(least, r.find(uint32(x)%circle), r.find(uint32(x>>32)%circle))
	}
	return least
}
