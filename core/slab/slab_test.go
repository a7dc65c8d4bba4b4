package slab

import "testing"

// Slabs of large messages are reused for messages of a similar size, and the memory kept for that is bounded.
func TestLargeSlabs(t *testing.T) {
	const size = 1<<20 + 100
	var l largeSlabs
	first := l.take(size)
	if len(first) < size || len(first) > size+grain {
		t.Fatalf("%d bytes for %d", len(first), size)
	}
	first[0] = 1
	l.give(first)
	if again := l.take(size - 1000); &again[0] != &first[0] {
		t.Error("a free slab was not used again")
	}
	l.give(first)
	if small := l.take(size / 2); &small[0] == &first[0] {
		t.Error("half of a slab was wasted")
	}
	if big := l.take(2 * size); len(big) < 2*size {
		t.Errorf("%d bytes for %d", len(big), 2*size)
	}
	for range 100 {
		l.give(mapMemory(maxRetained / 10))
	}
	if l.retained > maxRetained || len(l.free) > maxRetainedSlabs {
		t.Errorf("%d bytes in %d pieces are kept", l.retained, len(l.free))
	}
	sum := 0
	for _, b := range l.free {
		sum += len(b)
	}
	if sum != l.retained {
		t.Errorf("%d bytes are counted as %d", sum, l.retained)
	}
	if l.give(mapMemory(2 * maxRetained)); l.retained != sum {
		t.Error("a slab larger than the reserve was kept")
	}
}
