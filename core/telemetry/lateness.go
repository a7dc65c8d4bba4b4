package telemetry

import (
	"math"
	"sort"
	"sync/atomic"
	"time"

	"github.com/curfewmq/curfew/sdk/hook"
)

// latenessBounds are the bounds of the lateness histograms.
var latenessBounds = [...]time.Duration{
	100 * time.Microsecond, 250 * time.Microsecond, 500 * time.Microsecond,
	time.Millisecond, 2500 * time.Microsecond, 5 * time.Millisecond, 10 * time.Millisecond, 25 * time.Millisecond, 50 * time.Millisecond,
	100 * time.Millisecond, 250 * time.Millisecond, 500 * time.Millisecond,
	time.Second, 2500 * time.Millisecond, 5 * time.Second, 10 * time.Second, time.Minute, 10 * time.Minute, time.Hour,
}

func newLateness() *Histogram {
	bounds := make([]float64, len(latenessBounds))
	for i, limit := range latenessBounds {
		bounds[i] = limit.Seconds()
	}
	return NewHistogram(bounds)
}

// Lateness has histograms of lateness, in seconds. Expired messages are counted by their
// queue's strategy, separately for those that consumers held past their deadlines, and
// released messages by the kind of object that held them. The zero value is ready for use.
type Lateness struct{ byStrategy, overstays, releases Strategies[Histogram] }

// add counts removals because of expiry, and releases. It runs in the queue's turn.
func (l *Lateness) add(q *QueueRef, now hook.Instant, rs []Removal) {
	addLateness(&l.byStrategy, q.Strategy, rs, func(r *Removal) (time.Duration, bool) {
		late, known := r.late(now)
		return late, known && r.Reason == hook.ReasonExpired && !r.Overstayed
	})
	addLateness(&l.overstays, q.Strategy, rs, func(r *Removal) (time.Duration, bool) {
		if !r.Overstayed || r.Reason != hook.ReasonExpired {
			return 0, false
		}
		return r.late(now)
	})
	addLateness(&l.releases, q.kind(), rs, func(r *Removal) (time.Duration, bool) { return r.afterHold(now) })
}

// addLateness adds the removals with a known lateness to the histogram of that name.
func addLateness(to *Strategies[Histogram], name string, rs []Removal, lateness func(*Removal) (time.Duration, bool)) {
	var counts [len(latenessBounds) + 1]uint64
	sum, found, at := 0., false, 0
	for i := range rs {
		late, known := lateness(&rs[i])
		if !known {
			continue
		}
		for at > 0 && late <= latenessBounds[at-1] { // most messages are about as late as the previous one
			at--
		}
		for at < len(latenessBounds) && late > latenessBounds[at] {
			at++
		}
		counts[at]++
		sum += float64(late)
		found = true
	}
	if found {
		to.Of(name, newLateness).merge(counts[:], sum/float64(time.Second))
	}
}

// Read returns the distributions of expired messages by strategy, except those of [Lateness.Overstays]; nil reads as empty.
func (l *Lateness) Read() map[string]Distribution {
	if l == nil {
		return nil
	}
	return distributions(&l.byStrategy)
}

// Overstays returns, by strategy, the distributions of messages that consumers held past
// their deadlines: the time from the deadline until they expired. nil reads as empty.
func (l *Lateness) Overstays() map[string]Distribution {
	if l == nil {
		return nil
	}
	return distributions(&l.overstays)
}

// Releases returns the distributions of released messages, by [OfQueues] and [OfExchanges]; nil reads as empty.
func (l *Lateness) Releases() map[string]Distribution {
	if l == nil {
		return nil
	}
	return distributions(&l.releases)
}

func distributions(histograms *Strategies[Histogram]) map[string]Distribution {
	all := map[string]Distribution{}
	for name, h := range histograms.All() {
		all[name] = h.Read()
	}
	return all
}

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

// Entered names the queues that a message entered. It is never modified: messages with the same route share one, and events refer
// to it for as long as they are stored.
type Entered struct {
	Names []string // the first ones, at most MostEntered
	More  int      // queues beyond these
}

// MostEntered bounds the queues that an [Entered] names: an exchange may have a hundred thousand bindings.
const MostEntered = 16
