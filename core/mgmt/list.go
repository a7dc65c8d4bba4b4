package mgmt

import (
	"cmp"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"
)

// listing is a list to be answered with. Its objects are made as they are needed: there may be a hundred thousand of them, and
// most requests look at a page.
type listing[T any] struct {
	items  []T
	object func(T) object
	// name is what the parameter name of a query looks at; nil = nothing passes it.
	name func(T) string
	// field returns members that are known without making the object; nil = none are.
	field func(item T, name string) (value any, ok bool)
}

// list answers with the rows that the query asks for, as far as a page goes.
func list[T any](c *request, rs listing[T]) error {
	total := len(rs.items)
	rs.filter(c.query.name)
	rs.sort(&c.query)
	if c.query.page == 0 {
		rs.stream(c)
		return nil
	}
	filtered := len(rs.items)
	q := &c.query
	pages := (filtered + q.size - 1) / q.size
	if q.page > max(pages, 1) {
		return &failure{
			http.StatusBadRequest, "page_out_of_range",
			fmt.Sprintf("Page out of range, page: %d page size: %d, len: %d", q.page, q.size, filtered),
		}
	}
	from := (q.page - 1) * q.size
	items := rs.items[from:min(from+q.size, filtered)]
	writeJSON(c.w, http.StatusOK, appendObject(nil, object{
		{"filtered_count", filtered},
		{"item_count", len(items)},
		{"items", rs.objects(&c.query, items)},
		{"page", q.page},
		{"page_count", pages},
		{"page_size", q.size},
		{"total_count", total},
	}))
	return nil
}

func (rs *listing[T]) filter(passes func(string) bool) {
	if passes == nil {
		return
	}
	rs.items = slices.DeleteFunc(rs.items, func(it T) bool { return rs.name == nil || !passes(rs.name(it)) })
}

// keyed is an item with what it is sorted by.
type keyed[T any] struct {
	item T
	key  any
}

// sort puts the items in the order that the query asks for. Of the objects, only what they are sorted by is kept.
func (rs *listing[T]) sort(q *query) {
	if q.sort != nil {
		all := make([]keyed[T], len(rs.items))
		for i, it := range rs.items {
			all[i] = keyed[T]{it, rs.key(it, q.sort)}
		}
		slices.SortStableFunc(all, func(a, b keyed[T]) int { return compareValues(a.key, b.key) })
		for i := range all {
			rs.items[i] = all[i].item
		}
	}
	if q.reverse {
		slices.Reverse(rs.items)
	}
}

func (rs *listing[T]) key(it T, path []string) any {
	if len(path) == 1 && rs.field != nil {
		if v, ok := rs.field(it, path[0]); ok {
			return v
		}
	}
	v, _ := rs.object(it).find(path)
	return v
}

// compareValues orders values as RabbitMQ does: what is missing first, then numbers, truth values, strings, and the rest,
// which is all the same.
func compareValues(a, b any) int {
	if n := cmp.Compare(rank(a), rank(b)); n != 0 {
		return n
	}
	switch a := a.(type) {
	case string:
		return strings.Compare(a, b.(string))
	case bool:
		return cmp.Compare(weight(a), weight(b.(bool)))
	}
	if rank(a) == rankNumber {
		return cmp.Compare(number(a), number(b))
	}
	return 0
}

const rankNumber = 1

func rank(v any) int {
	switch v.(type) {
	case nil:
		return 0
	case int, int64, uint64, float64, json.Number:
		return rankNumber
	case bool:
		return 2
	case string:
		return 3
	}
	return 4
}

func number(v any) float64 {
	switch v := v.(type) {
	case int:
		return float64(v)
	case int64:
		return float64(v)
	case uint64:
		return float64(v)
	case float64:
		return v
	case json.Number:
		f, _ := v.Float64() // too large a one is an infinity
		return f
	}
	return 0
}

func weight(b bool) int {
	if b {
		return 1
	}
	return 0
}

// objects makes the objects of some of the items, as far as the query wants them.
func (rs *listing[T]) objects(q *query, items []T) []object {
	all := make([]object, len(items))
	for i, it := range items {
		all[i] = rs.picked(q, it)
	}
	return all
}

func (rs *listing[T]) picked(q *query, it T) object {
	o := rs.object(it)
	if q.columns != nil {
		return o.pick(q.columns)
	}
	return o
}

const (
	chunk = 32 << 10 // bytes that are written at a time
	// chunkTime is how long a client may take to read what was written, before it is given up.
	chunkTime = 30 * time.Second
)

// stream writes the items one after another, so that a long list is never in memory as a whole.
func (rs *listing[T]) stream(c *request) {
	c.w.Header().Set("Content-Type", "application/json")
	out := http.NewResponseController(c.w)
	b := make(json.RawMessage, 0, 2*chunk)
	b = append(b, '[')
	for i, it := range rs.items {
		if i > 0 {
			b = append(b, ',')
		}
		b = appendObject(b, rs.picked(&c.query, it))
		if len(b) < chunk {
			continue
		}
		_ = out.SetWriteDeadline(time.Now().Add(chunkTime)) // a writer that cannot be given up has other limits
		if _, err := c.w.Write(b); err != nil {
			return // the client is gone
		}
		b = b[:0]
	}
	_, _ = c.w.Write(append(b, ']'))
}
