package deadline

import (
	"math/bits"
	"slices"
)

const (
	// minDivided is the number of items from which on dividing them into buckets pays.
	minDivided = 256
	// fewItems is the number of items up to which insertion sort is used.
	fewItems = 24
)

// sortItems sorts items. Deadlines are usually spread over some time, so items are divided into buckets by deadline, some four
// per bucket, instead of being compared with one another. A bucket that gets many items is divided again: in that case a few items span most
// of the time. tmp has the same length as items; sortItems overwrites it.
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

// timeSpan returns the lowest deadline, and how long after it the last one is. There must be an item.
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
