package flow

import (
	"cmp"
	"slices"
	"strings"
)

// Component is a connected part of the graph.
type Component struct {
	VHost  string
	Nodes  []*Node // by name
	Edges  []*Edge // in the graph's order
	Cycles []*Cycle

	leads bool // some dead letters have a target; else messages are only dropped
	rate  float64
	count uint64
}

// Components returns the connected parts of a vhost's graph.
func (g *Graph) Components(vhost string) []*Component {
	u := union{}
	for i := range g.Edges {
		if e := &g.Edges[i]; e.To != "" {
			u.join(e.From, e.To)
		}
	}
	of, all := map[string]*Component{}, []*Component(nil)
	part := func(queue string) *Component {
		root := u.root(queue)
		c := of[root]
		if c == nil {
			c = &Component{VHost: vhost}
			of[root], all = c, append(all, c)
		}
		return c
	}
	for i := range g.Nodes {
		c := part(g.Nodes[i].Queue)
		c.Nodes = append(c.Nodes, &g.Nodes[i])
	}
	for i := range g.Edges {
		e := &g.Edges[i]
		c := part(e.From)
		c.Edges = append(c.Edges, e)
		c.leads = c.leads || e.Target != nil
		c.rate, c.count = c.rate+e.Rate, c.count+e.Count
	}
	for i := range g.Cycles {
		c := part(g.Cycles[i].Queues[0])
		c.Cycles = append(c.Cycles, &g.Cycles[i])
	}
	return all
}

// has reports whether a queue's name contains a text, in upper or lower case.
func (c *Component) has(text string) bool {
	return slices.ContainsFunc(c.Nodes, func(n *Node) bool { return strings.Contains(strings.ToLower(n.Queue), text) })
}

// compare orders components: those with targets first, then the busiest.
func (c *Component) compare(o *Component) int {
	if c.leads != o.leads {
		if c.leads {
			return -1
		}
		return 1
	}
	return cmp.Or(
		cmp.Compare(o.rate, c.rate), cmp.Compare(o.count, c.count), cmp.Compare(len(o.Edges), len(c.Edges)),
		strings.Compare(c.VHost, o.VHost), strings.Compare(c.first(), o.first()),
	)
}

func (c *Component) first() string {
	if len(c.Nodes) == 0 {
		return ""
	}
	return c.Nodes[0].Queue
}

// Busiest chooses components with a queue whose name contains text, the busiest first, up to edges edges in all. If the first component
// alone has more, only its busiest edges are kept. leftComponents and leftEdges count the rest.
func Busiest(all []*Component, text string, edges int) (chosen []*Component, leftComponents, leftEdges int) {
	text = strings.ToLower(text)
	all = slices.DeleteFunc(slices.Clone(all), func(c *Component) bool { return text != "" && !c.has(text) })
	slices.SortFunc(all, (*Component).compare)
	for _, c := range all {
		switch {
		case len(c.Edges) <= edges:
			chosen = append(chosen, c)
			edges -= len(c.Edges)
		case len(chosen) == 0:
			leftEdges += len(c.Edges) - edges
			chosen = append(chosen, c.busiest(text, edges))
			edges = 0
		default:
			leftComponents++
			leftEdges += len(c.Edges)
		}
	}
	return chosen, leftComponents, leftEdges
}

// busiest returns the component with its busiest edges; edges of queues whose names contain text come first.
func (c *Component) busiest(text string, most int) *Component {
	wanted := func(e *Edge) bool {
		return text != "" && (strings.Contains(strings.ToLower(e.From), text) || strings.Contains(strings.ToLower(e.To), text))
	}
	sorted := slices.Clone(c.Edges)
	slices.SortStableFunc(sorted, func(a, b *Edge) int {
		if x, y := wanted(a), wanted(b); x != y {
			if x {
				return -1
			}
			return 1
		}
		return cmp.Or(cmp.Compare(b.Rate, a.Rate), cmp.Compare(b.Count, a.Count))
	})
	some := &Component{VHost: c.VHost, Edges: sorted[:most]}
	named := map[string]bool{}
	for _, e := range some.Edges {
		named[e.From], named[e.To] = true, true
	}
	for _, n := range c.Nodes {
		if named[n.Queue] {
			some.Nodes = append(some.Nodes, n)
		}
	}
	for _, cycle := range c.Cycles {
		if slices.ContainsFunc(cycle.Queues, func(q string) bool { return named[q] }) {
			some.Cycles = append(some.Cycles, cycle)
		}
	}
	return some
}

// union finds connected queues: it maps each queue to a parent, up to one without a parent.
type union map[string]string

func (u union) root(q string) string {
	for {
		parent, ok := u[q]
		if !ok {
			return q
		}
		if above, ok := u[parent]; ok { // the path gets shorter with each call
			u[q] = above
		}
		q = parent
	}
}

func (u union) join(a, b string) {
	if x, y := u.root(a), u.root(b); x != y {
		u[x] = y
	}
}
