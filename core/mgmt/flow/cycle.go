package flow

import (
	"slices"

	"github.com/curfewmq/curfew/sdk/hook"
)

// Cycle is a set of queues between which dead letters can circulate.
type Cycle struct {
	Queues []string // sorted
	// Rejected means that rejected messages leave one of the queues. They circulate as long
	// as consumers reject them. All other messages are dropped when they return to a queue
	// where they died, which ends their cycle.
	Rejected bool
	// Slowed means that messages wait somewhere in the cycle: for a deadline, or while they are held.
	Slowed bool
	// Certain means that all of the cycle's edges are certain.
	Certain bool
	// Rate is the lowest known rate of the cycle's edges, per second. Known means that there is one.
	Rate  float64
	Known bool
}

// cycles returns the strongly connected components that have an edge, in the order of their first names.
func cycles(edges []Edge, nodes map[string]*Node) []Cycle {
	t := tarjan{next: map[string][]string{}, index: map[string]int{}, low: map[string]int{}, onStack: map[string]bool{}}
	for i := range edges {
		if e := &edges[i]; e.To != "" {
			t.next[e.From] = append(t.next[e.From], e.To)
		}
	}
	of := map[string]int{} // component by queue
	for _, e := range edges {
		if _, done := t.index[e.From]; !done {
			t.visit(e.From)
		}
	}
	for i, c := range t.components {
		for _, q := range c {
			of[q] = i + 1
		}
	}
	found := map[int]*Cycle{}
	for i := range edges {
		e := &edges[i]
		n := of[e.From]
		if e.To == "" || n == 0 || of[e.To] != n {
			continue
		}
		c := found[n]
		if c == nil {
			c = &Cycle{Queues: t.components[n-1], Certain: true}
			slices.Sort(c.Queues)
			found[n] = c
		}
		c.add(e, nodes[e.From])
	}
	var all []Cycle
	for _, c := range found {
		all = append(all, *c)
	}
	slices.SortFunc(all, func(a, b Cycle) int { return slices.Compare(a.Queues, b.Queues) })
	return all
}

func (c *Cycle) add(e *Edge, from *Node) {
	c.Rejected = c.Rejected || e.Reason == hook.ReasonRejected
	c.Slowed = c.Slowed || e.Reason == hook.ReasonExpired || e.Holder != "" || from != nil && from.Held > 0
	c.Certain = c.Certain && e.Certain
	switch {
	case !e.Known:
	case c.Known:
		c.Rate = min(c.Rate, e.Rate)
	default:
		c.Rate, c.Known = e.Rate, true
	}
}

// tarjan finds strongly connected components.
type tarjan struct {
	next       map[string][]string
	index, low map[string]int
	stack      []string
	onStack    map[string]bool
	components [][]string
}

// visit visits a queue and all queues that it leads to. It has its own stack, because chains of queues may be long.
func (t *tarjan) visit(start string) {
	type frame struct {
		queue string
		at    int // of its successors
	}
	frames := []frame{{queue: start}}
	t.open(start)
	for len(frames) > 0 {
		f := &frames[len(frames)-1]
		if f.at < len(t.next[f.queue]) {
			to := t.next[f.queue][f.at]
			f.at++
			switch _, known := t.index[to]; {
			case !known:
				t.open(to)
				frames = append(frames, frame{queue: to})
			case t.onStack[to]:
				t.low[f.queue] = min(t.low[f.queue], t.index[to])
			}
			continue
		}
		q := f.queue
		frames = frames[:len(frames)-1]
		if len(frames) > 0 {
			before := frames[len(frames)-1].queue
			t.low[before] = min(t.low[before], t.low[q])
		}
		t.close(q)
	}
}

// open numbers a queue that is seen for the first time.
func (t *tarjan) open(q string) {
	t.index[q], t.low[q] = len(t.index), len(t.index)
	t.stack, t.onStack[q] = append(t.stack, q), true
}

// close takes a component from the stack, if q was its first queue that was seen.
func (t *tarjan) close(q string) {
	if t.low[q] != t.index[q] {
		return
	}
	from := len(t.stack) - 1
	for t.stack[from] != q { // from behind: the stack may be long
		from--
	}
	c := slices.Clone(t.stack[from:])
	for _, member := range c {
		t.onStack[member] = false
	}
	t.stack = t.stack[:from]
	t.components = append(t.components, c)
}
