package session

import (
	"cmp"
	"slices"
)

// endedTags holds the tags of deliveries whose lease has ended and that the client has not settled since. The client may not know that the
// lease has ended, so its settlement is ignored. Tags are kept as ranges; a client that settles nothing produces a single range.
type endedTags struct {
	ranges []tagRange // in order; they neither overlap nor touch
}

// tagRange is the tags first <= tag <= last.
type tagRange struct{ first, last uint64 }

// maxEndedRanges bounds the memory for ended tags. Beyond it the two lowest ranges are merged, including the tags between them: a
// settlement of a tag in between is then ignored, too, even where it is the client's mistake.
const maxEndedRanges = 1024

// search returns the position of the range that contains the tag, or of the first range above it.
func (e *endedTags) search(tag uint64) (i int, found bool) {
	i, _ = slices.BinarySearchFunc(e.ranges, tag, func(r tagRange, tag uint64) int { return cmp.Compare(r.last, tag) })
	return i, i < len(e.ranges) && e.ranges[i].first <= tag
}

func (e *endedTags) has(tag uint64) bool {
	_, found := e.search(tag)
	return found
}

func (e *endedTags) add(tag uint64) {
	i, found := e.search(tag)
	if found {
		return
	}
	below := i > 0 && e.ranges[i-1].last+1 == tag
	above := i < len(e.ranges) && e.ranges[i].first == tag+1
	switch {
	case below && above:
		e.ranges[i-1].last = e.ranges[i].last
		e.ranges = slices.Delete(e.ranges, i, i+1)
	case below:
		e.ranges[i-1].last = tag
	case above:
		e.ranges[i].first = tag
	default:
		e.ranges = slices.Insert(e.ranges, i, tagRange{tag, tag})
		e.bound()
	}
}

// take removes a tag and reports whether it was present.
func (e *endedTags) take(tag uint64) bool {
	i, found := e.search(tag)
	if !found {
		return false
	}
	switch r := &e.ranges[i]; {
	case r.first == r.last:
		e.ranges = slices.Delete(e.ranges, i, i+1)
	case r.first == tag:
		r.first++
	case r.last == tag:
		r.last--
	default:
		upper := tagRange{tag + 1, r.last}
		r.last = tag - 1
		e.ranges = slices.Insert(e.ranges, i+1, upper)
		e.bound()
	}
	return true
}

// takeThrough removes all tags up to tag.
func (e *endedTags) takeThrough(tag uint64) {
	i, found := e.search(tag)
	if found && e.ranges[i].last == tag {
		i++
	} else if found {
		e.ranges[i].first = tag + 1
	}
	e.ranges = slices.Delete(e.ranges, 0, i)
}

func (e *endedTags) bound() {
	if len(e.ranges) > maxEndedRanges {
		e.ranges[1].first = e.ranges[0].first
		e.ranges = slices.Delete(e.ranges, 0, 1)
	}
}
