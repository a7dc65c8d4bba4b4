package mgmt

import (
	"bufio"
	"cmp"
	"fmt"
	"iter"
	"net/http"
	"slices"
	"time"

	"github.com/curfewmq/curfew/core/mgmt/pattern"
	"github.com/curfewmq/curfew/core/mgmt/rows"
)

// listing is a list of a node's items to answer with. An item's object is made only when it is needed: there may be a hundred thousand
// items, and most requests ask for one page.
type listing[T any] struct {
	items  []T
	object func(T) object
	// name returns the name of an item, which the query parameter name filters by; nil means that no item passes.
	name func(T) string
	// vhost returns the vhost by which the items of several nodes are sorted among equals; nil means that they are sorted by node.
	vhost func(T) string
	// field returns a member without making the object, for sorting; ok is false if it cannot. nil means that it never can.
	field func(item T, name string) (value any, ok bool)
	// timely are members that most items lack. Items without the sort key come last in either direction if it is one of these; otherwise
	// they count as the lowest, as in RabbitMQ.
	timely []string

	total, filtered int   // items, and items with names that pass
	keys            []any // of the sorted items; nil = they are in their own order
}

// listObjects answers with objects. Their names are their members "name", if they have one.
func listObjects(c *request, all []object) error {
	l := listing[object]{items: all, object: func(o object) object { return o }, vhost: func(o object) string { return textIn(o, "vhost") }}
	if len(all) > 0 {
		if _, named := all[0].Value("name"); named {
			l.name = nameOf
		}
	}
	return list(c, l)
}

func nameOf(o object) string { return textIn(o, "name") }

func textIn(o object, name string) string {
	text, _ := valueOf(o, name).(string)
	return text
}

// list answers with the items that the query asks for. If all nodes are asked, the items of other nodes are among them.
func list[T any](c *request, l listing[T]) error {
	if g := c.gathering; g != nil && g.whole != nil {
		own := make([]object, len(l.items))
		for i := range l.items {
			own[i] = l.object(l.items[i])
		}
		return g.listWhole(own)
	}
	l.total = len(l.items)
	if err := l.filter(c); err != nil {
		return err
	}
	l.filtered = len(l.items)
	if c.asksKeys() {
		c.query.columns, c.query.needs = nil, append([]string{}, c.query.sort[:min(len(c.query.sort), 1)]...)
	}
	l.sort(&c.query)
	if c.part {
		return l.sendPart(c)
	}
	if c.gathering == nil {
		l.vhost = nil // there are no rows of other nodes
	}
	m, p, err := l.merge(c)
	if err != nil {
		return err
	}
	if c.gathering != nil {
		c.gathering.mark()
	}
	if c.query.page > 0 {
		return l.reply(c, m, p)
	}
	c.streamObjects(func(yield func(object) bool) {
		for r := m.Next(); r != nil && yield(l.render(r)); {
			r = m.Next()
		}
		if m.Err != nil { // the client must not take the list for complete
			panic(http.ErrAbortHandler)
		}
	})
	return nil
}

// merge begins to merge the items with the items of the other nodes, if they are asked. For a page, it skips the rows in front of it.
func (l *listing[T]) merge(c *request) (m *rows.Merge, p pageRange, err error) {
	q, g := &c.query, c.gathering
	own := rows.Run{Node: c.api.Node, Total: l.total, Filtered: l.filtered, Next: l.rows(0, len(l.items))}
	if g != nil && g.question.keys {
		own.Next = rows.Counted(own.Next)
	}
	m = l.mergeRuns(c, &own)
	if q.page == 0 {
		return m, p, nil
	}
	if p, err = q.pageOf(m.Counts()); err != nil {
		return m, p, err
	}
	switch {
	case g == nil: // the own items are the list
		own.Next = l.rows(p.from, len(l.items))
	case g.question.keys:
		ranges := m.Ranges(p.from, q.size)
		if err := g.broken(m); err != nil {
			return m, p, err
		}
		g.askRanges(ranges)
		own.Next = l.rows(ranges[own.Node].From, ranges[own.Node].To)
	default:
		for range p.from {
			m.Next()
		}
		return m, p, nil
	}
	return l.mergeRuns(c, &own), p, nil
}

// mergeRuns begins to merge the items of all nodes, in the order of the nodes.
func (l *listing[T]) mergeRuns(c *request, own *rows.Run) *rows.Merge {
	m := rows.NewMerge(l.order(&c.query))
	if c.gathering == nil {
		_ = m.Add(own) // own rows can be read
		return m
	}
	for i := range c.gathering.parts {
		p := &c.gathering.parts[i]
		r, err := own, error(nil)
		if !c.api.nodes.isSelf(&p.node) {
			r, err = c.gathering.run(p, l.vhost != nil)
		}
		if err == nil {
			err = m.Add(r)
		}
		if err != nil {
			c.gathering.drop(p.node, err)
		}
	}
	return m
}

// rows returns a function that returns the next of some items as a row; nil at the end.
func (l *listing[T]) rows(from, to int) func() (*rows.Row, error) {
	return func() (*rows.Row, error) {
		if from >= to {
			return nil, nil //nolint:nilnil // the end
		}
		r := &rows.Row{Value: &l.items[from]}
		if l.keys != nil {
			r.Key = l.keys[from]
		}
		if l.vhost != nil {
			r.Natural = l.vhost(l.items[from])
		}
		from++
		return r, nil
	}
}

// render returns the object of a row: it is made of an own item; a row of another node is an object already.
func (l *listing[T]) render(r *rows.Row) object {
	if own, ok := r.Value.(*T); ok {
		return l.object(*own)
	}
	return r.Value.(object)
}

// reply answers with a page, which begins with the next row of m.
func (l *listing[T]) reply(c *request, m *rows.Merge, p pageRange) error {
	objects := []object{}
	for len(objects) < c.query.size {
		r := m.Next()
		if r == nil {
			break
		}
		objects = append(objects, l.render(r).Pick(c.query.columns))
	}
	o := p.object(&c.query, objects)
	if g := c.gathering; g != nil {
		if err := g.broken(m); err != nil {
			return err
		}
		o = g.incomplete(o)
	}
	writeObject(c.w, http.StatusOK, o)
	return nil
}

// filter removes the items with names that do not pass.
func (l *listing[T]) filter(c *request) error {
	switch {
	case c.query.name == nil:
		return nil
	case l.name == nil:
		l.items = nil
		return nil
	}
	run := c.query.name.Begin(c.r.Context().Done(), pattern.MostTime)
	l.items = slices.DeleteFunc(l.items, func(it T) bool { return !run.Passes(l.name(it)) })
	return unmatched(run.End())
}

// pageRange is the page of a list that a query asks for.
type pageRange struct {
	from     int // items before it
	filtered int // items of the list
	total    int // items without the filter
	pages    int
}

// pageOf returns the page of a list with so many items.
func (q *query) pageOf(filtered, total int) (p pageRange, err error) {
	p.filtered, p.total, p.pages = filtered, total, (filtered+q.size-1)/q.size
	if q.page > max(p.pages, 1) {
		return p, &failure{
			http.StatusBadRequest, "page_out_of_range",
			fmt.Sprintf("Page out of range, page: %d page size: %d, len: %d", q.page, q.size, filtered),
		}
	}
	p.from = (q.page - 1) * q.size
	return p, nil
}

func (p *pageRange) object(q *query, items []object) object {
	return object{
		{"filtered_count", p.filtered},
		{"item_count", len(items)},
		{"items", items},
		{"page", q.page},
		{"page_count", p.pages},
		{"page_size", q.size},
		{"total_count", p.total},
	}
}

// sort puts the items in the order that the query asks for, up to the end of the page. It makes one object at a time, and keeps only the
// sort keys.
func (l *listing[T]) sort(q *query) {
	if q.sort == nil {
		if q.reverse {
			slices.Reverse(l.items)
		}
		return
	}
	n := len(l.items)
	if q.page > 0 && q.page <= n/q.size {
		n = q.page * q.size
	}
	items := make([]T, 0, n)
	l.keys = make([]any, 0, n)
	for _, p := range l.order(q).First(len(l.items), n, func(at int) any { return l.member(at, q.sort) }) {
		items, l.keys = append(items, l.items[p.At]), append(l.keys, p.Key)
	}
	l.items = items
}

func (l *listing[T]) order(q *query) rows.Order {
	return rows.Order{Reverse: q.reverse, AbsentLast: len(q.sort) == 1 && slices.Contains(l.timely, q.sort[0])}
}

// member returns the value of an item at a path.
func (l *listing[T]) member(i int, path []string) any {
	if len(path) == 1 && l.field != nil {
		if v, ok := l.field(l.items[i], path[0]); ok {
			return v
		}
	}
	v, _ := l.object(l.items[i]).Find(path)
	return v
}

const (
	bufferSize = 32 << 10 // bytes that are written at a time
	// writeTimeout is how long a client may take to read one buffer. A whole answer may take any time.
	writeTimeout = 30 * time.Second
	// partTimeout is writeTimeout for a part of a list, which the other node reads when the
	// list gets to it. That node ends the request when its client has gone, or is too slow.
	partTimeout = time.Hour
)

// timedWriter writes an answer of any length, and gives each write its own deadline.
type timedWriter struct {
	http.ResponseWriter
	most time.Duration // 0 = writeTimeout
}

func (w timedWriter) Write(b []byte) (int, error) {
	// A writer without deadlines, as tests have, has other limits.
	_ = http.NewResponseController(w.ResponseWriter).SetWriteDeadline(time.Now().Add(cmp.Or(w.most, writeTimeout)))
	return w.ResponseWriter.Write(b)
}

// streamObjects answers with a list of objects, each of which is made when it is written.
func (c *request) streamObjects(all iter.Seq[object]) {
	c.w.Header().Set("Content-Type", "application/json")
	to := timedWriter{ResponseWriter: c.w}
	if c.part {
		to.most = partTimeout
	}
	out := bufio.NewWriterSize(to, bufferSize)
	separator, line := byte('['), []byte(nil)
	for o := range all {
		line = o.Pick(c.query.columns).Append(append(line[:0], separator))
		if _, err := out.Write(line); err != nil {
			return // the client is gone
		}
		separator = ','
	}
	if separator == '[' {
		_ = out.WriteByte(separator)
	}
	_ = out.WriteByte(']')
	_ = out.Flush()
}
