package mgmt

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"

	"github.com/curfewmq/curfew/core/mgmt/jsonobj"
	"github.com/curfewmq/curfew/core/replicas"
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

// ready makes a request for a part: it has the members that decide its order and where it belongs, too.
func (m *listMerge) ready(c *request) {
	c.order = m
	q := &c.query
	if c.asksKeys() {
		q.columns, q.needs = [][]string{}, []string{} // see keys
	}
	if q.columns == nil {
		return
	}
	for _, path := range [][]string{m.natural, q.sort, {"vhost"}} {
		if path != nil {
			q.columns, q.needs = append(q.columns, path), append(q.needs, path[0])
		}
	}
}

// sendPart answers with a part of a list.
func (l *listing[T]) sendPart(c *request, total int) error {
	h := c.w.Header()
	h.Set(totalHeader, strconv.Itoa(total))
	h.Set(filteredHeader, strconv.Itoa(len(l.items)))
	q := &c.query
	if text := c.r.Header.Get(rangeHeader); text != "" {
		r, err := readRange(text)
		if err != nil {
			return err
		}
		l.items = l.items[min(r.from, len(l.items)):min(r.to, len(l.items))]
	} else if q.page > 0 && q.page <= len(l.items)/q.size {
		l.items = l.items[:q.page*q.size]
	}
	if c.asksKeys() {
		l.sendKeys(c)
		return nil
	}
	l.stream(c)
	return nil
}

// run is a part of a list, which is read while it is merged.
type run struct {
	node            replicas.Node
	in              *json.Decoder
	total, filtered int
	elsewhere       func(vhost string) bool // reports that items in a vhost are those of another part

	head         object
	key, natural any
	absent       bool // the head has no key, and comes last
	used         int  // how many of the items that the head stands for were counted; see ranges
}

// listOf begins to read a part of a list.
func listOf(p *part, elsewhere func(string) bool) (r *run, err error) {
	if p.rest == nil { // a part that is unusable is left out, as long as that can be known
		if _, err = jsonobj.ParseItems(p.body); err != nil {
			return nil, fmt.Errorf("list: %w", err)
		}
	}
	r = &run{node: p.node, in: json.NewDecoder(p.reader()), elsewhere: elsewhere}
	if t, err := r.in.Token(); err != nil || t != json.Delim('[') {
		return nil, fmt.Errorf("list: begins with %v: %w", t, err)
	}
	r.filtered, _ = strconv.Atoi(p.header.Get(filteredHeader)) // 0 without one
	r.total, _ = strconv.Atoi(p.header.Get(totalHeader))
	r.total = max(r.total, r.filtered)
	return r, nil
}

// read reads the next item; nil at the end.
func (r *run) read() (object, error) {
	for r.in.More() {
		var raw json.RawMessage
		if err := r.in.Decode(&raw); err != nil {
			return nil, err
		}
		o, err := jsonobj.ParseObject(raw)
		if err != nil {
			return nil, err
		}
		if name, ok := valueOf(o, "vhost").(string); ok && r.elsewhere(name) {
			continue
		}
		return o, nil
	}
	_, err := r.in.Token() // the end, or why there is none
	return nil, err
}

// merger takes items from runs in order.
type merger struct {
	*listMerge
	query *query
	keys  bool // the items are what others are sorted by; see answerDeep
	runs  []*run
	err   error // why the rest of a run cannot be read
}

// answer asks all nodes for their parts and answers with the list that they are together.
func (m *listMerge) answer(c *request, e *endpoint) error {
	if q := &c.query; q.page > 1 && q.page > c.api.deep/q.size {
		return m.answerDeep(c, e)
	}
	g, ok, err := c.gather(e, question{long: true})
	if !ok {
		return err
	}
	if err := g.checkServed(); err != nil {
		return err
	}
	all := m.merger(g, false)
	g.mark()
	if c.query.page > 0 {
		return all.page(g)
	}
	c.streamObjects(func(yield func(object) bool) {
		for o := all.next(); o != nil && yield(o); {
			o = all.next()
		}
		if all.err != nil { // nobody must take the list for complete
			panic(http.ErrAbortHandler)
		}
	})
	return nil
}

// merger begins to read the parts.
func (m *listMerge) merger(g *gathering, keys bool) *merger {
	all := &merger{listMerge: m, query: &g.query, keys: keys}
	for i := range g.parts {
		r, err := listOf(&g.parts[i], g.elsewhere(&g.parts[i]))
		if err != nil {
			g.drop(g.parts[i].node, err)
			continue
		}
		all.runs = append(all.runs, r)
	}
	for _, r := range all.runs {
		all.advance(r)
	}
	return all
}

// advance reads the next item of a run.
func (m *merger) advance(r *run) {
	r.key, r.natural, r.absent = nil, nil, false
	o, err := r.read()
	if r.head = o; err != nil {
		m.err = &brokenPart{r.node.Name, err}
	}
	if o == nil {
		return
	}
	q := m.query
	switch {
	case m.keys:
		r.key, r.natural = valueOf(o, "key"), valueOf(o, "natural")
	default:
		if m.natural != nil {
			r.natural, _ = o.Find(m.natural)
		}
		if q.sort != nil {
			r.key, _ = o.Find(q.sort)
		}
	}
	r.absent = q.sort != nil && m.comesLast(q, r.key)
}

// comesLast reports whether an item without a key comes last in either direction.
func (m *listMerge) comesLast(q *query, key any) bool {
	return key == nil && len(q.sort) == 1 && slices.Contains(m.timely, q.sort[0])
}

// brokenPart says that a part broke off.
type brokenPart struct {
	node string
	err  error
}

func (b *brokenPart) Error() string { return b.node + ": " + b.err.Error() }

// next takes the next item; nil if there is none.
func (m *merger) next() object {
	r := m.first()
	if r == nil {
		return nil
	}
	o := r.head
	m.advance(r)
	return o
}

// first returns the run whose head is next; nil if there is none.
func (m *merger) first() (first *run) {
	if m.err != nil {
		return nil
	}
	for _, r := range m.runs {
		if r.head != nil && (first == nil || m.compare(r, first) < 0) {
			first = r
		}
	}
	return first
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

// counts returns how many items the runs have, with and without the filter.
func (m *merger) counts() (filtered, total int) {
	for _, r := range m.runs {
		filtered += r.filtered
		total += r.total
	}
	return filtered, total
}

// broken returns the failure of a list whose parts cannot be read to the end; nil if they can.
func (m *merger) broken(g *gathering) error {
	if part, ok := errors.AsType[*brokenPart](m.err); ok {
		g.logMissing(replicas.Node{Name: part.node}, part.err)
		return g.errUnreachable([]string{part.node}, ": its part of the list broke off")
	}
	return nil
}

// page answers with the page that the query asks for.
func (m *merger) page(g *gathering) error {
	filtered, total := m.counts()
	p, err := m.query.pageOf(filtered)
	if err != nil {
		return err
	}
	for range p.from {
		m.next()
	}
	return m.reply(g, &p, total)
}

// reply answers with the items that are next, as many as a page has.
func (m *merger) reply(g *gathering, p *pageRange, total int) error {
	q, objects := m.query, []object{}
	for len(objects) < q.size {
		o := m.next()
		if o == nil {
			break
		}
		objects = append(objects, o.Pick(q.columns))
	}
	if err := m.broken(g); err != nil {
		return err
	}
	writeObject(g.w, http.StatusOK, g.incomplete(p.object(q, objects, total)))
	return nil
}
