package mgmt

import (
	"cmp"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strconv"

	"github.com/curfewmq/curfew/core/mgmt/jsonobj"
)

// lists is the scope of lists of what lives at some node. Each node sends its part in the order that the client has asked for, and of a
// page no more than can be in it. natural is the path of the member that lists are sorted by if the client does not say; without one,
// and among equals, the order is that of the nodes.
func lists(natural ...string) scope { return timelyLists(nil, natural...) }

// timelyLists is lists for those with [listing.timely].
func timelyLists(timely []string, natural ...string) scope {
	m := listMerge{natural: natural, timely: timely}
	return scope{name: "all nodes, merged", answer: m.answer, part: m.ready}
}

// listMerge merges the parts of a list.
type listMerge struct{ natural, timely []string }

// Headers of parts of lists.
const (
	totalHeader    = "Curfew-Total"    // items that the node has
	filteredHeader = "Curfew-Filtered" // those that pass the filter
)

// ready makes a request for a part: it has the members that decide its order, too.
func (m *listMerge) ready(c *request) {
	q := &c.query
	if q.columns == nil {
		return
	}
	for _, path := range [][]string{m.natural, q.sort} {
		if path != nil {
			q.columns, q.needs = append(q.columns, path), append(q.needs, path[0])
		}
	}
}

// sendPart answers with a part of a list.
func (l *listing[T]) sendPart(c *request, total int) {
	h := c.w.Header()
	h.Set(totalHeader, strconv.Itoa(total))
	h.Set(filteredHeader, strconv.Itoa(len(l.items)))
	if q := &c.query; q.page > 0 && q.page <= len(l.items)/q.size {
		l.items = l.items[:q.page*q.size]
	}
	l.stream(c)
}

// run is a part of a list.
type run struct {
	items           []json.RawMessage
	total, filtered int

	at           int // how many were taken
	head         object
	key, natural any
	absent       bool // the head has no key, and comes last
}

// listOf reads a part of a list.
func listOf(p *part) (r run, err error) {
	if r.items, err = jsonobj.ParseItems(p.body); err != nil {
		return r, fmt.Errorf("list: %w", err)
	}
	r.filtered, r.total = len(r.items), len(r.items)
	if n, err := strconv.Atoi(p.header.Get(filteredHeader)); err == nil {
		r.filtered = max(n, r.filtered)
	}
	if n, err := strconv.Atoi(p.header.Get(totalHeader)); err == nil {
		r.total = max(n, r.filtered)
	}
	return r, nil
}

// merger takes items from runs in order.
type merger struct {
	*listMerge
	query *query
	runs  []run
}

// answer asks all nodes for their parts and answers with the list that they are together.
func (m *listMerge) answer(c *request, e *endpoint) error {
	g, ok := c.gather(e)
	if !ok {
		return nil
	}
	all := merger{listMerge: m, query: &c.query}
	for i := range g.parts {
		r, err := listOf(&g.parts[i])
		if err != nil {
			g.drop(g.parts[i].node, err)
			continue
		}
		all.runs = append(all.runs, r)
	}
	g.mark()
	for i := range all.runs {
		all.advance(&all.runs[i])
	}
	if c.query.page > 0 {
		return all.page(g)
	}
	c.streamObjects(func(yield func(object) bool) {
		for o := all.next(); o != nil && yield(o); {
			o = all.next()
		}
	})
	return nil
}

// advance reads the next item of a run.
func (m *merger) advance(r *run) {
	r.head, r.key, r.natural, r.absent = nil, nil, nil, false
	if r.at >= len(r.items) {
		return
	}
	r.head, _ = jsonobj.ParseObject(r.items[r.at]) // which listOf has seen
	if r.head == nil {
		r.head = object{}
	}
	r.items[r.at] = nil
	r.at++
	if m.natural != nil {
		r.natural, _ = r.head.Find(m.natural)
	}
	if q := m.query; q.sort != nil {
		r.key, _ = r.head.Find(q.sort)
		r.absent = r.key == nil && len(q.sort) == 1 && slices.Contains(m.timely, q.sort[0])
	}
}

// next takes the next item; nil if there is none.
func (m *merger) next() object {
	first := -1
	for i := range m.runs {
		if r := &m.runs[i]; r.head != nil && (first < 0 || m.compare(r, &m.runs[first]) < 0) {
			first = i
		}
	}
	if first < 0 {
		return nil
	}
	o := m.runs[first].head
	m.advance(&m.runs[first])
	return o
}

// compare compares the heads of two runs, of which b is that of an earlier node.
func (m *merger) compare(a, b *run) int {
	if a.absent || b.absent { // those stay in their order, in either direction
		return cmp.Or(boolCompare(a.absent, b.absent), compareValues(a.natural, b.natural))
	}
	c := cmp.Or(compareValues(a.key, b.key), compareValues(a.natural, b.natural), 1)
	if m.query.reverse {
		c = -c
	}
	return c
}

func boolCompare(a, b bool) int {
	switch {
	case a == b:
		return 0
	case a:
		return 1
	}
	return -1
}

// page answers with the page that the query asks for.
func (m *merger) page(g *gathering) error {
	q, filtered, total := m.query, 0, 0
	for i := range m.runs {
		filtered += m.runs[i].filtered
		total += m.runs[i].total
	}
	p, err := q.pageOf(filtered)
	if err != nil {
		return err
	}
	for range p.from {
		m.next()
	}
	objects := []object{}
	for len(objects) < q.size {
		o := m.next()
		if o == nil {
			break
		}
		objects = append(objects, o.Pick(q.columns))
	}
	writeObject(g.w, http.StatusOK, g.unreachable(p.object(q, objects, total)))
	return nil
}
