package bench

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
)

func TestBucketsAreContiguousAndHoldTheirEdges(t *testing.T) {
	for i := range nBuckets - 1 {
		lo, hi := bucketLow(i), bucketHigh(i)
		if bucket(uint64(lo)) != i || bucket(uint64(hi)) != i || bucketLow(i+1) != hi+1 {
			t.Fatalf("bucket %d: edges %d..%d fall in %d and %d, next starts at %d", i, lo, hi, bucket(uint64(lo)), bucket(uint64(hi)), bucketLow(i+1))
		}
	}
	if got := bucket(math.MaxInt64); got != nBuckets-1 {
		t.Errorf("bucket(max int64) = %d, want the last, %d", got, nBuckets-1)
	}
}

func TestQuantileStaysWithinResolution(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	var h histogram
	var vs []int64
	for range 20_000 {
		v := rng.Int64N(10_000_000_000) >> rng.IntN(24)
		vs = append(vs, v)
		h.record(v, 1)
	}
	slices.Sort(vs)
	for _, q := range []float64{0.01, 0.5, 0.9, 0.99, 0.999} {
		exact := vs[int(math.Ceil(q*float64(len(vs))))-1]
		got := h.quantile(q)
		if got < exact || float64(got) > float64(exact)*1.016+1 {
			t.Errorf("quantile(%v) = %d, want %d or up to 1.6%% above", q, got, exact)
		}
	}
	if got := h.quantile(1); got != vs[len(vs)-1] {
		t.Errorf("quantile(1) = %d, want the maximum %d", got, vs[len(vs)-1])
	}
}

func TestQuantileOfSignedValues(t *testing.T) {
	cases := []struct {
		name   string
		values []int64
		q      float64
		want   int64
	}{
		{name: "empty", q: 0.5, want: 0},
		{name: "one value", values: []int64{1_000_003}, q: 0.001, want: 1_000_003},
		{name: "early half", values: []int64{-100, -50, 10, 20}, q: 0.5, want: -50},
		{name: "earliest", values: []int64{-100, -50, 10, 20}, q: 0.01, want: -100},
		{name: "late part", values: []int64{-100, -50, 10, 20}, q: 0.75, want: 10},
		{name: "all early", values: []int64{-7, -7, -7}, q: 0.99, want: -7},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			var h histogram
			for _, v := range c.values {
				h.record(v, 1)
			}
			if got := h.quantile(c.q); got != c.want {
				t.Errorf("quantile(%v) = %d, want %d", c.q, got, c.want)
			}
		})
	}
}

func TestMergeEqualsRecordingInOne(t *testing.T) {
	var a, b, all histogram
	for v := int64(-500); v < 5000; v += 7 {
		all.record(v*1000, 2)
		if v%2 == 0 {
			a.record(v*1000, 2)
			continue
		}
		b.record(v*1000, 2)
	}
	var empty histogram
	a.merge(&b)
	a.merge(&empty)
	if a != all {
		t.Errorf("merged: n %d min %d max %d, want n %d min %d max %d and equal buckets", a.n, a.min, a.max, all.n, all.min, all.max)
	}
}
