package consistenthash

import (
	"crypto/sha256"
	"encoding/binary"
	"math/bits"
)

// ring is a circle of 2^31 positions with the points of destinations on it. It is a hash
// table that keeps its points in order: a point prefers the cell with the upper bits of its
// position as index. If the cell is taken, the point goes into the cells after it, sorted.
// So the points are sorted from the first cell to the last, in whatever order they came,
// and adding one moves only its neighbours.
//
// A cell without a point repeats the next point. The cells after the last point repeat the first one, one circle further. This
// saves find most of its branches. For example, with eight cells for positions 0 to 7 and points at 2 and 5, cells 0 to 2 have the point
// at 2, cells 3 to 5 the one at 5, and cells 6 and 7 the one at 2+8.
type ring struct {
	cells []cell // 2^n, and more after them for points that do not fit into the last ones; the last cell has no point
	shift uint8  // a position shifted right by this is the index of a cell
	count int    // points
}

// cell has a point, or repeats one.
type cell struct {
	position uint32
	node     int32 // index of its node; if the cell repeats a point, the complement of it
}

const (
	circle   = 1 << 31
	minCells = 256
	maxFull  = 3 // quarters of the cells that may have points
	spare    = 64
)

// order reports whether node a comes before node b if both have a point at the same position.
type order func(a, b int32) bool

// find returns the first point at position p or after it. The distance is in the upper half of the result, the index of its cell in the
// lower half. There must be at least one point.
func (r *ring) find(p uint32) uint64 {
	i := p >> r.shift
	i += less(r.cells[i].position, p) // these steps are not branches, which would often be mispredicted
	i += less(r.cells[i].position, p)
	for r.cells[i].position < p {
		i++
	}
	return uint64(r.cells[i].position-p)<<32 | uint64(i)
}

// less returns 1 if a < b.
func less(a, b uint32) uint32 {
	_, borrow := bits.Sub32(a, b, 0)
	return borrow
}

// at returns the node of the cell with this index.
func (r *ring) at(i uint32) int32 { return r.cells[i].owner() }

func (c cell) owner() int32 { return max(c.node, ^c.node) }

func (c cell) empty() bool { return c.node < 0 }

func (r *ring) add(p uint32, node int32, before order) {
	if 4*(r.count+1) > maxFull*r.size() {
		r.resize(max(minCells, 2*r.size()), before)
	}
	r.put(p, node, before)
	r.count++
}

// size returns the number of cells, without the extra ones at the end.
func (r *ring) size() int {
	if r.cells == nil {
		return 0
	}
	return circle >> r.shift
}

// put adds a point to a table that has an empty cell for it.
func (r *ring) put(p uint32, node int32, before order) {
	i := int(p >> r.shift)
	for ; !r.cells[i].empty(); i++ {
		c := r.cells[i]
		if p < c.position || p == c.position && before(node, c.node) {
			break
		}
	}
	end := i
	for !r.cells[end].empty() {
		end++
	}
	if last := len(r.cells) - 1; end == last {
		r.cells = append(r.cells, r.cells[last])
	}
	copy(r.cells[i+1:end+1], r.cells[i:end])
	r.cells[i] = cell{p, node}
	r.repeat(i)
}

// remove removes a point.
func (r *ring) remove(p uint32, node int32, before order) {
	i := int(p >> r.shift)
	for r.cells[i] != (cell{p, node}) {
		i++
	}
	first := i
	// The points that follow without a gap move back, unless they are in the cell they prefer.
	for next := i + 1; !r.cells[next].empty() && int(r.cells[next].position>>r.shift) < next; next++ {
		r.cells[i] = r.cells[next]
		i = next
	}
	r.cells[i].node = ^r.cells[i].node
	r.repeat(i + 1)
	r.repeat(first)
	r.count--
	if r.size() > minCells && 16*r.count < maxFull*r.size() {
		r.resize(r.size()/2, before)
	}
}

// repeat copies the content of cell i, a point or its repetition, into the empty cells before it.
func (r *ring) repeat(i int) {
	c := r.cells[i]
	c.node = ^c.owner()
	for i--; i >= 0 && r.cells[i].empty(); i-- {
		r.cells[i] = c
	}
	if i >= 0 {
		return
	}
	// There is no later point: repeat the first one.
	c = r.cells[0]
	c.position, c.node = c.position|circle, ^c.owner()
	for i = len(r.cells) - 1; i >= 0 && r.cells[i].empty(); i-- {
		r.cells[i] = c
	}
}

// resize makes a table of size cells; size must be a power of two.
func (r *ring) resize(size int, before order) {
	old := r.cells
	r.cells = make([]cell, size+spare)
	for i := range r.cells {
		r.cells[i].node = ^0
	}
	r.shift = uint8(32 - bits.Len(uint(size)))
	for _, c := range old {
		if !c.empty() {
			r.put(c.position, c.node, before)
		}
	}
}

// Both hashes decide where messages go: their results must never change, on any machine.

const (
	wordFactor = 0x9e3779b97f4a7c15 // 2^64 divided by the golden ratio, odd
	lastFactor = 0xd1342543de82ef95 // of a multiplicative generator with good spectral properties
)

// hashKey hashes the key by which a message is placed: its bytes in little-endian words of eight, the last one padded with zeros, and
// their number. Each word is multiplied into the hash, and both halves of the product are kept.
func hashKey[T string | []byte](key T) uint64 {
	h := uint64(len(key)) * lastFactor
	for len(key) >= 8 {
		word := uint64(key[0]) | uint64(key[1])<<8 | uint64(key[2])<<16 | uint64(key[3])<<24 |
			uint64(key[4])<<32 | uint64(key[5])<<40 | uint64(key[6])<<48 | uint64(key[7])<<56
		h = fold(h^word, wordFactor)
		key = key[8:]
	}
	var word uint64
	for i := range len(key) {
		word |= uint64(key[i]) << (8 * i)
	}
	return mix(fold(h^word, wordFactor))
}

func fold(a, b uint64) uint64 {
	high, low := bits.Mul64(a, b)
	return high ^ low
}

// mix is the finaliser of SplitMix64: every bit of x changes about half of the result's bits.
func mix(x uint64) uint64 {
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// hashName hashes the identity of a destination. Clients that choose names must not be able to make two of them collide, because
// all points of these destinations would coincide.
func hashName(name string, toExchange bool) uint64 {
	kind := "queue "
	if toExchange {
		kind = "exchange "
	}
	sum := sha256.Sum256([]byte(kind + name))
	return binary.LittleEndian.Uint64(sum[:])
}
