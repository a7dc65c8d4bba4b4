package route

import "github.com/curfewmq/curfew/sdk/hook"

// Router matches the messages of an exchange instead of its table. The table calls it while adding or removing a binding.
type Router[D comparable] interface {
	// Bind adds a binding to the destination with this number.
	Bind(n hook.Destination, b Binding[D])
	// Unbind removes a binding.
	Unbind(n hook.Destination, b Binding[D])
}

// NewPlugin returns an empty table of kind [Plugin] for an exchange with this router.
func NewPlugin[D comparable](r Router[D]) *Table[D] {
	t := New[D](Plugin)
	t.numbers.router = r
	return t
}

// numbering numbers the destinations of an exchange, so that its router can name them and they can be looked up without a map. A number is
// reused after the last binding to its destination has been removed. Without a router, nothing is numbered.
type numbering[D comparable] struct {
	router       Router[D]
	destinations []numbered[D] // by number
	free         []hook.Destination
}

type numbered[D comparable] struct {
	destination D
	bound       bool
}

// add numbers the destination of a linked binding, and passes the binding to the router.
func (x *numbering[D]) add(b *binding[D]) {
	if x.router == nil {
		return
	}
	if b.next != nil { // the destination has other bindings
		b.slot = b.next.slot
	} else {
		b.slot = int(x.take(b.destination))
	}
	x.router.Bind(hook.Destination(b.slot), b.export())
}

// remove removes a binding from the router. more reports that its destination has other bindings.
func (x *numbering[D]) remove(b *binding[D], more bool) {
	if x.router == nil {
		return
	}
	n := hook.Destination(b.slot)
	x.router.Unbind(n, b.export())
	if !more {
		x.destinations[n] = numbered[D]{}
		x.free = append(x.free, n)
	}
}

// take gives d a number.
func (x *numbering[D]) take(d D) hook.Destination {
	if last := len(x.free) - 1; last >= 0 {
		n := x.free[last]
		x.free = x.free[:last]
		x.destinations[n] = numbered[D]{d, true}
		return n
	}
	x.destinations = append(x.destinations, numbered[D]{d, true})
	return hook.Destination(len(x.destinations) - 1)
}

// Translate appends to dst the destinations with these numbers, and reports whether there are any. It skips destinations that are already in dst,
// and counts numbers without a destination. Like Match, it may run concurrently.
func (t *Table[D]) Translate(dst []D, numbers []hook.Destination) (_ []D, matched bool, invalid int) {
	g := collector[D]{dst: dst, seenSets: &t.seenSets}
	all := t.numbers.destinations
	for _, n := range numbers {
		if n < 0 || int(n) >= len(all) || !all[n].bound {
			invalid++
			continue
		}
		g.add(all[n].destination)
	}
	return g.finish(), g.matched, invalid
}
