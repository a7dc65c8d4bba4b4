package deadline

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/curfewmq/curfew/core/slab"
)

// FuzzList lets an attacker choose how deadlines and slots are spread, where items are added and removed, and
// when they are merged. The list always equals a sorted slice, and frees all memory in the end.
func FuzzList(f *testing.F) {
	f.Add([]byte("\x00\x09\x20\x01\x80\x11\x40\x22\x03\x13\x05\x24\xff\x06"))
	f.Add([]byte("\x30\xff\x31\xff\x32\xff\x01\xff\x12\xff\x25\xff\x03\xff\x14\xff\x07\xff\x17\xff"))
	f.Fuzz(func(t *testing.T, script []byte) {
		g := listGame{t: t, rng: rand.New(rand.NewPCG(uint64(len(script)), 29))}
		before := slab.Used()
		for i := 0; i+1 < len(script) && i < 64; i += 2 {
			g.play(script[i], script[i+1])
		}
		g.list.Release()
		if n := slab.Used() - before; n != 0 {
			t.Fatalf("%d bytes are still held", n)
		}
	})
}

// listGame is a list and the slice that it must equal.
type listGame struct {
	t    *testing.T
	rng  *rand.Rand
	list List
	want []Item
	next uint64
}

// play makes many changes of one kind, and compares.
func (g *listGame) play(kind, n byte) {
	count := 1 + int(n)*int(n)/16
	switch kind % 8 {
	case 0, 1, 2:
		g.add(int(kind>>4), count)
	case 3:
		g.removeSome(count, func(int) int { return 0 })
	case 4:
		g.removeSome(count, func(length int) int { return g.rng.IntN(length) })
	case 5:
		at := g.rng.Float64()
		g.removeSome(count, func(length int) int { return int(at * float64(length)) }) // in a row
	case 6:
		g.list.merge()
	case 7:
		g.removeSome(count, func(length int) int { return length - 1 })
	}
	g.compare()
}

func (g *listGame) add(spread, count int) {
	base := g.rng.Int64N(1 << 40)
	added := make([]Item, 0, count)
	for range count {
		g.next++
		it := Item{At: base, Slot: g.next}
		switch spread % 8 {
		case 1:
			it.At = g.rng.Int64N(1 << 40)
		case 2:
			it.At = base + g.rng.Int64N(300)
		case 3:
			it.At, it.Slot = int64(g.rng.Uint64()), g.next<<40
		case 4:
			it.At = [...]int64{math.MinInt64, 0, math.MaxInt64}[g.rng.IntN(3)]
		case 5:
			it.At, it.Slot = int64(1)<<g.rng.IntN(63), math.MaxUint64-g.next
		case 6:
			it.At = base + int64(g.next)
		case 7:
			it.At = base - int64(g.next)
		}
		g.list.Add(it)
		added = append(added, it)
	}
	g.want = append(g.want, added...)
	slices.SortFunc(g.want, compareItems)
}

func (g *listGame) removeSome(count int, which func(length int) int) {
	for range count {
		if len(g.want) == 0 {
			return
		}
		i := which(len(g.want))
		if it := g.want[i]; !g.list.Remove(it) || g.list.Remove(it) {
			g.t.Fatalf("%v was not there once", it)
		}
		g.want = slices.Delete(g.want, i, i+1)
	}
}

func (g *listGame) compare() {
	g.t.Helper()
	first, ok := g.list.First()
	if g.list.Len() != len(g.want) || ok != (len(g.want) > 0) || ok && first != g.want[0] {
		g.t.Fatalf("%d items from %v on, %t, want %d", g.list.Len(), first, ok, len(g.want))
	}
	if got := collect(&g.list, Item{At: math.MinInt64}); !slices.Equal(got, g.want) {
		g.t.Fatalf("%d items are not the %d that were added", len(got), len(g.want))
	}
	if !ok {
		return
	}
	from := g.rng.IntN(len(g.want))
	if got := collect(&g.list, g.want[from]); !slices.Equal(got, g.want[from:]) {
		g.t.Fatalf("%d items from the %d. on, want %d", len(got), from, len(g.want)-from)
	}
	g.compareCounts(g.want[from].At)
}

func (g *listGame) compareCounts(at int64) {
	g.t.Helper()
	through := 0
	for _, it := range g.want {
		if it.At <= at {
			through++
		}
	}
	if got := g.list.Through(at); got != through {
		g.t.Fatalf("%d items through %d, want %d", got, at, through)
	}
	total, blocks := 0, 0
	g.list.Runs(func(at int64) int64 { return at | 0xffffff }, func(_ int64, n int) { total += n })
	for i := range g.list.blocks {
		k := &g.list.blocks[i]
		if blocks += k.count; k.count == 0 || k.first != k.item(0) {
			g.t.Fatalf("block %d has %d items, and %v is the first of them", i, k.count, k.first)
		}
	}
	if blocks != g.list.count || total+len(g.list.Recent(0)) != len(g.want) {
		g.t.Fatalf("%d items in blocks, %d in runs, and %d recent ones, want %d", blocks, total, len(g.list.Recent(0)), len(g.want))
	}
}
