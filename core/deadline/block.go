package deadline

import (
	"encoding/binary"
	"math"
	"math/bits"
	"slices"

	"github.com/curfewmq/curfew/core/slab"
)

// block is a sequence of consecutive items of a List, at least one, in one slab. For each
// item it stores how far its deadline and its slot are above the lowest ones in the
// block. Each of these differences has as many bytes as the largest one needs, so all
// items have the same size and can be searched as an array. Example: 1,000 items within
// one minute (6e10 ns, 5 bytes) and with slots within 60,000 (2 bytes) take 7 bytes each.
type block struct {
	first Item   // a search reads it without decoding
	low   Item   // base of the stored differences: the lowest deadline and the lowest slot
	data  []byte // padding bytes follow the items, so that each number can be read as 8 bytes
	from  int    // number of removed items at the start
	count int
	at    uint8 // bytes of a deadline
	slot  uint8 // bytes of a slot
}

const (
	blockBytes = 16 << 10 // the smallest slab
	padding    = 8
	// fewBytes is the size up to which a block is joined to another one.
	fewBytes = blockBytes / 4
)

// widthOf returns the number of bytes that a number needs; 0 for 0.
func widthOf(n uint64) int { return (bits.Len64(n) + 7) / 8 }

// size returns the bytes of an item. Items that need none, because all are equal, take 1.
func (k *block) size() int { return max(int(k.at)+int(k.slot), 1) }

func (k *block) bytes() int { return k.count * k.size() }

// item returns an item of the block.
func (k *block) item(i int) Item {
	b := k.data[(k.from+i)*k.size():]
	at, slot := binary.LittleEndian.Uint64(b), binary.LittleEndian.Uint64(b[k.at:])
	return Item{
		At:   int64(uint64(k.low.At) + at&(1<<(8*k.at)-1)), // shifts by 64 give 0, and the mask is then all ones
		Slot: k.low.Slot + slot&(1<<(8*k.slot)-1),
	}
}

// newBlock returns a block of ordered items, at least one.
func newBlock(items []Item) block {
	low, high := items[0].Slot, items[0].Slot
	for _, it := range items {
		low, high = min(low, it.Slot), max(high, it.Slot)
	}
	k := block{first: items[0], low: Item{items[0].At, low}, count: len(items)}
	k.at = uint8(widthOf(uint64(items[len(items)-1].At) - uint64(k.low.At)))
	k.slot = uint8(widthOf(high - low))
	k.data = slab.Alloc(k.bytes() + padding)
	size, to := k.size(), 0
	for _, it := range items { // each number overwrites the padding zeros of the previous one
		binary.LittleEndian.PutUint64(k.data[to:], uint64(it.At)-uint64(k.low.At))
		binary.LittleEndian.PutUint64(k.data[to+int(k.at):], it.Slot-k.low.Slot)
		to += size
	}
	return k
}

// find returns the index of the first item that is not before it.
func (k *block) find(it Item) int {
	low, high := 0, k.count
	for low < high {
		if middle := int(uint(low+high) / 2); k.item(middle).before(it) {
			low = middle + 1
		} else {
			high = middle
		}
	}
	return low
}

// through returns the number of items with a deadline at or before the given one.
func (k *block) through(at int64) int {
	if at == math.MaxInt64 {
		return k.count
	}
	return k.find(Item{At: at + 1})
}

// fits reports whether the given number of bytes fits after the items, provided that they
// need no wider numbers.
func (k *block) fits(bytes int) bool { return bytes+k.bytes()+padding <= blockBytes }

// remove removes an item; the block must have others.
func (k *block) remove(i int) {
	k.count--
	if i == 0 { // lists are mostly consumed from the front
		k.from++
		k.first = k.item(0)
		return
	}
	n := k.size()
	to := (k.from + i) * n
	copy(k.data[to:], k.data[to+n:(k.from+k.count+1)*n])
}

func (k *block) free() {
	slab.Free(k.data)
	*k = block{}
}

// packer makes full blocks from items that are added in order.
type packer struct {
	blocks   []block
	pending  []Item // for the next block
	capacity int    // of the next block, while all numbers in it exceed the lowest ones by at most the following:
	at, span uint64 // deadlines
	low      uint64 // slots
	slots    uint64
}

// maxPending is the most items in a block: slots differ, so that only 256 items have a size of 1.
const maxPending = (blockBytes - padding) / 2

// newPacker returns a packer for at most the given number of items at a time.
func newPacker(items, blocks int) packer {
	return packer{blocks: make([]block, 0, blocks), pending: slab.Make[Item](min(items, maxPending))[:0]}
}

func (p *packer) add(it Item) {
	if !p.takes(it) {
		p.widen(it)
	}
	p.pending = append(p.pending, it)
}

// takes reports whether an item can be added without widen. A number below the lowest one
// wraps around, and so counts as far above it.
func (p *packer) takes(it Item) bool {
	return len(p.pending) < p.capacity && it.Slot-p.low <= p.slots && uint64(it.At)-p.at <= p.span
}

// widen makes space for an item that needs wider numbers, or begins the next block.
func (p *packer) widen(it Item) {
	if n := len(p.pending); n > 0 {
		low, high := min(p.low, it.Slot), max(p.low+p.slots, it.Slot)
		p.low, p.slots = low, high-low
		at := widthOf(uint64(it.At) - p.at)
		p.span = 1<<(8*at) - 1
		p.capacity = min(cap(p.pending), (blockBytes-padding)/max(at+widthOf(p.slots), 1))
		if n < p.capacity {
			return
		}
		p.flush()
	}
	p.at, p.span, p.low, p.slots, p.capacity = uint64(it.At), 0, it.Slot, 0, 1
}

// merge adds the items of a block, which it frees, together with other ordered items.
func (p *packer) merge(k *block, others []Item) {
	size, b := k.size(), k.data[k.from*k.size():]
	at, slot := uint64(1)<<(8*k.at)-1, uint64(1)<<(8*k.slot)-1
	for range k.count { // like item, but without repeating the same calculations for each
		it := Item{
			At:   int64(uint64(k.low.At) + binary.LittleEndian.Uint64(b)&at),
			Slot: k.low.Slot + binary.LittleEndian.Uint64(b[k.at:])&slot,
		}
		for len(others) > 0 && others[0].before(it) {
			p.add(others[0])
			others = others[1:]
		}
		if !p.takes(it) { // like add, which the compiler does not inline
			p.widen(it)
		}
		p.pending = append(p.pending, it)
		b = b[size:]
	}
	for _, it := range others {
		p.add(it)
	}
	k.free()
}

// flush makes a block of the pending items.
func (p *packer) flush() {
	if len(p.pending) > 0 {
		p.blocks = append(p.blocks, newBlock(p.pending))
		p.pending, p.capacity = p.pending[:0], 0
	}
}

// keep adds a block unchanged, unless the pending items fit into it. It reports whether it did.
func (p *packer) keep(k block) bool {
	if n := len(p.pending); n > 0 && k.fits(n*k.size()) {
		return false
	}
	p.flush()
	p.blocks = append(p.blocks, k)
	return true
}

// end returns the blocks.
func (p *packer) end() []block {
	p.flush()
	slab.FreeSlice(p.pending)
	return slices.Clip(p.blocks)
}
