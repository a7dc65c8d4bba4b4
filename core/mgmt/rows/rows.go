// Package rows orders the rows of lists: it picks the first rows of a node, merges the rows
// of several nodes, and finds a page of them. It knows neither HTTP nor the contents of a
// row.
package rows

import (
	"cmp"
	"encoding/json"
	"slices"
	"strings"
)

// key orders a value of JSON.
type key struct {
	rank   int8
	number float64 // also 1 for true
	whole  int64   // the number, if it is whole and too large for a float: an instant
}

// The ranks order values of different types as RabbitMQ does.
const (
	absent int8 = iota
	number
	boolean
	text
	other
)

func keyOf(v any) key {
	switch v := v.(type) {
	case nil:
		return key{}
	case int:
		return keyOfWhole(int64(v))
	case int64:
		return keyOfWhole(v)
	case uint64:
		return key{rank: number, number: float64(v)}
	case float64:
		return key{rank: number, number: v}
	case json.Number:
		if whole, err := v.Int64(); err == nil {
			return keyOfWhole(whole)
		}
		n, _ := v.Float64() // a number that is too large becomes infinite
		return key{rank: number, number: n}
	case bool:
		if v {
			return key{rank: boolean, number: 1}
		}
		return key{rank: boolean}
	case string:
		return key{rank: text}
	}
	return key{rank: other}
}

func keyOfWhole(n int64) key {
	k := key{rank: number, number: float64(n)}
	const exact = 1 << 53 // floats represent every whole number up to this one
	if n > exact || n < -exact {
		k.whole = n
	}
	return k
}

// Compare orders JSON values as RabbitMQ does: absent ones, numbers, booleans, texts, and
// then all others, which are equal.
func Compare(a, b any) int {
	k, l := keyOf(a), keyOf(b)
	if k.rank == text && l.rank == text {
		return strings.Compare(a.(string), b.(string))
	}
	return cmp.Or(cmp.Compare(k.rank, l.rank), cmp.Compare(k.number, l.number), cmp.Compare(k.whole, l.whole))
}

// Keys order a row. They are JSON values.
type Keys struct {
	Key     any // the reader's sort key; nil = the row has no such value
	Natural any // the order of rows with equal keys, also if the reader names no key
}

// Order is the order of a list. Rows that are equal stay in the order of their nodes.
type Order struct {
	Reverse bool
	// AbsentLast puts rows without a key last in either direction; otherwise they are the lowest, as in RabbitMQ.
	AbsentLast bool
	// Steady keeps rows with the same key in their natural order when the list is reversed.
	Steady bool
}

// compare compares rows. place is the order of their places, which decides among equal rows.
func (o Order) compare(a, b Keys, place int) int {
	c, among := Compare(a.Key, b.Key), cmp.Or(Compare(a.Natural, b.Natural), place)
	switch lastA, lastB := o.AbsentLast && a.Key == nil, o.AbsentLast && b.Key == nil; {
	case lastA && lastB:
		return among
	case lastA:
		return 1
	case lastB:
		return -1
	case o.Reverse && o.Steady:
		return cmp.Or(-c, among)
	case o.Reverse:
		return -cmp.Or(c, among)
	}
	return cmp.Or(c, among)
}

// Place is the index of an item, and its key.
type Place struct {
	Key any
	At  int
}

// First returns the first n items, in order. It keeps about twice as many in memory, and never sorts the whole list.
func (o Order) First(items, n int, key func(at int) any) []Place {
	compare := func(a, b Place) int { return o.compare(Keys{Key: a.Key}, Keys{Key: b.Key}, cmp.Compare(a.At, b.At)) }
	n = min(n, items)
	const more = 40
	first := make([]Place, 0, min(items, 2*n+more))
	var limit *Place // the last of the first rows so far
	for at := range items {
		if o.Reverse && !o.Steady { // of equal items the later ones are first
			at = items - 1 - at
		}
		p := Place{key(at), at}
		if limit != nil && compare(*limit, p) < 0 {
			continue
		}
		if first = append(first, p); len(first) == 2*n+more {
			slices.SortFunc(first, compare)
			last := first[max(n-1, 0)]
			first, limit = first[:n], &last
		}
	}
	slices.SortFunc(first, compare)
	return first[:n]
}

// Row is an element of a list.
type Row struct {
	Keys
	N     int // number of rows with these keys that the Row stands for, without a Value; 0 = it is one row
	Value any
}

// Run is the rows of one node, in order.
type Run struct {
	Node            string
	Total, Filtered int                  // rows of the node, and rows that pass the filter
	Next            func() (*Row, error) // nil at the end

	head *Row
}

// Merge takes rows from runs in order. It belongs to one goroutine.
type Merge struct {
	order Order
	runs  []*Run
	// Broken is the run that could not be read to its end, and Err the reason. Next returns nil then.
	Broken *Run
	Err    error
}

// NewMerge returns a merge without runs.
func NewMerge(o Order) *Merge { return &Merge{order: o} }

// Add adds the run of the next node, in the order of the nodes. It fails if the run cannot be read.
func (m *Merge) Add(r *Run) (err error) {
	if r.head, err = r.Next(); err == nil {
		m.runs = append(m.runs, r)
	}
	return err
}

// Counts returns how many rows the runs have, with and without the filter.
func (m *Merge) Counts() (filtered, total int) {
	for _, r := range m.runs {
		filtered += r.Filtered
		total += r.Total
	}
	return filtered, total
}

// Next takes the next row; nil if there is none.
func (m *Merge) Next() *Row {
	row, _ := m.take()
	return row
}

func (m *Merge) take() (*Row, *Run) {
	var first *Run
	if m.Err == nil {
		for _, r := range m.runs {
			if r.head != nil && (first == nil || m.order.compare(r.head.Keys, first.head.Keys, 1) < 0) {
				first = r
			}
		}
	}
	if first == nil {
		return nil, nil
	}
	row, err := first.head, error(nil)
	if first.head, err = first.Next(); err != nil {
		m.Broken, m.Err = first, err
	}
	return row, first
}

// Counted returns a function that returns rows without values. Each stands for a sequence
// of rows of next with equal keys.
func Counted(next func() (*Row, error)) func() (*Row, error) {
	var kept *Row // the first row of the sequence
	return func() (*Row, error) {
		if kept == nil {
			var err error
			if kept, err = next(); kept == nil {
				return nil, err
			}
		}
		all := &Row{Keys: kept.Keys, N: 1}
		for {
			var err error
			if kept, err = next(); kept == nil || Compare(kept.Key, all.Key) != 0 || Compare(kept.Natural, all.Natural) != 0 {
				return all, err
			}
			all.N++
		}
	}
}

// Range is a part of a node's rows, in their order.
type Range struct{ From, To int }

// Ranges takes all rows up to the end of a page, and returns the range of each node's rows
// on it. The page has size rows behind the first from.
//
// The rows of Counted are enough for that. Example: two nodes have 1,000 queues each in
// their own vhosts, and the page has 100 rows behind 950. The rows "1,000 in a" and "1,000
// in b" say that rows 950 to 999 of the first node are on the page, and 0 to 49 of the
// second.
func (m *Merge) Ranges(from, size int) map[string]Range {
	all := map[string]Range{}
	for at := 0; at < from+size; {
		row, run := m.take()
		if row == nil {
			break
		}
		taken := min(max(row.N, 1), from+size-at)
		own := all[run.Node]
		own.From += min(taken, max(from-at, 0))
		own.To += taken
		all[run.Node] = own
		at += taken
	}
	return all
}
