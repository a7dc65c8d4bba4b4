package telemetry

import (
	"math"
	"testing"
)

func TestGap(t *testing.T) {
	for _, ratio := range []float64{0.9, 0.5, 0.01, 0.0001} {
		s := NewSpans(SpanOptions{Sampling: Sampling{Ratio: ratio}})
		const n = 20_000
		sum, none := 0.0, 0.0
		for range n {
			g := s.SkipCount()
			if g < 0 {
				t.Fatalf("ratio %v: a gap of %d", ratio, g)
			}
			sum += float64(g)
			if g == 0 {
				none++
			}
		}
		// Six times the usual difference.
		if got, want := sum/n, (1-ratio)/ratio; math.Abs(got-want) > 6*math.Sqrt(1-ratio)/ratio/math.Sqrt(n) {
			t.Errorf("ratio %v: gaps of %v on average, want %v", ratio, got, want)
		}
		if got := none / n; math.Abs(got-ratio) > 6*math.Sqrt(ratio*(1-ratio)/n) {
			t.Errorf("ratio %v: %v of them are 0", ratio, got)
		}
	}
	for ratio, want := range map[float64]int{1: 0, 0: math.MaxInt} {
		if got := NewSpans(SpanOptions{Sampling: Sampling{Ratio: ratio}}).SkipCount(); got != want {
			t.Errorf("ratio %v: got %d, want %d", ratio, got, want)
		}
	}
	if got := NewSpans(SpanOptions{Sampling: Sampling{Ratio: 5e-324}}).SkipCount(); got < 0 {
		t.Errorf("next to never: got %d", got)
	}
}
