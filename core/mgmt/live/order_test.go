package live

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/curfewmq/curfew/core/queue"
	"github.com/curfewmq/curfew/sdk/hook"
)

// A page is a part of the sorted list, in which entries without a key come last.
func TestPages(t *testing.T) {
	rng := rand.New(rand.NewPCG(2, 16))
	for _, n := range []int{0, 1, 50, 3000} {
		all := make([]*Entry, n)
		for i := range all {
			all[i] = &Entry{Config: &queue.Config{Profile: &queue.Profile{}, Name: fmt.Sprintf("q%05d", i)}}
			if rng.IntN(3) > 0 {
				all[i].Stats.NextDeadline = hook.Instant(1 + rng.IntN(500))
			}
		}
		for _, reverse := range []bool{false, true} {
			o := Order{Reverse: reverse, Key: func(e *Entry) any { return InstantKey(e.Stats.NextDeadline) }}
			sorted := slices.Clone(all)
			slices.SortStableFunc(sorted, func(a, b *Entry) int {
				x, y := a.Stats.NextDeadline, b.Stats.NextDeadline
				switch {
				case (x == 0) != (y == 0):
					return cmp.Compare(y, x) // 0 is last
				case reverse:
					return cmp.Compare(y, x)
				}
				return cmp.Compare(x, y)
			})
			checkPages(t, &o, all, sorted)
			byName := slices.Clone(all)
			if reverse {
				slices.Reverse(byName)
			}
			checkPages(t, &Order{Reverse: reverse}, all, byName)
			checkPages(t, &Order{Reverse: reverse, Key: func(e *Entry) any { return e.Config.Name }}, all, byName)
		}
	}
}

func checkPages(t *testing.T, o *Order, all, sorted []*Entry) {
	t.Helper()
	const size = 100
	for from := 0; from <= len(all); from += size {
		got, keys := o.Page(all, from, size)
		if want := sorted[from:min(from+size, len(all))]; !slices.Equal(got, want) || len(keys) != len(want) {
			t.Fatalf("%+v, from %d of %d: %d entries, want %d; they differ", *o, from, len(all), len(got), len(want))
		}
	}
}
