package mgmt

import (
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/curfewmq/curfew/core/mgmt/jsonobj"
	"github.com/curfewmq/curfew/core/mgmt/rows"
	"github.com/curfewmq/curfew/core/replicas"
)

// The asked node merges the list of objects that live at some node. Each other node sends its part, a list in JSON, in the order that the
// client has asked for. For a page, a node sends at most as many rows as the page and the pages before it have.
//
// The rows of a page far from the beginning could be on any node. Instead of all rows before it, nodes send their sort keys, and equal keys
// as one. From these the asked node knows which rows of each node are on the page, and asks for just these rows. If the list changes
// between the two questions, an item may be on two pages or on none, as it may when a client asks for one page after another.

// deepPage is the last item up to which nodes send all rows until the end of a page.
const deepPage = 500

// Headers of requests for parts of lists, and of parts.
const (
	keysHeader     = "Curfew-Keys"     // only the sort keys of rows are asked for
	rangeHeader    = "Curfew-Range"    // these rows are asked for: "FROM-TO", without TO
	totalHeader    = "Curfew-Total"    // rows that the node has
	filteredHeader = "Curfew-Filtered" // rows of the node that pass the filter
)

// gathered is the scope of lists of objects that live at some node.
var gathered = together("all nodes, merged", unchangedPart, func(c *request, e *endpoint) error {
	g, err := c.api.nodes.gather(c, question{long: true, keys: c.isDeep()})
	if err != nil {
		return err
	}
	g.settle()
	if err := g.checkServed(); err != nil {
		return err
	}
	return e.do(c)
})

// isDeep reports whether the page is far from the beginning.
func (c *request) isDeep() bool {
	return c.query.page > 1 && c.query.page > c.api.nodes.deep/c.query.size
}

// asksKeys reports whether a request for a part asks for the sort keys of its rows only.
func (c *request) asksKeys() bool { return c.part && c.r.Header.Get(keysHeader) != "" }

// sendPart answers with a part of a list, or with the sort keys of its rows: [{"n": 3, "key": …, "natural": …}, …], where n is the number
// of rows with the same keys.
func (l *listing[T]) sendPart(c *request) error {
	h := c.w.Header()
	h.Set(totalHeader, strconv.Itoa(l.total))
	h.Set(filteredHeader, strconv.Itoa(l.filtered))
	q, from, to := &c.query, 0, len(l.items)
	if text := c.r.Header.Get(rangeHeader); text != "" {
		r, err := readRange(text)
		if err != nil {
			return err
		}
		from, to = min(r.From, to), min(r.To, to)
	} else if q.page > 0 && q.page <= to/q.size {
		to = q.page * q.size
	}
	next := l.rows(from, to)
	if c.asksKeys() {
		next = rows.Counted(next)
	}
	if q.columns != nil { // the members that decide the order are needed, too
		q.columns = append(q.columns, []string{"vhost"}, []string{"queue", "vhost"})
		if q.sort != nil {
			q.columns = append(q.columns, q.sort)
		}
	}
	c.streamObjects(func(yield func(object) bool) {
		for r, _ := next(); r != nil; r, _ = next() { // own rows can be read
			o := object{{"n", r.N}, {"key", r.Key}, {"natural", r.Natural}}
			if r.Value != nil {
				o = l.render(r)
			}
			if !yield(o) {
				return
			}
		}
	})
	return nil
}

func readRange(text string) (r rows.Range, err error) {
	from, to, _ := strings.Cut(text, "-")
	var bad error
	r.From, err = strconv.Atoi(from)
	if r.To, bad = strconv.Atoi(to); err != nil || bad != nil || r.From < 0 || r.To < r.From {
		return r, badRequest("header %s: %.40q is not FROM-TO", rangeHeader, text)
	}
	return r, nil
}

// run begins to read a part of a list. Its rows have natural keys if natural is set.
func (g *gathering) run(p *part, natural bool) (*rows.Run, error) {
	if p.rest == nil { // a part that is unusable is left out, as long as that can be known
		if _, err := jsonobj.ParseItems(p.body); err != nil {
			return nil, fmt.Errorf("list: %w", err)
		}
	}
	from := &io.LimitedReader{R: p.reader(), N: g.api.nodes.parts.longest}
	in := json.NewDecoder(from)
	if t, err := in.Token(); err != nil || t != json.Delim('[') {
		return nil, fmt.Errorf("list: begins with %v: %w", t, err)
	}
	count := func(header string) int {
		n, _ := strconv.ParseUint(p.header.Get(header), 10, 31) // 0 without one
		return int(n)
	}
	r := &rows.Run{Node: p.node.Name, Filtered: count(filteredHeader)}
	r.Total = max(count(totalHeader), r.Filtered)
	r.Next = func() (*rows.Row, error) {
		from.N = g.api.nodes.parts.longest
		if !in.More() {
			_, err := in.Token() // the end, or why there is none
			return nil, err
		}
		var raw json.RawMessage
		if err := in.Decode(&raw); err != nil {
			return nil, err
		}
		o, err := jsonobj.ParseObject(raw)
		return g.row(o, natural), err
	}
	return r, nil
}

// row returns a row of another node.
func (g *gathering) row(o object, natural bool) *rows.Row {
	if g.question.keys {
		return &rows.Row{N: int(intOf(valueOf(o, "n"))), Keys: rows.Keys{Key: valueOf(o, "key"), Natural: valueOf(o, "natural")}}
	}
	r := &rows.Row{Value: o}
	if g.query.sort != nil {
		r.Key, _ = o.Find(g.query.sort)
	}
	if natural {
		var ok bool
		if r.Natural, ok = o.Value("vhost"); !ok {
			r.Natural, _ = o.Find([]string{"queue", "vhost"})
		}
	}
	return r
}

// broken returns the failure of a list with a part that could not be read to its end; nil if there is none.
func (g *gathering) broken(m *rows.Merge) error {
	if m.Err == nil {
		return nil
	}
	g.api.nodes.logMissing(g.request, replicas.Node{Name: m.Broken.Node}, m.Err)
	return g.errUnreachable([]string{m.Broken.Node}, ": its part of the list broke off")
}

// askRanges asks the nodes that have rows of a page for these rows, and replaces their parts by them.
func (g *gathering) askRanges(ranges map[string]rows.Range) {
	g.holding.closeStreams()
	g.question.keys, g.question.ranges = false, ranges
	var parts []part
	var others []replicas.Node
	for i := range g.parts {
		switch r := ranges[g.parts[i].node.Name]; {
		case g.api.nodes.isSelf(&g.parts[i].node):
			parts = append(parts, g.parts[i])
		case r.To > r.From:
			others = append(others, g.parts[i].node)
		}
	}
	theirs, missing := g.api.nodes.askNodes(g.request, others, &g.question)
	g.missing = append(g.missing, missing...)
	g.parts = g.inOrder(append(parts, theirs...))
}
