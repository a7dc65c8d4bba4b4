package route

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"

	"github.com/curfewmq/curfew/core/amqp"
	"github.com/curfewmq/curfew/sdk/hook"
)

// told is a router that records its calls.
type told map[string]hook.Destination

func nameOf(b Binding[string]) string { return fmt.Sprintf("%s %s %v", b.Destination, b.Key, b.Args) }

func (r told) Bind(n hook.Destination, b Binding[string]) {
	if _, known := r[nameOf(b)]; known {
		panic("bound twice: " + nameOf(b))
	}
	r[nameOf(b)] = n
}

func (r told) Unbind(n hook.Destination, b Binding[string]) {
	if was, known := r[nameOf(b)]; !known || was != n {
		panic("not bound so: " + nameOf(b))
	}
	delete(r, nameOf(b))
}

func translate(t *Table[string], numbers ...hook.Destination) (names []string, invalid int) {
	names, matched, invalid := t.Translate(nil, numbers)
	if matched != (len(names) > 0) {
		panic("matched is wrong")
	}
	return names, invalid
}

func TestNumbers(t *testing.T) {
	r := told{}
	table := NewPlugin[string](r)
	table.Add("k", nil, "a")
	table.Add("l", nil, "a")
	table.Add("k", nil, "b")
	table.Add("k", nil, "b")
	table.Add("k", amqp.Table{{Key: "x", Value: int32(1)}}, "b")
	if want := (told{"a k []": 0, "a l []": 0, "b k []": 1, "b k [{x 1}]": 1}); fmt.Sprint(r) != fmt.Sprint(want) {
		t.Fatalf("got %v, want %v", r, want)
	}
	if names, invalid := translate(table, 1, 0, 1, 1); !slices.Equal(names, []string{"b", "a"}) || invalid > 0 {
		t.Errorf("got %v and %d invalid", names, invalid)
	}
	if names, invalid := translate(table, -1, 2, 1<<30, -1<<31); len(names) > 0 || invalid != 4 {
		t.Errorf("foreign numbers: got %v and %d invalid", names, invalid)
	}
	table.Remove("k", nil, "a")
	if names, _ := translate(table, 0); !slices.Equal(names, []string{"a"}) {
		t.Errorf("with one binding left: got %v", names)
	}
	table.Remove("l", nil, "a")
	if names, invalid := translate(table, 0, 1); !slices.Equal(names, []string{"b"}) || invalid != 1 {
		t.Errorf("a stale number: got %v and %d invalid", names, invalid)
	}
	table.Add("k", nil, "c")
	if names, _ := translate(table, 0, 1); !slices.Equal(names, []string{"c", "b"}) {
		t.Errorf("a number that is used again: got %v", names)
	}
	if n := table.RemoveDestination("b"); n != 2 || len(r) != 1 {
		t.Errorf("%d removed, the router has %v", n, r)
	}
}

// Translate skips destinations that are already listed, but still reports that there is one.
func TestTranslateAppends(t *testing.T) {
	table := NewPlugin[string](told{})
	var numbers []hook.Destination
	for i := range 100 { // so many that a map finds the listed ones
		table.Add("", nil, strconv.Itoa(i))
		numbers = append(numbers, hook.Destination(i))
	}
	all, matched, _ := table.Translate([]string{"7", "x"}, append(numbers, numbers...))
	if len(all) != 101 || !matched {
		t.Errorf("%d destinations, %v", len(all), matched)
	}
	if again, matched, _ := table.Translate(all, numbers); len(again) != 101 || !matched {
		t.Errorf("all listed: %d destinations, %v", len(again), matched)
	}
}

// A table without a router, for example of a type that no plugin offers, only stores bindings.
func TestPluginTableWithoutRouter(t *testing.T) {
	table := New[string](Plugin)
	table.Add("k", nil, "a")
	if !table.Has("k", nil, "a") || !table.Remove("k", nil, "a") || table.Len() != 0 {
		t.Error("the binding was not stored and removed")
	}
	if got, matched := table.Match(nil, []byte("k"), nil); len(got) > 0 || matched {
		t.Errorf("Match = %v, %v", got, matched)
	}
}

// In whatever order bindings change, the router has the table's bindings, and numbers match destinations.
func TestNumbersAgree(t *testing.T) {
	r := told{}
	table := NewPlugin[string](r)
	for range 20_000 {
		d, key := strconv.Itoa(rand.IntN(20)), strconv.Itoa(rand.IntN(4))
		switch rand.IntN(5) {
		case 0, 1:
			table.Add(key, nil, d)
		case 2, 3:
			table.Remove(key, nil, d)
		case 4:
			table.RemoveDestination(d)
		}
	}
	if len(r) != table.Len() {
		t.Fatalf("the router has %d bindings, the table %d", len(r), table.Len())
	}
	for b := range table.All() {
		if got, _ := translate(table, r[nameOf(b)]); !slices.Equal(got, []string{b.Destination}) {
			t.Errorf("%s has the number %d, which is %v", nameOf(b), r[nameOf(b)], got)
		}
	}
	if n := len(table.numbers.destinations); n > 20 {
		t.Errorf("%d numbers for 20 destinations", n)
	}
}
