package mgmt

import (
	"slices"

	"github.com/curfewmq/curfew/core/mgmt/rows"
)

// flowed is the scope of the graph of dead letters.
var flowed = scope{name: "all nodes, merged", part: func(c *request) { c.query.columns, c.query.needs = nil, nil }, answer: func(c *request, e *endpoint) error {
	limit, _ := c.flowLimit() // which checkFlow has checked
	return objects(func(parts []object) object { return mergeFlow(parts, limit) }).answer(c, e)
}}

// mergeFlow joins graphs. No vhost is in two of them. If there are too many edges, the busiest stay.
func mergeFlow(parts []object, limit int) object {
	o := parts[0]
	left, _ := valueOf(o, "left_out").(object)
	var nodes, edges, cycles []object
	for i, other := range parts {
		nodes = append(nodes, joinObjects(maxFlowEdges, valueOf(other, "nodes"))...)
		edges = append(edges, joinObjects(maxFlowEdges, valueOf(other, "edges"))...)
		cycles = append(cycles, joinObjects(maxFlowEdges, valueOf(other, "cycles"))...)
		if i == 0 {
			continue
		}
		set(o, "at", earlierOf(valueOf(o, "at"), valueOf(other, "at")))
		set(o, "complete", valueOf(o, "complete") == true && valueOf(other, "complete") == true)
		if more, ok := valueOf(other, "left_out").(object); ok {
			left, _ = addValues(left, more).(object)
		}
	}
	if out := len(edges) - limit; out > 0 {
		edges = busiestEdges(edges, limit)
		nodes = slices.DeleteFunc(nodes, unlinked(edges))
		set(left, "edges", addValues(valueOf(left, "edges"), out))
	}
	set(o, "nodes", nonNil(nodes))
	set(o, "edges", nonNil(edges))
	set(o, "cycles", nonNil(cycles))
	set(o, "left_out", left)
	return o
}

// busiestEdges returns the edges with the highest rates.
func busiestEdges(edges []object, most int) []object {
	slices.SortStableFunc(edges, func(x, y object) int { return rows.Compare(valueOf(y, "rate"), valueOf(x, "rate")) })
	return edges[:most]
}

// unlinked returns a function that reports whether none of the edges leads from or to a node.
func unlinked(edges []object) func(object) bool {
	linked := map[[2]string]bool{}
	for _, e := range edges {
		linked[[2]string{textIn(e, "vhost"), textIn(e, "from")}] = true
		linked[[2]string{textIn(e, "vhost"), textIn(e, "to")}] = true
	}
	return func(n object) bool { return !linked[[2]string{textIn(n, "vhost"), textIn(n, "queue")}] }
}

func nonNil(all []object) []object {
	if all == nil {
		return []object{}
	}
	return all
}
