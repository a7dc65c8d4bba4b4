package live

import (
	"encoding/json"
	"maps"
	"math"
	"math/rand/v2"
	"reflect"
	"strconv"
	"testing"

	"github.com/curfewmq/curfew/core/mgmt/jsonobj"
)

// merge is RFC 7396, as a reader does it.
func merge(state, change any) any {
	c, ok := change.(map[string]any)
	if !ok {
		return change
	}
	merged := map[string]any{}
	if s, ok := state.(map[string]any); ok {
		maps.Copy(merged, s)
	}
	for name, v := range c {
		if v == nil {
			delete(merged, name)
		} else {
			merged[name] = merge(merged[name], v)
		}
	}
	return merged
}

// anyValue returns a value of any kind, often the same.
func anyValue(rng *rand.Rand, depth int) any {
	switch kind := rng.IntN(11); {
	case kind == 0:
		return nil
	case kind == 1:
		return rng.IntN(2) == 0
	case kind < 4:
		return rng.IntN(3)
	case kind < 5:
		return uint64(rng.IntN(3))
	case kind < 6:
		return float64(rng.IntN(2)) + .5
	case kind < 7:
		return []string{"a", "b"}[:rng.IntN(3)]
	case kind < 8:
		return []object{{{"to", rng.IntN(2)}, {"none", nil}}, {}}[:rng.IntN(3)]
	case kind < 9:
		return []any{nil, rng.IntN(2)}
	case depth == 0:
		return "text " + strconv.Itoa(rng.IntN(2))
	}
	return anyObject(rng, depth-1, rng.IntN(4))
}

func anyObject(rng *rand.Rand, depth, most int) object {
	o, taken := object{}, map[string]bool{}
	for range most {
		if name := "m\x00" + strconv.Itoa(rng.IntN(2*most)); !taken[name] {
			taken[name] = true
			o.Add(name, anyValue(rng, depth))
		}
	}
	return o
}

// A reader that merges all changes has the state.
func TestChangesMerge(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 16))
	parse := func(o object) (v any) {
		if err := json.Unmarshal(o.Append(nil), &v); err != nil {
			t.Fatal(err)
		}
		return v
	}
	for i := range 3000 {
		most := 6
		if i%10 == 0 {
			most = 3 * few
		}
		from, to := stripped(anyObject(rng, 2, most)), stripped(anyObject(rng, 2, most))
		if i%3 == 0 {
			to = append(object{}, from...)
			if len(to) > 0 {
				at := rng.IntN(len(to))
				to[at] = member{to[at][0], 77}
			}
		}
		c := change(from, to)
		if got := merge(parse(from), parse(c)); !reflect.DeepEqual(got, parse(to)) {
			t.Fatalf("from %s with %s: got %v, want %s", from.Append(nil), c.Append(nil), got, to.Append(nil))
		}
		if c := change(to, to); len(c) > 0 {
			t.Fatalf("%s and itself differ by %s", to.Append(nil), c.Append(nil))
		}
	}
}

func TestStrippedHasNoNull(t *testing.T) {
	o := stripped(object{{"a", nil}, {"nan", math.NaN()}, {"most", math.Inf(1)}, {"b", object{{"c", nil}, {"d", 1}}}, {"e", []object{{{"to_ms", nil}}}}})
	twice := stripped(object{{"a", 1}, {"a", 2}, {"b", 1}, {"b", nil}})
	if got := string(jsonobj.Append(nil, twice)); got != `{"a":2}` {
		t.Error(got)
	}
	if got := string(jsonobj.Append(nil, o)); got != `{"b":{"d":1},"e":[{"to_ms":null}]}` {
		t.Error(got)
	}
}
