package journal

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/curfewmq/curfew/core/telemetry"
)

// filledBuckets returns the bounds of the buckets with something in them.
func filledBuckets(d *telemetry.Distribution) (bounds []float64) {
	for i, n := range d.Counts {
		if n > 0 {
			bounds = append(bounds, append(d.Bounds, -1)[i])
		}
	}
	return bounds
}

func TestStatsOfEntries(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &memLog{hoard: true, gate: make(chan struct{})}
		s, h := open(t, l, Options{}), &history{}
		post(s, h, "first")
		synctest.Wait()
		for range 100 {
			post(s, h, strings.Repeat("x", 90))
		}
		time.Sleep(3 * time.Second)
		l.gate <- struct{}{}
		time.Sleep(20 * time.Millisecond)
		l.gate <- struct{}{}
		synctest.Wait()
		if err := s.Sync(); err != nil { // has no entry
			t.Error(err)
		}
		st := s.Stats()
		for _, tc := range []struct {
			name   string
			got    telemetry.Distribution
			bounds []float64
			sum    float64
		}{
			{"latency", st.Latency, []float64{.025, 5}, 3.02},
			{"group", st.Group, []float64{1, 128}, 101},
			{"size", st.Size, []float64{256, 16 << 10}, 9005},
		} {
			if got := filledBuckets(&tc.got); !slices.Equal(got, tc.bounds) || tc.got.Count != 2 || tc.got.Sum != tc.sum {
				t.Errorf("%s: got %+v, want one up to each of %v, sum %v", tc.name, tc.got, tc.bounds, tc.sum)
			}
		}
	})
}

func TestEntriesThatFailAreNotMeasured(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &memLog{refuse: func(int) error { return errors.New("broken") }}
		s, h := open(t, l, Options{}), &history{}
		post(s, h, "first")
		synctest.Wait()
		if st := s.Stats(); st.Latency.Count+st.Group.Count+st.Size.Count > 0 {
			t.Errorf("got %+v", st)
		}
	})
}
