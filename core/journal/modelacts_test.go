package journal

import (
	"fmt"
	"math/rand/v2"
	"slices"
)

// mostOfTurn is how many bytes a turn commits at most.
const mostOfTurn = 1500

// waits does what a queue does that has no space for more: it settles, and moves what it can.
func (w *owner) waits(rng *rand.Rand) {
	n := len(w.ids)
	if n == 0 {
		return
	}
	if rng.IntN(4) == 0 && w.s.o.Space.Moves(mostOfTurn) {
		from := rng.IntN(n)
		w.next++
		w.dead.Store(w.ids[from], w.next)
		size := int(w.size[w.ids[from]])
		w.commit(w.write(w.settle(nil, from), w.s.Extent(), w.next, max(0, size-10)))
		w.ids = append(w.ids, w.next)
		return
	}
	w.commit(w.settle(nil, rng.IntN(n)))
}

// act does one thing that a queue might do.
func (w *owner) act(rng *rand.Rand, many int, old uint32) {
	w.goOn()
	n := len(w.ids)
	if !w.s.Grant(mostOfTurn) {
		w.waits(rng)
		return
	}
	defer w.s.Return(mostOfTurn)
	switch {
	case n > 8 && rng.IntN(12) == 0:
		w.several(rng)
	case rng.IntN(2*many) >= n && rng.IntN(10) == 0:
		w.enqueue(old, rng.IntN(60)) // in a turn that began long ago
	case rng.IntN(2*many) >= n:
		var tn *turn
		for in := w.s.Extent(); tn == nil || rng.IntN(3) == 0; {
			w.next++
			tn = w.write(tn, in, w.next, rng.IntN(60))
			w.ids = append(w.ids, w.next)
		}
		w.commit(tn)
	case rng.IntN(4) == 0: // dead-letter
		from := rng.IntN(n)
		w.next++
		w.dead.Store(w.ids[from], w.next)
		w.commit(w.write(w.settle(nil, from), w.s.Extent(), w.next, rng.IntN(60)))
		w.ids = append(w.ids, w.next)
	default: // mostly the oldest
		tn := w.settle(nil, min(rng.IntN(n), rng.IntN(n), rng.IntN(n)))
		if n > 1 && rng.IntN(4) == 0 {
			w.change(tn, rng.IntN(n-1))
		}
		if n > 1 && rng.IntN(4) == 0 {
			i := rng.IntN(n - 1)
			w.change(tn, i)
			w.grow(tn, i, 1+rng.Int64N(4))
		}
		if n > 1 && rng.IntN(4) == 0 {
			w.mark(tn, w.ids[rng.IntN(n-1)]+1)
		}
		w.commit(tn)
	}
}

// goOn accounts for what has arrived.
func (w *owner) goOn() {
	w.mu.Lock()
	arrived := w.arrived
	w.arrived = nil
	w.mu.Unlock()
	for _, a := range arrived {
		tn := new(turn)
		if _, ok := w.extent[a.from]; !ok {
			panic("gone")
		}
		tn.live = append(tn.live, Delta{Extent: w.extent[a.from], Records: -1, Bytes: -w.size[a.from]})
		if a.remove {
			fmt.Fprintf(&tn.ops, "-%d;", a.from)
		}
		w.forget(a.from)
		delete(w.held, a.from)
		w.commit(tn)
	}
}

// several does something with several records.
func (w *owner) several(rng *rand.Rand) {
	n := 1 + rng.IntN(4)
	at := rng.IntN(len(w.ids) - n)
	tn := new(turn)
	switch rng.IntN(6) {
	case 0: // expire
		for range n {
			w.settle(tn, at)
		}
	case 1: // dead-letter several to another queue
		w.moveEach(n, func(tn *turn, in uint32) {
			w.next++
			w.dead.Store(w.ids[at], w.next)
			w.write(w.settle(tn, at), in, w.next, rng.IntN(60))
			w.ids = append(w.ids, w.next)
		})
		return
	case 2, 3: // redrive, or dead-letter at least once
		remove := rng.IntN(2) == 0
		w.moveEach(n, func(tn *turn, in uint32) {
			id := w.ids[at]
			w.ids = slices.Delete(w.ids, at, at+1)
			w.held[id] = true
			w.next++
			w.write(tn, in, w.next, rng.IntN(60))
			w.ids = append(w.ids, w.next)
			if !remove {
				w.dead.Store(id, w.next)
				fmt.Fprintf(&tn.ops, "_%d;", id)
			}
			tn.arrivals = append(tn.arrivals, arrival{id, remove})
		})
		return
	case 4: // a transaction in two queues that also settles
		for range 2 {
			in := w.s.Extent()
			for range n {
				w.next++
				w.write(tn, in, w.next, rng.IntN(60))
				w.ids = append(w.ids, w.next)
			}
			w.settle(tn, at)
			if i := rng.IntN(len(w.ids)); rng.IntN(2) == 0 {
				w.change(tn, i)
				w.grow(tn, i, 3)
			}
		}
	case 5:
		if w.ledger == nil {
			w.purge(tn, at, n)
			return
		}
	}
	w.commit(tn)
}

// purge settles n records as a queue does that drops all it has: what they free is accounted for once that is durable.
func (w *owner) purge(tn *turn, at, n int) {
	for _, id := range w.ids[at : at+n] {
		fmt.Fprintf(&tn.ops, "_%d;", id)
		w.held[id] = true
		tn.arrivals = append(tn.arrivals, arrival{id, false})
	}
	w.ids = slices.Delete(w.ids, at, at+n)
	w.s.Commit([]byte(tn.ops.String()), nil, &model{w, tn.ops.String(), tn.arrivals})
}

// change changes the record at a place of ids.
func (w *owner) change(tn *turn, i int) {
	w.next++
	op := fmt.Sprintf("=%d,%d;", w.ids[i], w.next)
	tn.ops.WriteString(op)
	w.ops[w.ids[i]] = changed(w.ops[w.ids[i]], op)
}

// moveEach moves several records in one commit.
func (w *owner) moveEach(n int, one func(tn *turn, in uint32)) {
	tn, in := new(turn), w.s.Extent()
	for range n {
		one(tn, in)
	}
	w.commit(tn)
}

// mark marks the records below id, as a queue marks what was delivered.
func (w *owner) mark(tn *turn, id int) {
	if w.marks && id > w.marked {
		w.marked = id
		fmt.Fprintf(&tn.ops, "^%d;", id)
	}
}

// grow makes the record at a place of ids longer.
func (w *owner) grow(tn *turn, i int, by int64) {
	id := w.ids[i]
	w.grown[id] += by
	w.size[id] += by
	tn.live = append(tn.live, Delta{Extent: w.extent[id], Bytes: by})
}
