package deadline

import (
	"math/bits"
	"slices"

	"github.com/curfewmq/curfew/core/slab"
)

// List is a list of items ordered by deadline; equal deadlines are ordered by slot.
// Unlike a Heap it can be iterated in order from any point, and an item can be removed
// from any position. The zero value is an empty list. A List belongs to one goroutine.
// Its memory lies in slabs: a list that is no longer needed must be emptied or released.
//
// It consists of a tree of two levels, and a heap of recently added items. When these are
// many, they are sorted and merged into the tree in one pass, which costs a fraction of
// finding the place of each. The blocks of the tree are packed, and full in any order of
// arrival: of a million items with deadlines within an hour, each takes about 8 bytes.
type List struct {
	blocks []block // in order; none is empty
	count  int     // items in blocks
	recent Heap    // in a slab; see grow
	looked int     // recent items scanned since the last merge, in order to remove single ones
}

// Recent items are merged when they are an eighth of the items in blocks, because a merge
// goes through all blocks: it takes some ten milliseconds for a million items. Scanning
// many recent items for one costs less than merging them, but not repeatedly: see
// mayLook.
const (
	minRecent  = 64
	maxRecent  = 64 << 10 // 1 MiB of items
	fewRecent  = 4096
	mergeRatio = 8
)

// Len returns the number of items.
func (l *List) Len() int { return l.count + l.recent.Len() }

// First returns the earliest item; ok is false if there is none.
func (l *List) First() (it Item, ok bool) {
	switch {
	case l.recent.Len() == 0 && len(l.blocks) == 0:
		return Item{}, false
	case len(l.blocks) == 0:
		return l.recent.Top(), true
	case l.recent.Len() > 0 && l.recent.Top().before(l.blocks[0].first):
		return l.recent.Top(), true
	}
	return l.blocks[0].first, true
}

// Add adds an item, which must not be in the list.
func (l *List) Add(it Item) {
	l.grow()
	l.recent.Push(it)
	if l.recent.Len() >= min(max(minRecent, l.count/mergeRatio), maxRecent) {
		l.merge()
	}
}

// grow makes space for one more recent item.
func (l *List) grow() {
	const least = 8
	old := l.recent.items
	if len(old) < cap(old) {
		return
	}
	l.recent.items = append(slab.Make[Item](max(least, 2*len(old)))[:0], old...)
	slab.FreeSlice(old)
}

// trimRecent frees the memory of recent items if there are none. With retain it keeps as
// much as the next ones will need.
func (l *List) trimRecent(retain bool) {
	if l.recent.Len() > 0 || retain && cap(l.recent.items) <= max(minRecent, l.count/mergeRatio) {
		return
	}
	slab.FreeSlice(l.recent.items)
	l.recent.items = nil
}

// merge moves the recent items into the blocks.
func (l *List) merge() {
	added := l.recent.items
	if len(added) == 0 {
		return
	}
	tmp := slab.Make[Item](len(added))
	sortItems(added, tmp)
	slab.FreeSlice(tmp)
	l.count += len(added)
	l.looked = 0
	old := l.blocks
	if len(old) == 0 {
		old = []block{{}}
	}
	p := newPacker(l.count, len(old)+1)
	for b := range old {
		n := until(added, old, b)
		if n == 0 && p.keep(old[b]) {
			continue
		}
		p.merge(&old[b], added[:n])
		added = added[n:]
	}
	l.blocks = p.end()
	l.recent.items = l.recent.items[:0]
	l.trimRecent(true)
}

// until returns how many of the items in added belong to block b. None of them belongs to
// an earlier block.
func until(added []Item, blocks []block, b int) int {
	if b+1 == len(blocks) {
		return len(added)
	}
	return find(added, blocks[b+1].first)
}

// Remove removes an item and reports whether it was in the list.
func (l *List) Remove(it Item) bool {
	if l.recent.Len() > 0 && l.recent.Top() == it {
		l.recent.pop()
		l.trimRecent(len(l.blocks) > 0)
		return true
	}
	if l.removeMerged(it) {
		return true
	}
	if l.mayLook() {
		removed := l.recent.remove(it)
		l.trimRecent(len(l.blocks) > 0)
		return removed
	}
	l.merge()
	return l.removeMerged(it)
}

// mayLook reports whether to scan the recent items for one that is to be removed. It does
// if they are few, or if all scans since the last merge together have cost less than a
// merge, which takes some ten times as long per item.
func (l *List) mayLook() bool {
	n := l.recent.Len()
	if n <= fewRecent {
		return true
	}
	l.looked += n
	return l.looked <= mergeRatio*l.count
}

func (l *List) removeMerged(it Item) bool {
	if len(l.blocks) == 0 {
		return false
	}
	b := l.block(it)
	k := &l.blocks[b]
	i := k.find(it)
	if i == k.count || k.item(i) != it {
		return false
	}
	l.count--
	if k.count == 1 {
		l.removeBlock(b)
		return true
	}
	k.remove(i)
	l.join(b)
	return true
}

func (l *List) removeBlock(b int) {
	l.blocks[b].free()
	if b == 0 {
		l.blocks = l.blocks[1:]
	} else {
		l.blocks = slices.Delete(l.blocks, b, b+1)
	}
	if len(l.blocks) == 0 {
		l.blocks = nil
		l.trimRecent(false)
	}
}

// join joins a block with few items to the next one, unless it is the first block, which
// will soon be used up.
func (l *List) join(b int) {
	if b == 0 || b+1 == len(l.blocks) || l.blocks[b].bytes() >= fewBytes {
		return
	}
	k, next := &l.blocks[b], &l.blocks[b+1]
	if !next.fits(k.bytes()) {
		return
	}
	p := newPacker(k.count+next.count, 2)
	p.merge(k, nil)
	p.merge(next, nil)
	l.blocks = slices.Replace(l.blocks, b, b+2, p.end()...)
}

// From calls fn with the items from it on, in order, until fn returns false. fn must not
// change the list.
func (l *List) From(it Item, fn func(Item) bool) {
	slices.SortFunc(l.recent.items, compareItems) // a sorted slice is also a heap
	recent := l.recent.items[find(l.recent.items, it):]
	for b := l.block(it); b < len(l.blocks); b++ {
		k := &l.blocks[b]
		for i := k.find(it); i < k.count; i++ {
			next := k.item(i)
			for ; len(recent) > 0 && recent[0].before(next); recent = recent[1:] {
				if !fn(recent[0]) {
					return
				}
			}
			if !fn(next) {
				return
			}
		}
	}
	for _, next := range recent {
		if !fn(next) {
			return
		}
	}
}

// Through returns the number of items with a deadline at or before the given one.
func (l *List) Through(at int64) (n int) {
	for _, it := range l.recent.items {
		if it.At <= at {
			n++
		}
	}
	for b := range l.blocks {
		k := &l.blocks[b]
		if b+1 < len(l.blocks) && l.blocks[b+1].first.At <= at {
			n += k.count
			continue
		}
		return n + k.through(at)
	}
	return n
}

// Runs calls fn with runs of items in order: with the first deadline of a run and the
// number of its items. bound returns, for the first deadline of a run, the last deadline
// that may be in the same run; runs may be shorter than that. Items that Recent returns are
// not included.
func (l *List) Runs(bound func(at int64) int64, fn func(at int64, n int)) {
	for b := range l.blocks {
		k := &l.blocks[b]
		if b+1 < len(l.blocks) && l.blocks[b+1].first.At <= bound(k.first.At) {
			fn(k.first.At, k.count)
			continue
		}
		for i := 0; i < k.count; {
			at := k.item(i).At
			next := max(k.through(bound(at)), i+1)
			fn(at, next-i)
			i = next
		}
	}
}

// Recent returns the items that are not in blocks yet, in no order, without the first n.
// The caller must not change them.
func (l *List) Recent(n int) []Item { return l.recent.items[min(n, len(l.recent.items)):] }

// Release empties the list.
func (l *List) Release() {
	for b := range l.blocks {
		l.blocks[b].free()
	}
	l.blocks, l.count, l.looked = nil, 0, 0
	l.recent.items = l.recent.items[:0]
	l.trimRecent(false)
}

// block returns the index of the last block that begins at or before it, or 0.
func (l *List) block(it Item) int {
	low, high := 0, len(l.blocks)
	if high == 0 || it == l.blocks[0].first {
		return 0
	}
	for low < high {
		if middle := int(uint(low+high) / 2); it.before(l.blocks[middle].first) {
			high = middle
		} else {
			low = middle + 1
		}
	}
	return max(low-1, 0)
}

// find returns the index of the first of the sorted items that is not before it.
func find(items []Item, it Item) int {
	i, _ := slices.BinarySearchFunc(items, it, compareItems)
	return i
}

func compareItems(a, b Item) int {
	switch {
	case a.before(b):
		return -1
	case b.before(a):
		return 1
	}
	return 0
}

const (
	// minDivided is the number of items from which on dividing them into buckets pays.
	minDivided = 256
	// fewItems is the number of items up to which insertion sort is used.
	fewItems = 24
)

// sortItems sorts items. Deadlines are usually spread over some time, so items are divided
// into buckets by deadline, some four per bucket, instead of being compared with one
// another. A bucket that gets many items is divided again: in that case a few items span
// most of the time. tmp has the same length as items; sortItems overwrites it.
func sortItems(items, tmp []Item) {
	if slices.IsSortedFunc(items, compareItems) { // the usual case when all items have the same delay
		return
	}
	low, span := timeSpan(items)
	if len(items) < minDivided || span == 0 {
		slices.SortFunc(items, compareItems)
		return
	}
	shift := max(bits.Len64(span)-(bits.Len(uint(len(items)))-2), 0)
	bucket := func(it Item) uint64 { return (uint64(it.At) - low) >> shift }
	ends := make([]uint32, span>>shift+1)
	for _, it := range items {
		ends[bucket(it)]++
	}
	at := uint32(0)
	for b, n := range ends { // where each bucket begins
		ends[b], at = at, at+n
	}
	for _, it := range items {
		b := bucket(it)
		tmp[ends[b]] = it
		ends[b]++
	}
	at = 0
	for _, end := range ends {
		if part := tmp[at:end]; len(part) <= fewItems {
			insertionSort(part)
		} else {
			sortItems(part, items[at:end])
		}
		at = end
	}
	copy(items, tmp)
}

// timeSpan returns the lowest deadline, and how long after it the last one is. There must
// be an item.
func timeSpan(items []Item) (low, span uint64) {
	first, last := items[0].At, items[0].At
	for _, it := range items {
		first, last = min(first, it.At), max(last, it.At)
	}
	return uint64(first), uint64(last) - uint64(first)
}

func insertionSort(items []Item) {
	for i := 1; i < len(items); i++ {
		it, k := items[i], i
		for ; k > 0 && it.before(items[k-1]); k-- {
			items[k] = items[k-1]
		}
		items[k] = it
	}
}
