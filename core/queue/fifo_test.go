package queue

import (
	"math/rand/v2"
	"slices"
	"testing"
	"unsafe"

	"github.com/curfewmq/curfew/core/slab"
)

func removeSeq(f *fifo, seq uint64) {
	c, i, _ := f.locate(seq)
	f.remove(c, i)
}

func freeChunks(f *fifo) {
	for i := range f.chunks {
		f.chunks[i].free()
	}
}

// A message that outlives many others does not hold anything for the sake of
// those.
func TestGapsTakeNoMemory(t *testing.T) {
	var f fifo
	add := func() uint64 { return f.push(slot{}, 0) }
	take := func(seq uint64) {
		f.take(f.slot(seq))
		removeSeq(&f, seq)
	}
	before := slab.Used()
	old := []uint64{add()}
	for i := range 300 / fewer {
		for range 20 * chunkSlots {
			take(add())
		}
		if i%100 == 50 {
			old = append(old, add())
		}
	}
	if len(f.chunks) > 200 || cap(f.chunks) > 400 {
		t.Errorf("%d messages are in %d chunks of %d", len(old), len(f.chunks), cap(f.chunks))
	}
	if held := slab.Used() - before; held > 2*int64(chunkSlots*unsafe.Sizeof(slot{})) {
		t.Errorf("%d messages hold %d bytes", len(old), held)
	}
	for _, want := range old {
		if got := f.peek(); got != want {
			t.Fatalf("got message %d, want %d", got, want)
		}
		take(want)
	}
	if freeChunks(&f); slab.Used() != before {
		t.Errorf("%d bytes are still held", slab.Used()-before)
	}
}

// Whatever comes and goes in whatever order, with numbers left out, what is there
// is found.
func TestChunksAreFound(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 1))
	var f fifo
	var there []uint64
	for range 200 {
		for range rng.IntN(30) {
			f.skipTo(f.next + rng.Uint64N(1<<rng.IntN(20)))
			for range rng.IntN(20) {
				there = append(there, f.push(slot{offset: uint32(f.next)}, 0))
			}
		}
		first, n := 0, len(there)
		if n > 0 && rng.IntN(2) == 0 {
			first = rng.IntN(n)
		}
		for range rng.IntN(n + 1) {
			i := min(first+rng.IntN(10), len(there)-1)
			f.take(f.slot(there[i]))
			removeSeq(&f, there[i])
			there = slices.Delete(there, i, i+1)
		}
		for i, seq := range there {
			if s := f.slot(seq); s == nil || s.offset != uint32(seq) || !s.is(stateReady) {
				t.Fatalf("message %d of %d is not what is found under its number %d", i, len(there), seq)
			}
			if gone := f.slot(seq - 1); gone != nil && gone.is(stateReady) && !slices.Contains(there, seq-1) {
				t.Fatalf("message %d is found, which is gone", seq-1)
			}
		}
		if len(there) > 0 && f.peek() != there[0] {
			t.Fatalf("the first message is %d, want %d", f.peek(), there[0])
		}
	}
	freeChunks(&f)
}
