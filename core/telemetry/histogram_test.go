package telemetry

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/curfewmq/curfew/sdk/hook"
)

func TestHistogram(t *testing.T) {
	h := NewHistogram([]float64{1, 2, 5})
	for _, v := range []float64{0, 1, 1.5, 2, 5, 5.5} {
		h.Add(v, 1)
	}
	h.Add(100, 3)
	d := h.Read()
	if want := []uint64{2, 2, 1, 4}; !slices.Equal(d.Counts, want) {
		t.Errorf("counts %v, want %v", d.Counts, want)
	}
	if d.Count != 9 || d.Sum != 315 {
		t.Errorf("%d values with a sum of %v, want 9 with 315", d.Count, d.Sum)
	}
}

// The bytes a log writes in its lifetime exceed 2^63 millionths of a byte.
func TestSumsOfBytes(t *testing.T) {
	h := NewHistogram([]float64{1})
	const entry, n = 4 << 20, 10_000_000
	h.Add(entry, n)
	h.Add(0.25, 3)
	if d := h.Read(); d.Sum != entry*n+0.75 {
		t.Errorf("a sum of %v, want %v", d.Sum, entry*n+0.75)
	}
}

func TestLatenessIsOfTheExpiredAlone(t *testing.T) {
	r := New(Options{Events: 8})
	now := hook.Instant(10 * time.Second)
	r.Removed(&QueueRef{Strategy: "deadline"}, now, []Removal{
		{Reason: hook.ReasonExpired, Deadline: now - hook.Instant(3*time.Millisecond)},
		{Reason: hook.ReasonExpired, Deadline: now - hook.Instant(time.Second), Underway: time.Second},
		{Reason: hook.ReasonRejected, Deadline: now + hook.Instant(time.Second)},
		{Reason: hook.ReasonExpired, Deadline: now - hook.Instant(time.Minute), Underway: -1}, // lateness unknown
		{Reason: hook.ReasonExpired, Deadline: now - hook.Instant(2*time.Second), Overstayed: true},
		{Reason: hook.ReasonRejected, Deadline: now - hook.Instant(time.Second), Overstayed: true},
	})
	d := r.Lateness().Read()["deadline"]
	if d.Count != 2 || d.Sum != 0.003 {
		t.Errorf("%d messages, %v s late in all; want 2, 0.003 s", d.Count, d.Sum)
	}
	if d := r.Lateness().Overstays()["deadline"]; d.Count != 1 || d.Sum != 2 {
		t.Errorf("consumers had %d messages past their deadlines, %v s in all; want 1, 2 s", d.Count, d.Sum)
	}
}

// Lateness has its own bucket search, which must agree with the histogram's.
func TestLatenessIsAHistogram(t *testing.T) {
	var l Lateness
	want := newLateness()
	rng := rand.New(rand.NewPCG(1, 2))
	now := hook.Instant(100 * time.Hour)
	for range 50 {
		var ls []Removal
		for range rng.IntN(20) {
			late := time.Duration(rng.Int64N(1 << rng.IntN(43)))
			if rng.IntN(3) == 0 {
				late = latenessBounds[rng.IntN(len(latenessBounds))]
			}
			ls = append(ls, Removal{Reason: hook.ReasonExpired, Deadline: now - hook.Instant(late)})
			want.Add(late.Seconds(), 1)
		}
		l.add(&QueueRef{Strategy: "ttl"}, now, ls)
	}
	got, h := l.Read()["ttl"], want.Read()
	if !slices.Equal(got.Counts, h.Counts) || !slices.Equal(got.Bounds, h.Bounds) || math.Abs(got.Sum-h.Sum) > 0.001 {
		t.Errorf("got %+v, want %+v", got, h)
	}
}

func TestLatenessBoundsItsStrategies(t *testing.T) {
	var l Lateness
	for i := range 200 {
		l.add(&QueueRef{Strategy: "wasm/" + string(rune('a'+i))}, 2, []Removal{{Reason: hook.ReasonExpired, Deadline: 1}})
	}
	if n := len(l.Read()); n != maxStrategies+1 {
		t.Errorf("%d distributions, want %d", n, maxStrategies+1)
	}
}
