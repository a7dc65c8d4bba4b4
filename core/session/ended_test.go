package session

import (
	"math/rand/v2"
	"testing"
)

// In whatever order tags are added and removed, the ranges contain exactly the tags of a set, in order and without touching.
func TestEndedTags(t *testing.T) {
	const tags = 200
	rnd := rand.New(rand.NewPCG(1, 2))
	var e endedTags
	set := map[uint64]bool{}
	for range 20_000 {
		tag := 1 + rnd.Uint64N(tags)
		switch rnd.IntN(8) {
		case 0, 1, 2:
			if got := e.take(tag); got != set[tag] {
				t.Fatalf("take(%d): got %t", tag, got)
			}
			delete(set, tag)
		case 3:
			if tag < tags/8 {
				e.takeThrough(tag)
				for low := range tag + 1 {
					delete(set, low)
				}
			}
		default:
			e.add(tag)
			set[tag] = true
		}
		last := uint64(0)
		for i, r := range e.ranges {
			if r.first > r.last || i > 0 && r.first <= last+1 {
				t.Fatalf("ranges: %v", e.ranges)
			}
			last = r.last
		}
		for tag := range uint64(tags + 2) {
			if e.has(tag) != set[tag] {
				t.Fatalf("has(%d): got %t; ranges: %v", tag, !set[tag], e.ranges)
			}
		}
	}
}

// Beyond the limit the lowest ranges are merged. No ended tag is forgotten.
func TestEndedTagsAreBounded(t *testing.T) {
	var e endedTags
	const tags = 4 * maxEndedRanges
	for tag := uint64(1); tag <= tags; tag += 2 {
		e.add(tag)
	}
	if n := len(e.ranges); n != maxEndedRanges {
		t.Errorf("%d ranges", n)
	}
	for tag := uint64(1); tag <= tags; tag += 2 {
		if !e.has(tag) {
			t.Fatalf("%d is forgotten", tag)
		}
	}
	if e.has(tags) || !e.has(2) {
		t.Error("the highest ranges became one")
	}
	e.takeThrough(tags)
	if len(e.ranges) != 0 {
		t.Errorf("ranges: %v", e.ranges)
	}
}
