package queue

import (
	"math/rand/v2"
	"testing"
)

// Whatever is set, the numbers are those of an array, in as many runs as they have.
func TestRunsAreAnArray(t *testing.T) {
	for seed := range uint64(60) {
		rng := rand.New(rand.NewPCG(seed, 23))
		var n runs
		var want [chunkSlots]uint32
		numbers, next := 1+rng.IntN(3), 0
		for range 5000 {
			i := next % chunkSlots
			if next++; rng.IntN(4) == 0 || seed%3 == 0 {
				i = rng.IntN(int(1 + seed*30))
			}
			want[i] = uint32(rng.IntN(numbers + 1))
			n.set(i, want[i])
			if n.at(i) != want[i] {
				t.Fatalf("seed %d: number %d is %d, want %d", seed, i, n.at(i), want[i])
			}
		}
		for i := range want {
			if n.at(i) != want[i] {
				t.Fatalf("seed %d: number %d is %d, want %d", seed, i, n.at(i), want[i])
			}
		}
		for r := 1; r < len(n.list); r++ {
			if n.list[r-1].number == n.list[r].number || n.list[r-1].from >= n.list[r].from {
				t.Fatalf("seed %d: run %v is behind %v", seed, n.list[r], n.list[r-1])
			}
		}
	}
}

// What the journal knows of messages that entered one after the other takes next to nothing.
func TestRunsOfAChunkAreFew(t *testing.T) {
	var n runs
	for i := range chunkSlots {
		n.set(i, 7+uint32(i)/1500)
	}
	if len(n.list) > 3 || n.dense != nil {
		t.Errorf("%d runs, want 3 at most", len(n.list))
	}
	if got := testing.AllocsPerRun(10, func() {
		for i := range chunkSlots { // as a relocation does
			n.set(i, 9)
		}
		for i := range chunkSlots {
			n.set(i, 7+uint32(i)/1500)
		}
	}); got > 0 {
		t.Errorf("%v allocations", got)
	}
}
