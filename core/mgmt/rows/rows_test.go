package rows

import (
	"cmp"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"
)

// nodeRows is the sorted rows of a node.
func nodeRows(rows []Row) func() (*Row, error) {
	return func() (*Row, error) {
		if len(rows) == 0 {
			return nil, nil //nolint:nilnil // the end
		}
		r := rows[0]
		rows = rows[1:]
		return &r, nil
	}
}

// sortAll sorts rows of all nodes as a list of one node that has them in the order of their nodes.
func sortAll(o Order, rows []Row) {
	slices.SortFunc(rows, func(a, b Row) int {
		return cmp.Or(Compare(a.Natural, b.Natural), cmp.Compare(a.Value.(int), b.Value.(int)))
	})
	all := rows
	var absent []Row // which stay in that order, behind all others
	if o.AbsentLast {
		keyed := make([]Row, 0, len(rows))
		for _, r := range rows {
			if r.Key == nil {
				absent = append(absent, r)
			} else {
				keyed = append(keyed, r)
			}
		}
		rows = append(rows[:0], keyed...)
	}
	if o.Reverse && o.Steady {
		slices.SortStableFunc(rows, func(a, b Row) int { return Compare(b.Key, a.Key) })
	} else {
		slices.SortStableFunc(rows, func(a, b Row) int { return Compare(a.Key, b.Key) })
		if o.Reverse {
			slices.Reverse(rows)
		}
	}
	copy(all[len(rows):], absent)
}

// The first items are the first of the sorted list.
func TestFirstItems(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	for range 500 {
		o := Order{Reverse: rng.IntN(2) == 0, AbsentLast: rng.IntN(2) == 0, Steady: rng.IntN(2) == 0}
		all := make([]Row, rng.IntN(500))
		keys := make([]any, len(all))
		for i := range all {
			if rng.IntN(3) > 0 {
				keys[i] = rng.IntN(50)
			}
			all[i] = Row{Keys: Keys{Key: keys[i]}, Value: i}
		}
		sortAll(o, all)
		n := rng.IntN(200)
		got := o.First(len(all), n, func(at int) any { return keys[at] })
		if len(got) != min(n, len(all)) {
			t.Fatalf("got %d of %d, want %d", len(got), len(all), n)
		}
		for i, p := range got {
			if p.At != all[i].Value || p.Key != all[i].Key {
				t.Fatalf("%+v: item %d is %+v, want %v", o, i, p, all[i])
			}
		}
	}
}

// Rows of several nodes are merged into the order that they would have at one node, and the ranges of a page are the rows on it.
func TestMergeIsSort(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for range 500 {
		o := Order{Reverse: rng.IntN(2) == 0, AbsentLast: rng.IntN(2) == 0, Steady: rng.IntN(2) == 0}
		nodes := make([][]Row, 1+rng.IntN(3))
		var all []Row
		for i := range nodes {
			for range rng.IntN(20) {
				keys := Keys{Natural: fmt.Sprint(i, rng.IntN(2))}
				if rng.IntN(4) > 0 {
					keys.Key = rng.IntN(4)
				}
				nodes[i] = append(nodes[i], Row{Keys: keys, Value: len(all)})
				all = append(all, nodes[i][len(nodes[i])-1])
			}
			sortAll(o, nodes[i])
		}
		sortAll(o, all)
		merge, counted := NewMerge(o), NewMerge(o)
		for i, rows := range nodes {
			_ = merge.Add(&Run{Node: strconv.Itoa(i), Next: nodeRows(rows)})
			_ = counted.Add(&Run{Node: strconv.Itoa(i), Next: Counted(nodeRows(rows))})
		}
		for i := range all {
			if r := merge.Next(); r == nil || r.Value != all[i].Value {
				t.Fatalf("%+v: row %d is %v, want %v", o, i, r, all[i])
			}
		}
		if merge.Next() != nil {
			t.Fatal("there is a row too many")
		}
		from, size := rng.IntN(len(all)+1), 1+rng.IntN(10)
		var want, got []int
		for _, r := range all[from:min(from+size, len(all))] {
			want = append(want, r.Value.(int))
		}
		for node, r := range counted.Ranges(from, size) {
			i, _ := strconv.Atoi(node)
			for _, row := range nodes[i][r.From:r.To] {
				got = append(got, row.Value.(int))
			}
		}
		slices.Sort(want)
		slices.Sort(got)
		if !slices.Equal(got, want) {
			t.Fatalf("%+v: the page has rows %v, want %v", o, got, want)
		}
	}
}

// Values of different types have an order, as in RabbitMQ.
func TestKeysOrderTypes(t *testing.T) {
	values := []any{nil, -1, 2.5, uint64(3), int64(1<<60 - 1), json.Number("1152921504606846976"), false, true, "a", "b", []any{}}
	for i := range values {
		for j := range values {
			if got, want := Compare(values[i], values[j]), cmp.Compare(i, j); got != want {
				t.Errorf("%v and %v: got %d, want %d", values[i], values[j], got, want)
			}
		}
	}
	for _, equal := range [][2]any{{5, 5.0}, {int64(5), json.Number("5")}, {object{}, []any{1}}} {
		if Compare(equal[0], equal[1]) != 0 {
			t.Errorf("%v and %v differ", equal[0], equal[1])
		}
	}
}

type object map[string]any

// Keys that Go cannot compare with ==, such as arguments of queues, are equal.
func TestCountedKeysOfAnyType(t *testing.T) {
	next := Counted(nodeRows([]Row{{Keys: Keys{Key: []any{1}}}, {Keys: Keys{Key: []any{2}}}, {Keys: Keys{Key: object{}}}}))
	if r, err := next(); err != nil || r.N != 3 {
		t.Errorf("got %+v, %v", r, err)
	}
}
