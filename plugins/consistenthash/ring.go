package consistenthash

import "math/bits"

// ring is a circle of 2^31 positions with the points of destinations on it. It is a hash table that keeps the order: a point's
// first choice of a cell are the upper bits of its position, and points that find it taken lie behind it, sorted. So the points
// are sorted from the first cell to the last, whatever the order they came in, and adding one moves only its neighbours.
//
// A cell without a point repeats the next one, and those behind the last point the first one, once around the circle. That is
// what spares find most of its branches.
type ring struct {
	cells []cell // 2^n, and others behind them for what does not find room in the last ones; the last cell has no point
	shift uint8  // a position shifted by so much is the index of a cell
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
	maxFull  = 3 // a quarter of so many cells may have points
	spare    = 64
)

// order reports whether node a comes before node b where both have a point at the same position.
type order func(a, b int32) bool

// find returns the first point at position p or behind it. distance is in the upper half of the result, the index of its cell in the
// lower one. There is at least one point.
func (r *ring) find(p uint32) uint64 {
	i := p >> r.shift
	i += less(r.cells[i].position, p) // these steps are no branches, which would be predicted wrongly
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

// at returns the node of the cell with an index.
func (r *ring) at(i uint32) int32 { return r.cells[i].owner() }

func (c cell) owner() int32 { return max(c.node, ^c.node) }

func (c cell) empty() bool { return c.node < 0 }

// add adds a point.
func (r *ring) add(p uint32, node int32, before order) {
	if 4*(r.count+1) > maxFull*r.size() {
		r.resize(max(minCells, 2*r.size()), before)
	}
	r.put(p, node, before)
	r.count++
}

// size returns the number of cells without those at the end.
func (r *ring) size() int {
	if r.cells == nil {
		return 0
	}
	return circle >> r.shift
}

// put adds a point to a table with an empty cell for it.
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
	// What follows without a gap moves up, unless it lies in its own cell.
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

// repeat repeats what is in cell i, a point or its repetition, in the empty ones before it.
func (r *ring) repeat(i int) {
	c := r.cells[i]
	c.node = ^c.owner()
	for i--; i >= 0 && r.cells[i].empty(); i-- {
		r.cells[i] = c
	}
	if i >= 0 {
		return
	}
	// It is the first one.
	c = r.cells[0]
	c.position, c.node = c.position|circle, ^c.owner()
	for i = len(r.cells) - 1; i >= 0 && r.cells[i].empty(); i-- {
		r.cells[i] = c
	}
}

// resize makes a table of size cells, a power of two.
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
