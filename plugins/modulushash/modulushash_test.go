package modulushash

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/curfewmq/curfew/sdk/hook"
	"github.com/curfewmq/curfew/sdk/hooktest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestConformance(t *testing.T) { hooktest.Run(t, Factory) }

func exchange(tb testing.TB) *hooktest.Exchange {
	tb.Helper()
	return hooktest.NewExchange(tb, hooktest.New(tb, Factory, nil), hooktest.ExchangeSpec{Type: "x-modulus-hash"})
}

func bind(tb testing.TB, x *hooktest.Exchange, queue, key string, args ...hook.Arg) {
	tb.Helper()
	if err := x.Bind(queue, key, args...); err != nil {
		tb.Fatal(err)
	}
}

// share publishes with the keys 0 to n-1, and counts the messages per queue.
func share(t *testing.T, x *hooktest.Exchange, n int) map[string]int {
	t.Helper()
	got := map[string]int{}
	for i := range n {
		got[x.Queues(t, strconv.Itoa(i), hooktest.Content{})]++
	}
	return got
}

// The queues to which messages went in the first release. If this test fails, an upgrade would send messages elsewhere.
func TestPlacementNeverChanges(t *testing.T) {
	x := exchange(t)
	for _, q := range []string{"q4", "q1", "q3", "q2"} {
		bind(t, x, q, "")
	}
	var got []string
	for _, key := range []string{"", "a", "b", "order.1", "order.2", "123e4567-e89b-12d3-a456-426614174000", strings.Repeat("ü", 100)} {
		got = append(got, x.Queues(t, key, hooktest.Content{}))
	}
	if want := []string{"q1", "q4", "q3", "q1", "q4", "q1", "q4"}; !slices.Equal(got, want) {
		t.Errorf("got  %q\nwant %q", got, want)
	}
}

// RabbitMQ 4.3 sorts destinations, too; older versions sent messages elsewhere after a restart.
func TestOrderOfBindingsDoesNotMatter(t *testing.T) {
	var queues []string
	for i := range 40 {
		queues = append(queues, fmt.Sprint("q-", i))
	}
	place := func(order []string) []string {
		x := exchange(t)
		for _, q := range order {
			bind(t, x, q, q) // the binding key means nothing
		}
		var to []string
		for i := range 500 {
			to = append(to, x.Queues(t, strconv.Itoa(i), hooktest.Content{}))
		}
		return to
	}
	want := place(queues)
	r := rand.New(rand.NewPCG(1, 2))
	for range 5 {
		r.Shuffle(len(queues), func(i, j int) { queues[i], queues[j] = queues[j], queues[i] })
		if !slices.Equal(place(queues), want) {
			t.Fatalf("bound in the order %q, messages go elsewhere", queues)
		}
	}
}

func TestEveryBindingCounts(t *testing.T) {
	x := exchange(t)
	bind(t, x, "one", "")
	bind(t, x, "two", "a")
	bind(t, x, "two", "b")
	bind(t, x, "three", "a")
	bind(t, x, "three", "a", hook.Arg{Name: "n", Value: int32(1)})
	bind(t, x, "three", "a", hook.Arg{Name: "n", Value: int32(2)})
	bind(t, x, "three", "a") // is there already
	check := func(want map[string]int) {
		t.Helper()
		const n = 60_000
		total := 0
		for _, w := range want {
			total += w
		}
		got := share(t, x, n)
		for q, w := range want {
			if low, high := n*w/total*95/100, n*w/total*105/100; got[q] < low || got[q] > high {
				t.Errorf("%s got %d of %d messages, want %d to %d", q, got[q], n, low, high)
			}
		}
		if len(got) != len(want) {
			t.Errorf("messages went to %v", slices.Sorted(maps.Keys(got)))
		}
	}
	check(map[string]int{"one": 1, "two": 2, "three": 3})
	x.Unbind("three", "a")
	x.Unbind("one", "")
	check(map[string]int{"two": 1, "three": 1})
}

// The keys in CC and BCC headers are hashed together with the routing key, and lead to one queue.
func TestCarbonCopies(t *testing.T) {
	x := exchange(t)
	for i := range 10 {
		bind(t, x, fmt.Sprint("q", i), "")
	}
	seen := map[string]bool{}
	for i := range 100 {
		to, err := x.Route(hooktest.Publish(0, "same", hooktest.Content{}, strconv.Itoa(i)))
		if err != nil || len(to) != 1 {
			t.Fatalf("routed to %q, %v", to, err)
		}
		seen[to[0]] = true
	}
	if len(seen) != 10 {
		t.Errorf("100 different CC headers led to %d of 10 queues", len(seen))
	}
	one, _ := x.Route(hooktest.Publish(0, "a", hooktest.Content{}, "bc"))
	for range 3 {
		if again, _ := x.Route(hooktest.Publish(0, "a", hooktest.Content{}, "bc")); !slices.Equal(one, again) {
			t.Errorf("the same keys led to %q and to %q", one, again)
		}
	}
	// The border between keys is part of the hash.
	m := func(key string, more ...string) uint64 { return hash(&hook.Publishing{Key: key, More: more}) }
	if m("ab", "c") == m("a", "bc") || m("a") == m("a", "") {
		t.Error("keys are hashed as one text")
	}
}

func TestNothingBound(t *testing.T) {
	x := exchange(t)
	bind(t, x, "q", "")
	x.Unbind("q", "")
	if to := x.Queues(t, "k", hooktest.Content{}); to != "" {
		t.Errorf("went to %s without a binding", to)
	}
}

// After any sequence of bindings and unbindings, routing equals that by a list sorted for each message.
func TestModel(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	x := exchange(t)
	type binding struct{ queue, key string }
	model := map[binding]bool{}
	for range 3000 {
		b := binding{fmt.Sprint("q", r.IntN(12)), strconv.Itoa(r.IntN(3))}
		if r.IntN(2) == 0 {
			bind(t, x, b.queue, b.key)
			model[b] = true
		} else if x.Unbind(b.queue, b.key) != model[b] {
			t.Fatalf("unbinding %v", b)
		} else {
			delete(model, b)
		}
		var sorted []string
		for b := range model {
			sorted = append(sorted, b.queue)
		}
		slices.Sort(sorted)
		key, want := strconv.FormatUint(r.Uint64(), 10), ""
		if n := len(sorted); n > 0 {
			want = sorted[hash(&hook.Publishing{Key: key})%uint64(n)]
		}
		if got := x.Queues(t, key, hooktest.Content{}); got != want {
			t.Fatalf("%s went to %q, want %q of %q", key, got, want, sorted)
		}
	}
}

func BenchmarkRoute(b *testing.B) {
	x := exchange(b)
	for i := range 100 {
		bind(b, x, fmt.Sprint("q", i), "")
	}
	hooktest.BenchRoute(b, x, hooktest.Publish(0, "123e4567-e89b-12d3-a456-426614174000", hooktest.Content{}))
}

func BenchmarkBind(b *testing.B) {
	for b.Loop() {
		r := &router{}
		for i := range 10_000 {
			r.Bind(&hook.Binding{Destination: hook.Destination(i), Name: fmt.Sprint("queue-", i*7919%10_000)})
		}
		r.Prepare()
	}
}
