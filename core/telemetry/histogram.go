package telemetry

import (
	"math"
	"sort"
	"sync/atomic"
)

// Histogram counts values in fixed buckets. Any goroutine may use it.
type Histogram struct {
	bounds        []float64 // upper bounds, inclusive, ascending
	counts        []atomic.Uint64
	sumWhole      atomic.Int64 // the sum's integer part
	sumMillionths atomic.Int64 // the sum's fraction: a single number for both would overflow when bytes are counted
}

// NewHistogram returns an empty histogram with these ascending upper bounds, and a bucket above the last one. It retains
// bounds.
func NewHistogram(bounds []float64) *Histogram {
	return &Histogram{bounds: bounds, counts: make([]atomic.Uint64, len(bounds)+1)}
}

// Latencies are bounds for latencies of a disk, in seconds. The slice does not change.
var Latencies = []float64{.00005, .0001, .00025, .0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10}

const millionths = 1e6

// Add counts a value n times.
func (h *Histogram) Add(value float64, n uint64) {
	h.counts[sort.SearchFloat64s(h.bounds, value)].Add(n)
	h.addSum(value * float64(n))
}

func (h *Histogram) addSum(sum float64) {
	whole, rest := math.Modf(sum)
	h.sumWhole.Add(int64(whole))
	if m := int64(math.Round(rest * millionths)); m != 0 {
		h.sumMillionths.Add(m)
	}
}

// merge adds values that have already been counted by bucket.
func (h *Histogram) merge(counts []uint64, sum float64) {
	for i, n := range counts {
		if n > 0 {
			h.counts[i].Add(n)
		}
	}
	h.addSum(sum)
}

// Distribution is a histogram at one moment.
type Distribution struct {
	Bounds []float64 // upper bounds, inclusive
	Counts []uint64  // one more than bounds; not cumulative
	Count  uint64
	Sum    float64
}

// Read returns the state of the histogram; nil reads as empty.
func (h *Histogram) Read() Distribution {
	if h == nil {
		return Distribution{Counts: []uint64{0}}
	}
	d := Distribution{Bounds: h.bounds, Counts: make([]uint64, len(h.counts)), Sum: float64(h.sumWhole.Load()) + float64(h.sumMillionths.Load())/millionths}
	for i := range h.counts {
		d.Counts[i] = h.counts[i].Load()
		d.Count += d.Counts[i]
	}
	return d
}
