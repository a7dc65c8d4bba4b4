package consistenthash

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/curfewmq/curfew/sdk/hook"
	"github.com/curfewmq/curfew/sdk/hooktest"
)

// The queues to which messages went in the first release. If this test fails, an upgrade would send messages elsewhere.
func TestPlacementNeverChanges(t *testing.T) {
	x := exchange(t)
	for q, w := range map[string]string{"q1": "1", "q2": "1", "q3": "2", "q4": "3", "q5": "7"} {
		bind(t, x, q, w)
	}
	y := exchange(t)
	for i := range 10 {
		bind(t, y, fmt.Sprint("q", i), "1")
	}
	var gotX, gotY []string
	for i := range 16 {
		gotX = append(gotX, x.Queues(t, fmt.Sprint("order.", i*100), hooktest.Content{}))
		gotY = append(gotY, y.Queues(t, strings.Repeat("ü", i), hooktest.Content{}))
	}
	if want := []string{"q5", "q1", "q5", "q5", "q5", "q5", "q5", "q4", "q2", "q5", "q2", "q3", "q5", "q4", "q3", "q3"}; !slices.Equal(gotX, want) {
		t.Errorf("got  %q\nwant %q", gotX, want)
	}
	if want := []string{"q0", "q7", "q7", "q8", "q4", "q4", "q0", "q1", "q2", "q0", "q2", "q7", "q1", "q2", "q8", "q8"}; !slices.Equal(gotY, want) {
		t.Errorf("got  %q\nwant %q", gotY, want)
	}
}

func TestHashesNeverChange(t *testing.T) {
	for key, want := range map[string]uint64{
		"": 0, "a": 0x7aba1c7983221869, "order.1": 0x94308f6f77cbcb98, "12345678": 0x95fe1c10a9bf61ca,
		"123456789": 0xba78dcca948e0fae, "123e4567-e89b-12d3-a456-426614174000": 0xfdcd49c0f2eabc,
	} {
		if got := hashKey(key); got != want {
			t.Errorf("%q: %#x, want %#x", key, got, want)
		}
		if hashKey(key) != hashKey([]byte(key)) {
			t.Errorf("%q has another hash as bytes", key)
		}
	}
	if got, want := hashName("q1", false), uint64(0xa3e1c0c5b25f9477); got != want {
		t.Errorf("queue q1: %#x, want %#x", got, want)
	}
	if got, want := hashName("q1", true), uint64(0xe337e341e3a907cf); got != want {
		t.Errorf("exchange q1: %#x, want %#x", got, want)
	}
}

// naive places messages by the definition: at the nearest of all points of all destinations.
func (r *router) naive(h uint64) hook.Destination {
	r.Prepare()
	var best *node
	least := math.Inf(1)
	var leastPoint uint32
	for i := range r.nodes {
		n := &r.nodes[i]
		if n.weight == 0 {
			continue
		}
		count := int(math.Round(256 * float64(n.weight) / math.Exp2(math.Floor(math.Log2(float64(n.weight))))))
		for j := range count {
			point := uint32(mix(n.name+uint64(j)*wordFactor) >> 33)
			state := h
			for range 6 {
				state += wordFactor
				for _, p := range []uint32{uint32(mix(state)), uint32(mix(state) >> 32)} {
					d := float64((point-p)%circle) / math.Exp2(math.Floor(math.Log2(float64(n.weight))))
					if d < least || d == least && n != best && (point < leastPoint || point == leastPoint && n.name < best.name) {
						best, least, leastPoint = n, d, point
					}
				}
			}
		}
	}
	return best.dest
}

// Queues with various weights come and go. Messages go where the definition says, whatever order the queues were
// bound in.
func TestModel(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	weights := []string{"1", "1", "1", "2", "3", "5", "100", "1023", "2147483647"}
	x := bound()
	type binding struct {
		queue  int
		weight string
	}
	var model []binding
	for range 60 / fewer {
		b := binding{r.IntN(40), weights[r.IntN(len(weights))]}
		switch i := slices.Index(model, b); {
		case i < 0 && r.IntN(5) > 0:
			x.Bind(bindingOf(b.queue, b.weight))
			model = append(model, b)
		case i >= 0:
			x.Unbind(bindingOf(b.queue, b.weight))
			model = slices.Delete(model, i, i+1)
		}
		if len(model) == 0 {
			continue
		}
		other := bound()
		for _, i := range r.Perm(len(model)) {
			other.Bind(bindingOf(model[i].queue, model[i].weight))
		}
		for range 3 {
			h := r.Uint64()
			if got, want := x.to(h), x.naive(h); got != want {
				t.Fatalf("with %v, %#x goes to %d, want %d", model, h, got, want)
			}
			if got, want := other.to(h), x.to(h); got != want {
				t.Fatalf("with %v, %#x goes to %d, bound in another order to %d", model, h, want, got)
			}
		}
	}
	for _, b := range model {
		x.Unbind(bindingOf(b.queue, b.weight))
	}
	if dst := x.Route(hooktest.Publish(0, "k", hooktest.Content{}), nil); len(dst) != 0 || len(x.index) != 0 || len(x.used) != 0 {
		t.Errorf("with nothing bound: routes to %v, %d destinations, rings %v", dst, len(x.index), x.used)
	}
}

// Two exchanges of RabbitMQ 3.10 with weights 1 to 2 distributed 600 messages as 101, 98, 216 and 185. Here 100,000 differ by a few percent.
func TestWeights(t *testing.T) {
	const messages = 200_000
	hashes := make([]uint64, messages)
	for i := range hashes {
		hashes[i] = hashKey(fmt.Sprint("customer ", i))
	}
	many := func(n int, w string) []string { return slices.Repeat([]string{w}, n) }
	for _, tc := range []struct {
		name    string
		weights []string
		within  float64 // of a share
	}{
		{"one", many(1, "7"), 0},
		{"2", many(2, "1"), 0.04},
		{"3", many(3, "1"), 0.04},
		{"10", many(10, "1"), 0.05},
		{"100", many(100, "1"), 0.08},
		{"README", []string{"1", "1", "2", "2"}, 0.04},
		{"steps", []string{"1", "2", "3", "4", "5"}, 0.05},
		{"far apart", []string{"10", "1000"}, 0.10},
		{"highest", append(many(9, "2147483647"), "1073741824"), 0.05},
		{"many rings", []string{"1", "2", "4", "8", "16", "32"}, 0.06},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r, sum := bound(tc.weights...), 0.0
			for _, n := range r.nodes {
				sum += float64(n.weight)
			}
			got := make([]int, len(tc.weights))
			for _, h := range hashes {
				got[r.to(h)]++
			}
			for i, n := range r.nodes {
				want := messages * float64(n.weight) / sum
				if math.Abs(float64(got[i])-want) > want*tc.within {
					t.Errorf("queue %d of weight %d got %d messages, want %.0f within %.0f %%", i, n.weight, got[i], want, 100*tc.within)
				}
			}
		})
	}
}

// A new queue takes its share from all others, and returns it when it goes. No message moves between the others.
func TestOnlyTheShareOfAQueueMoves(t *testing.T) {
	const messages = 20_000
	for _, n := range []int{1, 2, 9, 99} {
		r := bound(slices.Repeat([]string{"1"}, n)...)
		before := make([]hook.Destination, messages)
		for i := range before {
			before[i] = r.to(hashKey(strconv.Itoa(i)))
		}
		r.Bind(bindingOf(n, "1"))
		moved := 0
		for i := range before {
			now := r.to(hashKey(strconv.Itoa(i)))
			if now != before[i] {
				moved++
			}
			if now != before[i] && now != hook.Destination(n) {
				t.Fatalf("%d queues: message %d moved from queue %d to %d, which is not new", n, i, before[i], now)
			}
		}
		share := messages / (n + 1)
		if moved < share*75/100 || moved > share*125/100 {
			t.Errorf("%d queues: %d messages moved to a new one, want about %d", n, moved, share)
		}
		r.Unbind(bindingOf(n, "1"))
		for i := range before {
			if now := r.to(hashKey(strconv.Itoa(i))); now != before[i] {
				t.Fatalf("%d queues: message %d went to %d before another queue came and went, now to %d", n, i, before[i], now)
			}
		}
	}
}

// A higher weight takes messages from others. Where the weight passes a power of two, the queue's points change, and it gives a few away.
func TestChangeOfWeight(t *testing.T) {
	const messages = 20_000
	r := bound("1", "1", "1")
	for _, tc := range []struct {
		weight string
		away   int // at most
	}{{"2", 0}, {"3", 0}, {"4", messages / 16}, {"5", 0}, {"7", 0}, {"100", messages / 16}, {"127", 0}} {
		before := make([]hook.Destination, messages)
		for i := range before {
			before[i] = r.to(hashKey(strconv.Itoa(i)))
		}
		old := r.nodes[0].weight
		r.Bind(bindingOf(0, tc.weight)) // as one changes a weight without a gap: the new binding first
		r.Unbind(bindingOf(0, strconv.FormatUint(uint64(old), 10)))
		away, among := 0, 0
		for i := range before {
			switch now := r.to(hashKey(strconv.Itoa(i))); {
			case now == before[i] || now == 0:
			case before[i] == 0:
				away++
			default:
				among++
			}
		}
		if away > tc.away || among > 0 {
			t.Errorf("weight %d to %s: %d of %d messages left the queue, want at most %d; %d moved between others",
				old, tc.weight, away, messages, tc.away, among)
		}
	}
}

// If a queue has several bindings, the highest weight counts, in whatever order they came. RabbitMQ uses the first one, after a restart
// another one, and none at all after any of them was removed.
func TestSeveralBindingsOfAQueue(t *testing.T) {
	for _, order := range [][]string{{"1", "3", "2"}, {"3", "2", "1"}, {"2", "1", "3"}} {
		r := bound("1", "1")
		check := func(what string, want ...string) {
			t.Helper()
			other := bound(want...)
			for i := range 2000 {
				if h := hashKey(strconv.Itoa(i)); r.to(h) != other.to(h) {
					t.Fatalf("order %v, %s: not as with weights %v", order, what, want)
				}
			}
		}
		r.Unbind(bindingOf(0, "1"))
		for _, w := range order {
			r.Bind(bindingOf(0, w))
		}
		check("all", "3", "1")
		r.Unbind(bindingOf(0, "3"))
		check("without 3", "2", "1")
		r.Unbind(bindingOf(0, "1"))
		check("without 1", "2", "1")
	}
	x := exchange(t)
	bind(t, x, "a", "1", hook.Arg{Name: "n", Value: int32(1)})
	bind(t, x, "a", "1", hook.Arg{Name: "n", Value: int32(2)})
	x.Unbind("a", "1", hook.Arg{Name: "n", Value: int32(1)})
	if got := x.Queues(t, "k", hooktest.Content{}); got != "a" {
		t.Errorf("one of two bindings was removed, and a message goes to %q", got)
	}
}
