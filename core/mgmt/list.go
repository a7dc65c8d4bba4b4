package mgmt

import (
	"bufio"
	"cmp"
	"encoding/json"
	"fmt"
	"iter"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/curfewmq/curfew/core/mgmt/pattern"
)

// listing is a list to answer with. Its objects are made when they are needed: there may be a hundred thousand items, and most
// requests ask for one page.
type listing[T any] struct {
	items  []T
	object func(T) object
	// name returns what the parameter name of a query is compared with; nil means that no item passes it.
	name func(T) string
	// field returns a member without making the object, for sorting; ok is false if it cannot. nil means that it never can.
	field func(item T, name string) (value any, ok bool)
	// timely are members that are absent more often than not. Items without the one that the list is sorted by come last in either
	// direction; without other members they are the lowest, as in RabbitMQ.
	timely []string
}

// listObjects answers with objects. Their names are their members of that name, if they have one.
func listObjects(c *request, all []object) error {
	l := listing[object]{items: all, object: func(o object) object { return o }}
	if len(all) > 0 {
		if _, named := all[0].Value("name"); named {
			l.name = nameOf
		}
	}
	return list(c, l)
}

func nameOf(o object) string {
	v, _ := o.Value("name")
	name, _ := v.(string)
	return name
}

// list answers with the items that the query asks for.
func list[T any](c *request, l listing[T]) error {
	q, total := &c.query, len(l.items)
	if err := l.filter(c); err != nil {
		return err
	}
	l.sort(q)
	if c.part {
		return l.sendPart(c, total)
	}
	if q.page == 0 {
		l.stream(c)
		return nil
	}
	p, err := q.pageOf(len(l.items))
	if err != nil {
		return err
	}
	objects := []object{}
	for _, it := range l.items[p.from:min(p.from+q.size, len(l.items))] {
		objects = append(objects, l.object(it).Pick(q.columns))
	}
	writeObject(c.w, http.StatusOK, p.object(q, objects, total))
	return nil
}

// filter removes the items whose names do not pass.
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
	pages    int
}

// pageOf returns the page of a list with so many items.
func (q *query) pageOf(filtered int) (p pageRange, err error) {
	p.filtered, p.pages = filtered, (filtered+q.size-1)/q.size
	if q.page > max(p.pages, 1) {
		return p, &failure{
			http.StatusBadRequest, "page_out_of_range",
			fmt.Sprintf("Page out of range, page: %d page size: %d, len: %d", q.page, q.size, filtered),
		}
	}
	p.from = (q.page - 1) * q.size
	return p, nil
}

// object returns the answer with the items of the page, of so many without the filter.
func (p *pageRange) object(q *query, items []object, total int) object {
	return object{
		{"filtered_count", p.filtered},
		{"item_count", len(items)},
		{"items", items},
		{"page", q.page},
		{"page_count", p.pages},
		{"page_size", q.size},
		{"total_count", total},
	}
}

// sort puts the items in the order that the query asks for. It makes one object at a time, and keeps only what it sorts by.
func (l *listing[T]) sort(q *query) {
	if q.sort == nil {
		if q.reverse {
			slices.Reverse(l.items)
		}
		return
	}
	type keyed struct {
		item T
		key  any
	}
	all := make([]keyed, len(l.items))
	for i, it := range l.items {
		all[i] = keyed{it, l.key(it, q.sort)}
	}
	slices.SortStableFunc(all, func(a, b keyed) int { return compareValues(a.key, b.key) })
	absent := 0
	if len(q.sort) == 1 && slices.Contains(l.timely, q.sort[0]) {
		for absent < len(all) && all[absent].key == nil {
			absent++
		}
	}
	if q.reverse {
		slices.Reverse(all[absent:])
	}
	for i, k := range slices.Concat(all[absent:], all[:absent]) {
		l.items[i] = k.item
	}
}

func (l *listing[T]) key(it T, path []string) any {
	if len(path) == 1 && l.field != nil {
		if v, ok := l.field(it, path[0]); ok {
			return v
		}
	}
	v, _ := l.object(it).Find(path)
	return v
}

// compareValues orders values as RabbitMQ does: absent ones, numbers, booleans, strings, and then all others, which are equal.
func compareValues(a, b any) int {
	rankA, x := sortKey(a)
	rankB, y := sortKey(b)
	if rankA == rankString && rankB == rankString {
		return strings.Compare(a.(string), b.(string))
	}
	return cmp.Or(cmp.Compare(rankA, rankB), cmp.Compare(x, y))
}

const rankString = 3

// sortKey returns the rank of a value's type, and the value if it is a number or a boolean.
func sortKey(v any) (rank int, n float64) {
	switch v := v.(type) {
	case nil:
		return 0, 0
	case int:
		return 1, float64(v)
	case int64:
		return 1, float64(v)
	case uint64:
		return 1, float64(v)
	case float64:
		return 1, v
	case json.Number:
		n, _ = v.Float64() // one that is too large is infinite
		return 1, n
	case bool:
		if v {
			n = 1
		}
		return 2, n
	case string:
		return rankString, 0
	}
	return rankString + 1, 0
}

const (
	bufferSize = 32 << 10 // bytes that are written at a time
	// writeTimeout is how long a client may take to read one buffer. A whole answer may take any time.
	writeTimeout = 30 * time.Second
	// partTimeout is writeTimeout for a part of a list, which the other node reads when the list gets to it. That node ends the request when
	// its client has gone, or is too slow.
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

// stream writes the items one after another, so that a long list is never in memory as a whole.
func (l *listing[T]) stream(c *request) {
	c.streamObjects(func(yield func(object) bool) {
		for _, it := range l.items {
			if !yield(l.object(it)) {
				return
			}
		}
	})
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
