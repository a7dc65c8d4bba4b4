package random

import (
	"fmt"
	"strconv"
	"testing"

	"go.uber.org/goleak"

	"github.com/curfewmq/curfew/sdk/hook"
	"github.com/curfewmq/curfew/sdk/hooktest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestConformance(t *testing.T) { hooktest.Run(t, Factory) }

func exchange(tb testing.TB) *hooktest.Exchange {
	tb.Helper()
	return hooktest.NewExchange(tb, hooktest.New(tb, Factory, nil), hooktest.ExchangeSpec{Type: "x-random"})
}

func bind(tb testing.TB, x *hooktest.Exchange, queue, key string, args ...hook.Arg) {
	tb.Helper()
	if err := x.Bind(queue, key, args...); err != nil {
		tb.Fatal(err)
	}
}

// The limits below are ten standard deviations from the mean, which chance does not exceed.
func TestEveryBindingCounts(t *testing.T) {
	x := exchange(t)
	bind(t, x, "one", "a")
	bind(t, x, "two", "a")
	bind(t, x, "two", "b")
	bind(t, x, "three", "")
	bind(t, x, "three", "", hook.Arg{Name: "n", Value: int32(1)})
	bind(t, x, "three", "", hook.Arg{Name: "n", Value: int32(2)})
	check := func(want map[string]int) {
		t.Helper()
		const n = 60_000
		got := map[string]int{}
		for range n {
			got[x.Queues(t, "the same key", hooktest.Content{})]++
		}
		for q, w := range want {
			if got[q] < w-1250 || got[q] > w+1250 {
				t.Errorf("%s got %d of %d messages, want about %d", q, got[q], n, w)
			}
		}
		if len(got) != len(want) {
			t.Errorf("messages went to %v", got)
		}
	}
	check(map[string]int{"one": 10_000, "two": 20_000, "three": 30_000})
	x.Unbind("three", "")
	x.Unbind("one", "a")
	check(map[string]int{"two": 30_000, "three": 30_000})
}

// Bindings of many queues come and go. Each message goes to exactly one bound queue.
func TestBindingsComeAndGo(t *testing.T) {
	x := exchange(t)
	route := func() string { return x.Queues(t, "", hooktest.Content{}) }
	if to := route(); to != "" {
		t.Fatalf("went to %q without a binding", to)
	}
	const queues = 50
	for i := range queues {
		bind(t, x, strconv.Itoa(i), "")
	}
	for i := range queues {
		seen := map[string]bool{}
		for range 200 * (queues - i) {
			seen[route()] = true
		}
		if len(seen) != queues-i {
			t.Fatalf("%d queues are bound, messages went to %d", queues-i, len(seen))
		}
		gone := strconv.Itoa(i * 7 % queues)
		x.Unbind(gone, "")
		for range 200 {
			if route() == gone {
				t.Fatalf("queue %s got a message after it was unbound", gone)
			}
		}
	}
}

func BenchmarkRoute(b *testing.B) {
	x := exchange(b)
	for i := range 100 {
		bind(b, x, fmt.Sprint("q", i), "")
	}
	hooktest.BenchRoute(b, x, hooktest.Publish(0, "k", hooktest.Content{}))
}
