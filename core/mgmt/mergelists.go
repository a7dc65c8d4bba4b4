package mgmt

import (
	"bufio"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/curfewmq/curfew/core/replicas"
	"github.com/curfewmq/curfew/core/report"
)

// A list of what lives at some node is merged by the node that is asked. Each node sends its part in the order that the client has asked for,
// and of a page no more than can be on it.
//
// A page far from the beginning could be on any node. Instead of all rows before it, nodes send what these are sorted by, equal ones as one;
// from that it is known which rows of each node are on the page, and just those are asked for. A list that changes between both questions may
// show an item on two pages or on none, as it may when pages are asked for one after the other.

// deepPage is the last item up to which nodes send all rows until the end of a page.
const deepPage = 500

// Headers of requests for parts of lists, and of parts.
const (
	rowsHeader     = "Curfew-Rows"     // the version of rows that the other node reads; older nodes read JSON
	keysHeader     = "Curfew-Keys"     // what rows are sorted by is asked for
	rangeHeader    = "Curfew-Range"    // these rows are asked for: "FROM-TO", without TO
	totalHeader    = "Curfew-Total"    // rows that the node has
	filteredHeader = "Curfew-Filtered" // those that pass the filter
)

// gathered is the scope of lists of what lives at some node.
var gathered = scope{name: "all nodes, merged", part: func(*request) {}, answer: func(c *request, e *endpoint) error {
	g, err := c.gather(question{long: true, headers: func(string) map[string]string {
		h := map[string]string{rowsHeader: report.Version}
		if c.isDeep() {
			h[keysHeader] = "1"
		}
		return h
	}})
	if err != nil {
		return err
	}
	g.settle()
	if err := g.checkServed(); err != nil {
		return err
	}
	g.counted = c.isDeep()
	return e.do(c)
}}

// isDeep reports whether the page is far from the beginning.
func (c *request) isDeep() bool { return c.query.page > 1 && c.query.page > c.api.deep/c.query.size }

// asksKeys reports whether a request for a part asks what the rows are sorted by.
func (c *request) asksKeys() bool { return c.part && c.r.Header.Get(keysHeader) != "" }

// asksRows reports whether a request for a part asks for rows, not for JSON.
func (c *request) asksRows() bool { return c.r.Header.Get(rowsHeader) == report.Version }

// sendPart answers with a part of a list.
func (l *listing[R, T]) sendPart(c *request) error {
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
		next = report.Counted(next)
	}
	if !c.asksRows() {
		l.sendOlder(c, next)
		return nil
	}
	h.Set("Content-Type", report.Type)
	out := bufio.NewWriterSize(timedWriter{c.w, partTimeout}, bufferSize)
	if report.Write[T](out, func(yield func(report.Row) bool) {
		for r, _ := next(); r != nil; r, _ = next() {
			if own, ok := r.Value.(*R); ok {
				r.Value = l.row(*own)
			}
			if !yield(*r) {
				return
			}
		}
	}) == nil {
		_ = out.Flush() // if the other node is gone, the server notices
	}
	return nil
}

func readRange(text string) (r report.Range, err error) {
	from, to, _ := strings.Cut(text, "-")
	var bad error
	r.From, err = strconv.Atoi(from)
	if r.To, bad = strconv.Atoi(to); err != nil || bad != nil || r.From < 0 || r.To < r.From {
		return r, badRequest("header %s: %.40q is not FROM-TO", rangeHeader, text)
	}
	return r, nil
}

// run begins to read a part of a list, with read or from JSON. Rows have natural keys if natural is set.
func (p *part) run(c *request, read func(io.Reader) func() (*report.Row, error), natural bool) (r *report.Run, err error) {
	r = &report.Run{Node: p.node.Name}
	r.Filtered, _ = strconv.Atoi(p.header.Get(filteredHeader)) // 0 without one
	r.Total, _ = strconv.Atoi(p.header.Get(totalHeader))
	r.Total = max(r.Total, r.Filtered)
	if p.header.Get("Content-Type") == report.Type {
		r.Next = read(p.reader())
		return r, nil
	}
	r.Next, err = p.readOlder(&older{sort: c.query.sort, natural: natural, counted: c.gathering.counted})
	return r, err
}

// broken returns the failure of a list whose parts cannot be read to the end; nil if they can.
func (g *gathering) broken(m *report.Merge) error {
	if m.Err == nil {
		return nil
	}
	g.logMissing(replicas.Node{Name: m.Broken.Node}, m.Err)
	return g.errUnreachable([]string{m.Broken.Node}, ": its part of the list broke off")
}

// askRanges asks those other nodes for some of their rows that have some, and puts these in the place of their parts.
func (g *gathering) askRanges(ranges map[string]report.Range) {
	g.holding.closeStreams()
	q := &question{merged: true, long: true, headers: g.withLost(func(node string) map[string]string {
		return map[string]string{rowsHeader: report.Version, rangeHeader: fmt.Sprintf("%d-%d", ranges[node].From, ranges[node].To)}
	})}
	var parts []part
	var others []replicas.Node
	for i := range g.parts {
		switch r := ranges[g.parts[i].node.Name]; {
		case g.api.isSelf(&g.parts[i].node):
			parts = append(parts, g.parts[i])
		case r.To > r.From:
			others = append(others, g.parts[i].node)
		}
	}
	theirs, missing := g.askNodes(others, q)
	g.missing = append(g.missing, missing...)
	g.parts, g.counted = g.inOrder(append(parts, theirs...)), false
}
