package bench

import (
	"context"
	"math/rand/v2"
	"testing"
)

func TestWindowSettles(t *testing.T) {
	type op struct {
		tag            uint64
		multiple, nack bool
	}
	cases := []struct {
		name        string
		ops         []op
		outstanding uint64
		room        uint64
		nacked      uint64
	}{
		{name: "nothing yet", outstanding: 8, room: 0},
		{name: "in order", ops: []op{{tag: 1}, {tag: 2}}, outstanding: 6, room: 2},
		{name: "multiple", ops: []op{{tag: 5, multiple: true}}, outstanding: 3, room: 5},
		{name: "all so far", ops: []op{{tag: 0, multiple: true}}, outstanding: 0, room: 8},
		{name: "out of order holds the table", ops: []op{{tag: 2}, {tag: 8}}, outstanding: 6, room: 0},
		{name: "the gap closes", ops: []op{{tag: 2}, {tag: 3}, {tag: 1}}, outstanding: 5, room: 3},
		{name: "multiple over singles", ops: []op{{tag: 2}, {tag: 6}, {tag: 5, multiple: true}}, outstanding: 2, room: 6},
		{name: "twice", ops: []op{{tag: 1}, {tag: 1}, {tag: 3}, {tag: 3}, {tag: 1, multiple: true}}, outstanding: 6, room: 1},
		{name: "nacks", ops: []op{{tag: 1}, {tag: 4, multiple: true, nack: true}, {tag: 6, nack: true}}, outstanding: 3, room: 4, nacked: 4},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			w := newWindow(8)
			w.send(8, 0)
			for _, o := range c.ops {
				if err := w.settle(o.tag, o.multiple, o.nack, 1); err != nil {
					t.Fatal(err)
				}
			}
			if w.outstanding() != c.outstanding || w.room() != c.room || w.nacked != c.nacked {
				t.Errorf("outstanding %d room %d nacked %d, want %d %d %d", w.outstanding(), w.room(), w.nacked, c.outstanding, c.room, c.nacked)
			}
		})
	}
}

// If each message is a separate write, the room from one confirm is used at once.
func TestGateWaitsForABatch(t *testing.T) {
	cases := []struct{ limit, batch, after int64 }{
		{limit: 10, batch: 1, after: 1},
		{limit: 100, batch: 64, after: 25},
		{limit: 1000, batch: 64, after: 64},
		{limit: 1, batch: 64, after: 1},
	}
	for _, c := range cases {
		g := newGate(c.limit, c.batch)
		g.send(c.limit, 0)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		for n := range c.after {
			if room, err := g.room(ctx); err == nil {
				t.Fatalf("%+v: room for %d after %d confirms", c, room, n)
			}
			if err := g.settle([]confirm{{tag: uint64(n + 1)}}, 1); err != nil {
				t.Fatal(err)
			}
		}
		if room, err := g.room(t.Context()); room != c.after || err != nil {
			t.Errorf("%+v: room %d, error %v", c, room, err)
		}
	}
}

func TestWindowRefusesWhatWasNeverPublished(t *testing.T) {
	w := newWindow(8)
	w.send(3, 0)
	check(t, w.settle(4, false, false, 1), "confirmed message 4, 3 were published")
	check(t, w.settle(1<<63, true, false, 1), "3 were published")
	check(t, w.settle(0, false, false, 1), "confirmed message 0")
}

func TestWindowMeasuresWholeWrites(t *testing.T) {
	w := newWindow(8)
	w.send(2, 100)
	w.send(3, 200)
	for _, tag := range []uint64{1, 3, 2} {
		if err := w.settle(tag, false, false, 1000); err != nil {
			t.Fatal(err)
		}
	}
	if w.latency.n != 2 || w.latency.min != 900 {
		t.Errorf("after the first write: n %d min %d, want 2 and 900", w.latency.n, w.latency.min)
	}
	if err := w.settle(5, true, false, 1200); err != nil {
		t.Fatal(err)
	}
	if w.latency.n != 5 || w.latency.max != 1000 {
		t.Errorf("after both: n %d max %d, want 5 and 1000", w.latency.n, w.latency.max)
	}
}

// The window agrees with a set of numbers, whatever the order of confirms.
func TestWindowAgreesWithASet(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	for range 200 {
		w := newWindow(1 + rng.Int64N(40))
		open := make(map[uint64]bool)
		for range 300 {
			if n := w.room(); n > 0 {
				n = 1 + rng.Uint64N(n)
				for i := range n {
					open[w.sent+1+i] = true
				}
				w.send(n, 0)
			}
			tag, multiple := 1+rng.Uint64N(w.sent), rng.IntN(4) == 0
			if err := w.settle(tag, multiple, false, 0); err != nil {
				t.Fatal(err)
			}
			delete(open, tag)
			for k := range open {
				if multiple && k <= tag {
					delete(open, k)
				}
			}
			if w.outstanding() != uint64(len(open)) || w.outstanding() > w.limit {
				t.Fatalf("outstanding %d of at most %d, want %d", w.outstanding(), w.limit, len(open))
			}
		}
	}
}
