package live

import (
	"slices"
	"testing"
	"time"

	"github.com/curfewmq/curfew/sdk/hook"
)

// A rate is unknown before the second look, and after a long pause.
func TestRatesThatAreKnown(t *testing.T) {
	var r Rates
	now := hook.Instant(time.Hour)
	for _, look := range []struct {
		after time.Duration
		count uint64
		want  []float64
	}{
		{0, 100, nil},
		{2 * time.Second, 110, []float64{5}},
		{time.Second / 4, 111, nil}, // too soon
		{7 * time.Second / 4, 114, []float64{2}},
		{stale, 129, []float64{1}},
		{stale + time.Second, 100_000, nil},
		{time.Second, 100_003, []float64{3}},
	} {
		now = now.Add(look.after)
		if got := r.Rates(now, look.count); !slices.Equal(got, look.want) {
			t.Errorf("%v later: got %v, want %v", look.after, got, look.want)
		}
	}
}
