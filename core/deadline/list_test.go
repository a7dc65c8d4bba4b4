package deadline

import (
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"
	"unsafe"

	"github.com/curfewmq/curfew/core/slab"
)

// After any additions and removals, the list equals a sorted slice.
func TestListIsSorted(t *testing.T) {
	for seed := range uint64(20) {
		rng := rand.New(rand.NewPCG(seed, 15))
		before := slab.Used()
		var l List
		var want []Item
		grow := 3 + rng.IntN(4) // of 8 changes
		for step := range 20_000 {
			switch {
			case len(want) == 0 || rng.IntN(8) < grow:
				it := Item{At: rng.Int64N(5000), Slot: uint64(step)}
				if seed%2 == 0 {
					it.At = int64(step) // in order
				}
				i, _ := slices.BinarySearchFunc(want, it, compareItems)
				want = slices.Insert(want, i, it)
				l.Add(it)
			default:
				i := rng.IntN(len(want))
				if rng.IntN(2) == 0 {
					i = 0
				}
				if !l.Remove(want[i]) {
					t.Fatalf("seed %d, step %d: %v is not in the list", seed, step, want[i])
				}
				want = slices.Delete(want, i, i+1)
			}
			if l.Remove(Item{At: -1}) || l.Remove(Item{At: 2500, Slot: 1 << 40}) {
				t.Fatal("removed an item that is not there")
			}
			if step%500 == 0 {
				checkList(t, &l, want, rng)
			}
		}
		for _, it := range want {
			if first, ok := l.First(); !ok || first != it {
				t.Fatalf("seed %d: First is %v, %t, want %v", seed, first, ok, it)
			}
			l.Remove(it)
		}
		if l.Len() != 0 || l.blocks != nil || slab.Used() != before {
			t.Fatalf("seed %d: %d items, %d blocks, %d bytes are left", seed, l.Len(), len(l.blocks), slab.Used()-before)
		}
	}
}

func checkList(t *testing.T, l *List, want []Item, rng *rand.Rand) {
	t.Helper()
	if l.Len() != len(want) {
		t.Fatalf("%d items, want %d", l.Len(), len(want))
	}
	for range 20 {
		at := rng.Int64N(21_000) - 500
		n := slices.IndexFunc(want, func(it Item) bool { return it.At > at })
		if n < 0 {
			n = len(want)
		}
		if got := l.Through(at); got != n {
			t.Fatalf("%d items through %d, want %d", got, at, n)
		}
	}
	if got := collect(l, Item{}); !slices.Equal(got, want) {
		t.Fatal("the items are not those that were added")
	}
	n := 0
	const run = 37
	l.Runs(func(at int64) int64 { return at - at%run + run - 1 }, func(at int64, count int) {
		if count < 1 || at/run != want[min(len(want)-1, n)].At/run && len(l.Recent(0)) == 0 {
			t.Fatalf("a run of %d items from %d", count, at)
		}
		n += count
	})
	if n+len(l.Recent(0)) != len(want) || len(l.Recent(5)) != max(len(l.Recent(0))-5, 0) {
		t.Fatalf("%d items in runs, and %d recent ones, want %d", n, len(l.Recent(0)), len(want))
	}
	from := Item{At: rng.Int64N(5000), Slot: rng.Uint64N(20_000)}
	i, _ := slices.BinarySearchFunc(want, from, compareItems)
	if got := collect(l, from); !slices.Equal(got, want[i:]) {
		t.Fatalf("%d items from %v, want %d", len(got), from, len(want)-i)
	}
}

func collect(l *List, from Item) (all []Item) {
	l.From(from, func(it Item) bool {
		all = append(all, it)
		return true
	})
	return all
}

func TestListIterationEndsWhenItIsTold(t *testing.T) {
	var l List
	for i := range int64(2000) {
		l.Add(Item{At: i})
	}
	n := 0
	l.From(Item{At: 700}, func(Item) bool { n++; return n < 900 })
	if n != 900 {
		t.Errorf("%d items, want 900", n)
	}
}

// A list of a million items in any order of arrival is small: with deadlines within an hour, each takes at most 8.5 bytes.
func TestListIsSmall(t *testing.T) {
	before := slab.Used()
	var l List
	rng := rand.New(rand.NewPCG(1, 15))
	const n = 1_000_000
	start := time.Date(2026, 11, 23, 0, 0, 0, 0, time.UTC).UnixNano()
	for i := range uint64(n) {
		l.Add(Item{At: start + rng.Int64N(int64(time.Hour)), Slot: i})
	}
	l.merge()
	bytes := cap(l.blocks) * int(unsafe.Sizeof(block{}))
	for _, b := range l.blocks {
		bytes += cap(b.data)
	}
	if float64(bytes) > 8.5*n {
		t.Errorf("%.1f bytes for each item, want 8.5 at most", float64(bytes)/n)
	}
	if l.Release(); slab.Used() != before {
		t.Errorf("%d bytes are still held", slab.Used()-before)
	}
}

func BenchmarkListAddRemove(b *testing.B) {
	rng := rand.New(rand.NewPCG(7, 15))
	var l List
	for i := range uint64(1_000_000) {
		l.Add(Item{At: rng.Int64N(1 << 40), Slot: i})
	}
	b.ResetTimer()
	for i := range b.N {
		l.Add(Item{At: rng.Int64N(1 << 40), Slot: uint64(i) + 1<<40})
		it, _ := l.First()
		l.Remove(it)
	}
}

// Deadlines and slots of all magnitudes are stored exactly: all equal, adjacent, or as far apart as possible.
func TestListTakesAnyNumbers(t *testing.T) {
	rng := rand.New(rand.NewPCG(4, 16))
	numbers := []func() int64{
		func() int64 { return 7 },
		func() int64 { return rng.Int64N(256) },
		func() int64 { return 1<<62 + rng.Int64N(1<<33) },
		func() int64 { return []int64{math.MinInt64, 0, math.MaxInt64}[rng.IntN(3)] },
		func() int64 { return int64(rng.Uint64()) >> rng.IntN(64) },
	}
	for a, at := range numbers {
		for s, slot := range numbers {
			before := slab.Used()
			var l List
			all := map[Item]bool{}
			for range 20_000 {
				it := Item{At: at(), Slot: uint64(slot())}
				if all[it] {
					continue
				}
				all[it] = true
				l.Add(it)
			}
			want := slices.SortedFunc(maps.Keys(all), compareItems)
			if got := collect(&l, want[0]); !slices.Equal(got, want) {
				t.Fatalf("deadlines %d, slots %d: %d items, want %d, or in another order", a, s, len(got), len(want))
			}
			if got := l.Through(math.MaxInt64); got != len(want) {
				t.Errorf("deadlines %d, slots %d: %d items until the end of time, want %d", a, s, got, len(want))
			}
			for _, it := range want[:len(want)/2] {
				if !l.Remove(it) {
					t.Fatalf("deadlines %d, slots %d: %v is not there", a, s, it)
				}
			}
			if got := collect(&l, want[0]); !slices.Equal(got, want[len(want)/2:]) {
				t.Fatalf("deadlines %d, slots %d: half of the items are not those that were left", a, s)
			}
			if l.Release(); l.Len() != 0 || slab.Used() != before {
				t.Errorf("deadlines %d, slots %d: %d items, %d bytes are left", a, s, l.Len(), slab.Used()-before)
			}
		}
	}
}

// Items are added to some of many blocks and merged while other blocks stay unchanged. A block that was merged after an unchanged one
// used to cause a panic.
func TestListMergesSomeBlocks(t *testing.T) {
	for seed := range uint64(20) {
		rng := rand.New(rand.NewPCG(seed, 17))
		before := slab.Used()
		var l List
		var want []Item
		add := func(at int64) {
			it := Item{At: at, Slot: uint64(len(want)*7919) % 100_003} // no order, and none above others
			want = append(want, it)
			l.Add(it)
		}
		for range 40_000 {
			add(rng.Int64N(1 << 20))
		}
		for range 6 {
			windows := []int64{rng.Int64N(1 << 20), rng.Int64N(1 << 20), rng.Int64N(1 << 20)}
			for range 9000 {
				add(windows[rng.IntN(1+int(seed%3))] + rng.Int64N(1000))
			}
		}
		slices.SortFunc(want, compareItems)
		if got := collect(&l, want[0]); !slices.Equal(got, want) {
			t.Fatalf("seed %d: %d items, want %d, or in another order", seed, len(got), len(want))
		}
		rng.Shuffle(len(want)/2, func(i, j int) { want[i], want[j] = want[j], want[i] })
		for _, it := range want {
			if !l.Remove(it) {
				t.Fatalf("seed %d: %v is not there", seed, it)
			}
		}
		if l.Len() != 0 || slab.Used() != before {
			t.Errorf("seed %d: %d items, %d bytes are left", seed, l.Len(), slab.Used()-before)
		}
	}
}

// Items are found wherever they are: merged, or among many recent ones.
func TestListRemovesRecentItems(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 15))
	var l List
	var all []Item
	add := func(n int) {
		for range n {
			it := Item{At: rng.Int64N(1 << 30), Slot: uint64(len(all))}
			all = append(all, it)
			l.Add(it)
		}
	}
	add(100_000)
	for l.recent.Len() < fewRecent+1000 {
		add(1)
	}
	rng.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	for i, it := range all {
		if !l.Remove(it) || l.Remove(it) {
			t.Fatalf("item %d, %v, was not there once", i, it)
		}
		if i%1000 == 0 {
			add := Item{At: rng.Int64N(1 << 30), Slot: uint64(1<<40 + i)}
			l.Add(add)
			if !l.Remove(add) {
				t.Fatal("an item that was just added is not there")
			}
		}
	}
	if _, ok := l.First(); ok || l.Len() != 0 {
		t.Errorf("%d items are left", l.Len())
	}
}

// Each removal of an item among many recent ones used to merge them. With one such removal in a few thousand, adding to a list of three million
// items cost fifteen times as much.
func TestFewRemovalsDoNotMerge(t *testing.T) {
	const many = 600_000
	rng := rand.New(rand.NewPCG(9, 15))
	var l List
	defer l.Release()
	for i := range uint64(many) {
		l.Add(Item{At: rng.Int64N(1 << 40), Slot: i})
	}
	merges := 0
	for i := range uint64(many / 10) {
		it := Item{At: 1<<39 + rng.Int64N(1<<39), Slot: many + i}
		before := l.recent.Len()
		l.Add(it)
		if i%1000 == 0 && !l.Remove(it) {
			t.Fatalf("%v is not there", it)
		}
		if l.recent.Len() < before {
			merges++
		}
	}
	if merges > 2 {
		t.Errorf("%d items were merged in %d parts, want 2 at most", many/10, merges)
	}
}

// Many removals of recent items lead to a merge: scanning many items for each would cost more.
func TestManyRemovalsMerge(t *testing.T) {
	const many = 600_000
	rng := rand.New(rand.NewPCG(9, 15))
	var l List
	defer l.Release()
	for i := range uint64(many) {
		l.Add(Item{At: rng.Int64N(1 << 40), Slot: i})
	}
	l.merge()
	var recent []Item
	for i := range uint64(many / 10) {
		recent = append(recent, Item{At: rng.Int64N(1 << 40), Slot: many + i})
		l.Add(recent[i])
	}
	rng.Shuffle(len(recent), func(i, j int) { recent[i], recent[j] = recent[j], recent[i] })
	looked := 0
	for _, it := range recent {
		if n := l.recent.Len(); n > fewRecent {
			looked += n
		}
		if !l.Remove(it) {
			t.Fatalf("%v is not there", it)
		}
	}
	if looked > 2*mergeRatio*many {
		t.Errorf("%d items were looked at", looked)
	}
}

func BenchmarkListAdd(b *testing.B) {
	rng := rand.New(rand.NewPCG(7, 15))
	for b.Loop() {
		var l List
		for i := range uint64(1_000_000) {
			l.Add(Item{At: rng.Int64N(1 << 40), Slot: i})
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/1e6, "ns/item")
}
