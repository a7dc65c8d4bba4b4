package deadline

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
)

// Items are sorted for any distribution of deadlines.
func TestSortItems(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 15))
	for name, at := range map[string]func(i int) int64{
		"even":             func(int) int64 { return rng.Int64N(1 << 40) },
		"narrow":           func(int) int64 { return 1<<60 + rng.Int64N(100) },
		"equal":            func(int) int64 { return 7 },
		"two":              func(int) int64 { return rng.Int64N(2) },
		"in order":         func(i int) int64 { return int64(i) },
		"backwards":        func(i int) int64 { return int64(-i) },
		"all there are":    func(int) int64 { return int64(rng.Uint64()) },
		"the two ends":     func(i int) int64 { return []int64{math.MinInt64, math.MaxInt64}[i%2] },
		"ever longer":      func(int) int64 { return int64(1) << rng.IntN(63) },
		"one far away":     func(i int) int64 { return rng.Int64N(1000) + int64(1/(i+1))<<62 },
		"two bursts":       func(i int) int64 { return rng.Int64N(1000) + int64(i%2)<<50 },
		"almost in order":  func(i int) int64 { return int64(i) - rng.Int64N(3) },
		"most of them due": func(int) int64 { return max(0, rng.Int64N(100)-90) },
	} {
		for _, n := range []int{0, 1, 2, fewItems, minDivided - 1, minDivided, 1000, 20_000} {
			items := make([]Item, n)
			for i := range items {
				items[i] = Item{At: at(i), Slot: rng.Uint64N(uint64(n))}
			}
			want := slices.SortedFunc(slices.Values(items), compareItems)
			sortItems(items, make([]Item, n))
			if !slices.Equal(items, want) {
				t.Errorf("%s: %d items are not sorted", name, n)
			}
		}
	}
}

func BenchmarkSortItems(b *testing.B) {
	const n = 100_000
	rng := rand.New(rand.NewPCG(5, 15))
	items, tmp := make([]Item, n), make([]Item, n)
	for b.Loop() {
		for i := range items {
			items[i] = Item{At: rng.Int64N(1 << 37), Slot: uint64(i)}
		}
		sortItems(items, tmp)
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/n, "ns/item")
}
