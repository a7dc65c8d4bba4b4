package queue

import "slices"

// runs is an array of chunkSlots numbers, most of which equal the number before: for
// example, the extent of each message of a chunk. All are 0 at first.
type runs struct {
	list  []run    // in order; the first begins at 0
	dense []uint32 // the numbers, once there are many runs
}

// run is equal numbers from an index on, up to the next run.
type run struct{ from, number uint32 }

// maxRuns is the largest number of runs, which take half the memory of the numbers.
const maxRuns = chunkSlots / 4

func (n *runs) at(i int) uint32 {
	switch {
	case n.dense != nil:
		return n.dense[i]
	case len(n.list) == 0:
		return 0
	}
	return n.list[n.find(i)].number
}

// find returns the index of the run that the number with an index is in.
func (n *runs) find(i int) int {
	if last := len(n.list) - 1; n.list[last].from <= uint32(i) {
		return last // as it mostly is
	}
	r, found := slices.BinarySearchFunc(n.list, uint32(i), func(r run, i uint32) int { return int(r.from) - int(i) })
	if !found {
		r--
	}
	return r
}

func (n *runs) set(i int, number uint32) {
	switch {
	case n.dense != nil:
		n.dense[i] = number
		return
	case n.at(i) == number:
		return
	case len(n.list) == 0:
		n.list = append(n.list, run{})
	}
	if n.replace(n.find(i), i, number); len(n.list) > maxRuns {
		n.spread()
	}
}

// replace changes the number with index i, which is in run r and has another number so
// far.
func (n *runs) replace(r, i int, number uint32) {
	at, was := uint32(i), n.list[r]
	begins, ends := was.from == at, r+1 < len(n.list) && n.list[r+1].from == at+1
	joinsBefore := begins && r > 0 && n.list[r-1].number == number
	joinsBehind := ends && n.list[r+1].number == number
	from, to := r, r+1 // the runs that others replace
	by := make([]run, 0, 3)
	if !begins {
		by = append(by, was)
	}
	if !joinsBefore {
		by = append(by, run{at, number})
	}
	if joinsBehind {
		to++
	}
	if !ends {
		by = append(by, run{at + 1, was.number})
	}
	n.list = slices.Replace(n.list, from, to, by...)
}

// spread replaces the runs by their numbers.
func (n *runs) spread() {
	n.dense = make([]uint32, chunkSlots)
	for r, of := range n.list {
		to := uint32(chunkSlots)
		if r+1 < len(n.list) {
			to = n.list[r+1].from
		}
		for i := of.from; i < to; i++ {
			n.dense[i] = of.number
		}
	}
	n.list = nil
}
