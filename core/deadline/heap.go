// Package deadline orders deadlines: in a heap, and in a list that can be searched. It
// has no clock and no lock. The caller decides what a slot stands for.
package deadline

import "slices"

// Item is a deadline and the slot that it belongs to.
type Item struct {
	At   int64 // nanoseconds since the Unix epoch
	Slot uint64
}

func (a Item) before(b Item) bool {
	return a.At < b.At || a.At == b.At && a.Slot < b.Slot
}

// Heap is a 4-ary min-heap; equal deadlines are ordered by slot. Four children per node
// halve the depth of a binary heap, and lie in one cache line. The zero value is an empty
// heap. A Heap belongs to one goroutine.
//
// Items are not removed from the middle: a stale one stays until it is the top, or until
// Keep removes it.
type Heap struct {
	items []Item
}

// Len returns the number of items, stale ones included.
func (h *Heap) Len() int { return len(h.items) }

// Top returns the earliest item; the heap must not be empty.
func (h *Heap) Top() Item { return h.items[0] }

// Push adds an item.
func (h *Heap) Push(it Item) {
	h.items = append(h.items, it)
	h.up(len(h.items) - 1)
}

// Pop removes and returns the earliest item; the heap must not be empty.
func (h *Heap) Pop() Item {
	top := h.pop()
	h.shrink()
	return top
}

// pop is Pop without freeing memory.
func (h *Heap) pop() Item {
	top := h.items[0]
	last := len(h.items) - 1
	h.items[0] = h.items[last]
	h.items = h.items[:last]
	if last > 1 {
		h.down(0)
	}
	return top
}

// remove removes an item from any position, and reports whether it was there. It scans all items.
func (h *Heap) remove(it Item) bool {
	i := slices.Index(h.items, it)
	if i < 0 {
		return false
	}
	last := len(h.items) - 1
	h.items[i] = h.items[last]
	h.items = h.items[:last]
	if i < last {
		h.down(i)
		h.up(i)
	}
	return true
}

// Keep removes all items for which keep is false, in one pass.
func (h *Heap) Keep(keep func(Item) bool) {
	kept := h.items[:0]
	for _, it := range h.items {
		if keep(it) {
			kept = append(kept, it)
		}
	}
	h.items = kept
	for i := (len(kept) - 2) / arity; i >= 0 && len(kept) > 1; i-- {
		h.down(i)
	}
	h.shrink()
}

const arity = 4

func (h *Heap) up(i int) {
	it := h.items[i]
	for i > 0 {
		parent := (i - 1) / arity
		if !it.before(h.items[parent]) {
			break
		}
		h.items[i] = h.items[parent]
		i = parent
	}
	h.items[i] = it
}

func (h *Heap) down(i int) {
	it := h.items[i]
	for {
		least := h.leastChild(i)
		if least < 0 || !h.items[least].before(it) {
			break
		}
		h.items[i] = h.items[least]
		i = least
	}
	h.items[i] = it
}

func (h *Heap) leastChild(i int) int {
	first := i*arity + 1
	if first >= len(h.items) {
		return -1
	}
	least := first
	for c := first + 1; c < min(first+arity, len(h.items)); c++ {
		if h.items[c].before(h.items[least]) {
			least = c
		}
	}
	return least
}

// shrink frees memory: a heap that had millions of deadlines must not keep space for them.
func (h *Heap) shrink() {
	const small = 1024
	if cap(h.items) <= small || len(h.items) > cap(h.items)/8 {
		return
	}
	h.items = append(make([]Item, 0, cap(h.items)/4), h.items...)
}
