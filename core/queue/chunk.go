package queue

import (
	"slices"

	"github.com/curfewmq/curfew/core/slab"
	"github.com/curfewmq/curfew/sdk/hook"
)

const (
	chunkBits  = 11
	chunkSlots = 1 << chunkBits
	firstChunk = 8
)

// chunk is chunkSlots consecutive slots. The last chunk of a fifo begins small and grows
// by copying. A chunk with few messages left becomes sparse, so that a message that
// outlives its neighbours does not hold the memory of all of them. Deadlines, holds and
// extents have arrays of their own, only where a message has one.
//
// Example: of chunk 5, with the sequence numbers 10,240 to 12,287, only 10,243 and 11,000
// are left. It becomes sparse when fewer than 2,048/16 = 128 messages are left.
//
//	dense    2,048 slots: 10,243 is slots[3], 11,000 is slots[760]
//	sparse   2 slots: slots[0] and slots[1], positions = [3, 760]
//
// An index is a message's index in slots, a position that of a dense chunk: 3 and 760.
type chunk struct {
	number    uint64 // the upper bits of the sequence numbers; the lower bits are the position
	slots     []slot
	deadlines []hook.Instant // nil, or as long as slots
	holds     []hook.Instant // ends of holds; nil, or as long as slots
	extents   *runs          // the journal's extent that each message lies in; nil = none does
	saved     *runs          // by how many bytes its operation there is shorter than its weight; nil = by none
	bodies    []uint32       // the sizes of bodies, while a replay has the chunk; nil otherwise
	positions []uint16       // of a sparse chunk: the position of each slot, ascending; nil = dense
	live      int32          // slots that are not free
}

// sparseRatio is for sparse chunks: a chunk becomes sparse when less than 1/sparseRatio
// of its slots are in use.
const sparseRatio = 16

// index returns the index of the slot with a position, or of the first one behind it.
func (c *chunk) index(position int) int {
	if c.positions == nil {
		return position
	}
	i, _ := slices.BinarySearch(c.positions, uint16(position))
	return i
}

// position returns the position of the slot with an index.
func (c *chunk) position(i int) uint64 {
	if c.positions == nil {
		return uint64(i)
	}
	return uint64(c.positions[i])
}

// seq returns the sequence number of the slot with an index.
func (c *chunk) seq(i int) uint64 { return c.number<<chunkBits | c.position(i) }

func (c *chunk) deadline(i int) hook.Instant {
	if c.deadlines == nil {
		return 0
	}
	return c.deadlines[i]
}

func (c *chunk) setDeadline(i int, at hook.Instant) {
	if c.deadlines == nil {
		if at == 0 {
			return
		}
		c.deadlines = slab.Make[hook.Instant](len(c.slots))
	}
	c.deadlines[i] = at
}

func (c *chunk) hold(i int) hook.Instant {
	if c.holds == nil {
		return 0
	}
	return c.holds[i]
}

func (c *chunk) setHold(i int, until hook.Instant) {
	if c.holds == nil {
		c.holds = slab.Make[hook.Instant](len(c.slots))
	}
	c.holds[i] = until
}

// extentOf returns the journal's extent that a message lies in, 0 if it is not
// journalled, and the bytes that it takes there, times sign.
func (c *chunk) extentOf(i int, sign int64) (extent uint32, bytes int64) {
	if extent = c.extent(i); extent == 0 {
		return 0, 0
	}
	return extent, sign * (weight(&c.slots[i]) - c.savedBy(i))
}

// extent returns the journal's extent that a message lies in, 0 if it is not journalled.
func (c *chunk) extent(i int) uint32 {
	if c.extents == nil {
		return 0
	}
	return c.extents.at(i)
}

// setExtent sets the journal's extent that a message lies in, and by how many bytes its
// operation there is shorter than its weight.
func (c *chunk) setExtent(i int, extent uint32, saved int) {
	if c.extents == nil {
		c.extents = &runs{}
	}
	c.extents.set(i, extent)
	if c.saved == nil {
		if saved == 0 {
			return
		}
		c.saved = &runs{}
	}
	c.saved.set(i, uint32(saved))
}

func (c *chunk) savedBy(i int) int64 {
	if c.saved == nil {
		return 0
	}
	return int64(c.saved.at(i))
}

// grow makes the chunk large enough for index i; with full it gets its full size at once.
func (c *chunk) grow(i int, full bool) {
	size := max(len(c.slots), firstChunk)
	for size <= i {
		size *= 4
	}
	if full || size > chunkSlots {
		size = chunkSlots
	}
	c.slots = resized(c.slots, size)
	if c.deadlines != nil {
		c.deadlines = resized(c.deadlines, size)
	}
	if c.holds != nil {
		c.holds = resized(c.holds, size)
	}
	if c.bodies != nil {
		c.bodies = resized(c.bodies, size)
	}
}

func (c *chunk) free() {
	slab.FreeSlice(c.slots)
	slab.FreeSlice(c.deadlines)
	slab.FreeSlice(c.holds)
	slab.FreeSlice(c.bodies)
	*c = chunk{number: c.number}
}

// makeSparse keeps the slots that are in use and frees the others.
func (c *chunk) makeSparse() {
	kept := chunk{number: c.number, slots: slab.Make[slot](int(c.live))[:0], positions: make([]uint16, 0, c.live), live: c.live}
	if c.deadlines != nil {
		kept.deadlines = slab.Make[hook.Instant](int(c.live))[:0]
	}
	if c.holds != nil {
		kept.holds = slab.Make[hook.Instant](int(c.live))[:0]
	}
	if c.bodies != nil {
		kept.bodies = slab.Make[uint32](int(c.live))[:0]
	}
	for i := range c.slots {
		if c.slots[i].is(stateFree) {
			continue
		}
		kept.slots = append(kept.slots, c.slots[i])
		kept.positions = append(kept.positions, uint16(i))
		if c.deadlines != nil {
			kept.deadlines = append(kept.deadlines, c.deadlines[i])
		}
		if c.holds != nil {
			kept.holds = append(kept.holds, c.holds[i])
		}
		if c.bodies != nil {
			kept.bodies = append(kept.bodies, c.bodies[i])
		}
		if extent := c.extent(i); extent != 0 {
			kept.setExtent(len(kept.slots)-1, extent, int(c.savedBy(i)))
		}
	}
	c.free()
	*c = kept
}

// makeDense gives a sparse chunk all its slots again.
func (c *chunk) makeDense() {
	if c.positions == nil {
		return
	}
	full := chunk{number: c.number, slots: slab.Make[slot](chunkSlots), live: c.live}
	if c.bodies != nil {
		full.bodies = slab.Make[uint32](chunkSlots)
	}
	for i, p := range c.positions {
		at := int(p)
		full.slots[at] = c.slots[i]
		full.setDeadline(at, c.deadline(i))
		if until := c.hold(i); until != 0 {
			full.setHold(at, until)
		}
		if extent := c.extent(i); extent != 0 {
			full.setExtent(at, extent, int(c.savedBy(i)))
		}
		if c.bodies != nil {
			full.bodies[at] = c.bodies[i]
		}
	}
	c.free()
	*c = full
}

// resized returns an array of n elements that begins with those of a, which it frees.
func resized[T slot | hook.Instant | uint32](a []T, n int) []T {
	b := slab.Make[T](n)
	copy(b, a)
	slab.FreeSlice(a)
	return b
}
