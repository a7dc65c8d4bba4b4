package deadline

import (
	"math/rand/v2"
	"slices"
	"testing"
)

func TestPopsInOrderOfDeadlineThenSlot(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for _, n := range []int{0, 1, 2, 5, 17, 1000, 10000} {
		var h Heap
		var want []Item
		for i := range n {
			it := Item{At: rng.Int64N(int64(n)/3 + 1), Slot: uint64(i)}
			want = append(want, it)
			h.Push(it)
		}
		slices.SortFunc(want, compare)
		if got := drain(&h); !slices.Equal(got, want) {
			t.Errorf("%d items came out in the wrong order", n)
		}
	}
}

func TestKeepLeavesAHeap(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	for _, n := range []int{0, 1, 2, 3, 64, 5000} {
		var h Heap
		var want []Item
		for i := range n {
			it := Item{At: rng.Int64N(1000), Slot: uint64(i)}
			h.Push(it)
			if i%3 == 0 {
				want = append(want, it)
			}
		}
		h.Keep(func(it Item) bool { return it.Slot%3 == 0 })
		slices.SortFunc(want, compare)
		if got := drain(&h); !slices.Equal(got, want) {
			t.Errorf("of %d items, Keep left %d, want %d, or out of order", n, len(got), len(want))
		}
	}
}

func TestInterleavedPushAndPopNeverGoesBack(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 6))
	var h Heap
	now := int64(0)
	for i := range 20000 {
		h.Push(Item{At: now + rng.Int64N(100), Slot: uint64(i)})
		if rng.IntN(2) == 0 {
			continue
		}
		it := h.Pop()
		if it.At < now {
			t.Fatalf("popped %d after %d", it.At, now)
		}
		now = it.At
	}
}

func TestMemoryComesBackAfterAStorm(t *testing.T) {
	var h Heap
	for i := range 1_000_000 {
		h.Push(Item{At: int64(i)})
	}
	for h.Len() > 10 {
		h.Pop()
	}
	if got := cap(h.items); got > 4096 {
		t.Errorf("room for %d items is still held for 10", got)
	}
}

func BenchmarkPushPop(b *testing.B) {
	rng := rand.New(rand.NewPCG(7, 8))
	var h Heap
	for i := range 100_000 {
		h.Push(Item{At: rng.Int64N(1 << 40), Slot: uint64(i)})
	}
	b.ReportAllocs()
	for b.Loop() {
		it := h.Pop()
		it.At += rng.Int64N(1 << 40)
		h.Push(it)
	}
}

func drain(h *Heap) []Item {
	var out []Item
	for h.Len() > 0 {
		out = append(out, h.Pop())
	}
	return out
}

func compare(a, b Item) int {
	if a.before(b) {
		return -1
	}
	return 1
}
