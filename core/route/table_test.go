package route

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/curfewmq/curfew/core/amqp"
)

// match returns the destinations of a message, sorted.
func match(t *testing.T, table *Table[string], key string, headers amqp.Table) []string {
	t.Helper()
	got, _ := table.Match(nil, []byte(key), rawOf(headers))
	slices.Sort(got)
	if uniq := slices.Compact(slices.Clone(got)); len(uniq) != len(got) {
		t.Errorf("Match(%q) = %v: a destination twice", key, got)
	}
	return got
}

func rawOf(headers amqp.Table) func() amqp.RawTable {
	raw := amqp.RawTable(amqp.AppendTable(nil, headers)[4:])
	return func() amqp.RawTable { return raw }
}

func TestKindNames(t *testing.T) {
	for _, name := range []string{"direct", "fanout", "topic", "headers"} {
		k, ok := ParseKind(name)
		if !ok || k.String() != name {
			t.Errorf("ParseKind(%q) = %v, %v", name, k, ok)
		}
	}
	if k, ok := ParseKind("x-delayed-message"); ok {
		t.Errorf("ParseKind of an unknown type = %v, true", k)
	}
}

func TestDirect(t *testing.T) {
	table := New[string](Direct)
	table.Add("red", nil, "a")
	table.Add("red", nil, "b")
	table.Add("blue", nil, "a")
	table.Add("", nil, "empty")
	for _, c := range []struct {
		key  string
		want []string
	}{
		{"red", []string{"a", "b"}},
		{"blue", []string{"a"}},
		{"", []string{"empty"}},
		{"red.", nil},
		{"#", nil},
	} {
		if got := match(t, table, c.key, nil); !slices.Equal(got, c.want) {
			t.Errorf("Match(%q) = %v, want %v", c.key, got, c.want)
		}
	}
}

func TestFanoutIgnoresKeyAndArguments(t *testing.T) {
	table := New[string](Fanout)
	table.Add("one", nil, "a")
	table.Add("two", nil, "a")
	table.Add("two", amqp.Table{{Key: "k", Value: int32(1)}}, "a")
	table.Add("", nil, "b")
	if got, want := match(t, table, "three", nil), []string{"a", "b"}; !slices.Equal(got, want) {
		t.Fatalf("Match = %v, want %v", got, want)
	}
	table.Remove("one", nil, "a")
	table.Remove("two", nil, "a")
	if got, want := match(t, table, "", nil), []string{"a", "b"}; !slices.Equal(got, want) {
		t.Fatalf("Match with one of three bindings left = %v, want %v", got, want)
	}
	table.Remove("two", amqp.Table{{Key: "k", Value: int32(1)}}, "a")
	if got, want := match(t, table, "", nil), []string{"b"}; !slices.Equal(got, want) {
		t.Fatalf("Match with none left = %v, want %v", got, want)
	}
}

// A binding is identified by its key, its arguments and its destination. The order of the arguments does not matter; their
// types do.
func TestIdentity(t *testing.T) {
	one := amqp.Table{{Key: "a", Value: int32(1)}, {Key: "b", Value: "x"}}
	swapped := amqp.Table{{Key: "b", Value: "x"}, {Key: "a", Value: int32(1)}}
	wider := amqp.Table{{Key: "a", Value: int64(1)}, {Key: "b", Value: "x"}}
	for _, kind := range []Kind{Direct, Fanout, Topic, Headers} {
		t.Run(kind.String(), func(t *testing.T) {
			table := New[string](kind)
			steps := []struct {
				name string
				got  bool
				want bool
			}{
				{"first", table.Add("k", one, "q"), true},
				{"again", table.Add("k", one, "q"), false},
				{"arguments in another order", table.Add("k", swapped, "q"), false},
				{"another integer type", table.Add("k", wider, "q"), true},
				{"no arguments", table.Add("k", nil, "q"), true},
				{"empty arguments", table.Add("k", amqp.Table{}, "q"), false},
				{"another key", table.Add("k2", one, "q"), true},
				{"remove what is not there", table.Remove("k3", one, "q"), false},
				{"remove", table.Remove("k", swapped, "q"), true},
				{"remove twice", table.Remove("k", one, "q"), false},
				{"remove the one without", table.Remove("k", nil, "q"), true},
			}
			for _, s := range steps {
				if s.got != s.want {
					t.Errorf("%s = %v, want %v", s.name, s.got, s.want)
				}
			}
			if table.Len() != 2 {
				t.Errorf("Len = %d, want 2", table.Len())
			}
		})
	}
}

func TestSameDestinationOnceAcrossKeys(t *testing.T) {
	for _, kind := range []Kind{Direct, Topic} {
		table := New[string](kind)
		args := amqp.Table{{Key: "n", Value: int32(1)}}
		table.Add("a", nil, "q1")
		table.Add("a", args, "q1")
		table.Add("b", nil, "q1")
		table.Add("b", nil, "q2")
		got, _ := table.Match(nil, []byte("a"), nil)
		got, _ = table.Match(got, []byte("b"), nil)
		if want := []string{"q1", "q2"}; !slices.Equal(got, want) {
			t.Errorf("%s: both keys = %v, want %v", kind, got, want)
		}
	}
}

// Long lists use a map to skip duplicates, short ones do not.
func TestManyDestinations(t *testing.T) {
	const n = 500
	table := New[int](Topic)
	for i := range n {
		table.Add("a.b", nil, i)
		table.Add("a.*", nil, i)
		table.Add("#", nil, n-i)
	}
	for range 3 {
		got, _ := table.Match(nil, []byte("a.b"), nil)
		slices.Sort(got)
		if len(got) != n+1 || len(slices.Compact(got)) != n+1 {
			t.Fatalf("%d destinations, %d of them different; want %d", len(got), len(slices.Compact(got)), n+1)
		}
	}
}

func TestListing(t *testing.T) {
	args := amqp.Table{{Key: "b", Value: "x"}, {Key: "a", Value: int32(1)}}
	table := New[string](Direct)
	table.Add("k1", args, "q")
	table.Add("k2", nil, "q")
	table.Add("k1", nil, "other")
	var keys []string
	for b := range table.Of("q") {
		keys = append(keys, fmt.Sprint(b.Key, b.Args))
	}
	if want := []string{"k2[]", "k1[{a 1} {b x}]"}; !slices.Equal(keys, want) {
		t.Errorf("Of = %v, want %v", keys, want)
	}
	all := map[string]int{}
	for b := range table.All() {
		all[b.Destination]++
	}
	if want := map[string]int{"q": 2, "other": 1}; !maps.Equal(all, want) {
		t.Errorf("All counts %v, want %v", all, want)
	}
	for range table.All() {
		break // must stop
	}
	for range table.Of("q") {
		break
	}
}

// After any sequence of additions and removals, matches find exactly the bindings, and no empty structures remain.
func TestChurn(t *testing.T) {
	type bound struct {
		key  string
		args int
		dest int
	}
	args := []amqp.Table{
		nil,
		{{Key: "h", Value: "v"}},
		{{Key: "x-match", Value: "any"}, {Key: "h", Value: "v"}, {Key: "g", Value: nil}},
		{{Key: "x-match", Value: "any"}},
		{{Key: "h", Value: "v"}, {Key: "g", Value: int32(3)}},
		{{Key: "h", Value: "v"}, {Key: "h", Value: nil}},
	}
	keys := []string{"", "a", "a.b", "a.*", "*", "#", "#.a.#.b", "a.#.b.#", "*.#.*", "b.a.", ".", "a.c", "a.d.e"}
	for _, kind := range []Kind{Direct, Fanout, Topic, Headers} {
		t.Run(kind.String(), func(t *testing.T) {
			rng := rand.New(rand.NewPCG(1, uint64(kind)))
			table := New[int](kind)
			model := map[bound]bool{}
			for range 5000 {
				b := bound{keys[rng.IntN(len(keys))], rng.IntN(len(args)), rng.IntN(6)}
				if rng.IntN(2) == 0 {
					if got := table.Add(b.key, args[b.args], b.dest); got == model[b] {
						t.Fatalf("Add(%v) = %v", b, got)
					}
					model[b] = true
				} else {
					if got := table.Remove(b.key, args[b.args], b.dest); got != model[b] {
						t.Fatalf("Remove(%v) = %v", b, got)
					}
					delete(model, b)
				}
				if rng.IntN(50) == 0 {
					n := 0
					maps.DeleteFunc(model, func(m bound, _ bool) bool {
						if m.dest == b.dest {
							n++
						}
						return m.dest == b.dest
					})
					if got := table.RemoveDestination(b.dest); got != n {
						t.Fatalf("RemoveDestination(%d) = %d, want %d", b.dest, got, n)
					}
				}
				if table.Len() != len(model) {
					t.Fatalf("Len = %d, want %d", table.Len(), len(model))
				}
			}
			for d := range 6 {
				table.RemoveDestination(d)
			}
			if table.Len() != 0 || len(table.heads) != 0 || len(table.direct) != 0 || len(table.fanout.members) != 0 ||
				len(table.headers.names) != 0 || len(table.headers.always) != 0 || !table.topic.root.prune(nil) {
				t.Errorf("something is left: %+v", table)
			}
		})
	}
}

func TestMatchDoesNotAllocate(t *testing.T) {
	if lossyPools {
		t.Skip("pools are lossy under the race detector")
	}
	headers := rawOf(amqp.Table{{Key: "type", Value: "order"}, {Key: "n", Value: int64(1 << 40)}, {Key: "x-a", Value: true}})
	for _, kind := range []Kind{Direct, Fanout, Topic, Headers} {
		t.Run(kind.String(), func(t *testing.T) {
			table := New[*int](kind)
			for i := range 100 {
				d := new(int)
				table.Add("a.b.c", nil, d)
				table.Add("#.b.#.c", nil, d)
				table.Add(fmt.Sprintf("a.%d.*", i), amqp.Table{{Key: "type", Value: "order"}, {Key: "n", Value: int64(1 << 40)}}, d)
				table.Add("a.#", amqp.Table{{Key: "x-match", Value: "any"}, {Key: "n", Value: nil}}, d)
			}
			dst := make([]*int, 0, 200)
			key := []byte("a.b.c")
			calls := 0
			got := testing.AllocsPerRun(100, func() {
				dst, _ = table.Match(dst[:0], key, func() amqp.RawTable { calls++; return headers() })
			})
			if got > 0 || len(dst) != 100 {
				t.Errorf("%v allocations for %d destinations, want 0 for 100", got, len(dst))
			}
			if kind != Headers && calls > 0 {
				t.Errorf("headers asked for %d times", calls)
			}
		})
	}
}

// A message with 20,000 CC keys, which fit into one frame, was matched as often: to an exchange with a thousand queues that took seconds,
// during which no queue of the vhost could be declared.
func TestMatchKeysLooksAtBindingsOnce(t *testing.T) {
	const bindings, keys = 5000, 200_000 // which as many matches as keys would take minutes for
	for _, kind := range []Kind{Direct, Fanout, Topic, Headers} {
		table := New[int](kind)
		for i := range bindings {
			table.Add("k", nil, i)
		}
		table.Add("other", nil, bindings)
		asked := 0
		headers := func() amqp.RawTable {
			asked++
			return nil
		}
		got, matched := table.MatchKeys([]int{3}, new(Seen[int]), []byte("k"), append(slices.Repeat([]string{"k"}, keys), "other", "none"), headers)
		slices.Sort(got)
		if !matched || len(got) != bindings+1 || len(slices.Compact(got)) != bindings+1 || asked > 1 {
			t.Errorf("kind %d: matched %t, %d destinations, headers read %d times", kind, matched, len(got), asked)
		}
		if got, matched := table.MatchKeys(nil, new(Seen[int]), []byte("none"), []string{"other"}, nil); !matched || len(got) == 0 {
			t.Errorf("kind %d: the second key leads to %v", kind, got)
		}
	}
}

// The destinations of all exchanges before were looked at for each exchange on a message's way: for some thousands of exchanges that took
// seconds for one message.
func TestMatchThroughManyExchanges(t *testing.T) {
	const exchanges = 40_000 // for which that would take minutes
	tables := make([]*Table[int], exchanges)
	for i := range tables {
		tables[i] = New[int](Fanout)
		tables[i].Add("", nil, i)
		tables[i].Add("", nil, i/2)
	}
	var list []int
	var seen Seen[int]
	for i, table := range tables {
		if i%7 == 0 {
			list = append(list, -i-1) // such as an alternate exchange
		}
		list, _ = table.MatchKeys(list, &seen, nil, nil, nil)
	}
	slices.Sort(list)
	if want := exchanges + (exchanges+6)/7; len(list) != want || len(slices.Compact(list)) != want {
		t.Errorf("%d destinations, want %d", len(list), want)
	}
}
