package mgmt

import (
	"slices"
	"sync"
	"time"

	"github.com/curfewmq/curfew/core/report"
	"github.com/curfewmq/curfew/sdk/hook"
)

// meters turn counts into rates. They sample a count when a request asks for it, and measure nothing otherwise. A rate is that
// of the time between two samples, which are at least an interval apart; the first request gets zero. Counts that nobody asks
// for any more are forgotten.
type meters struct {
	clock    func() hook.Instant
	interval time.Duration

	mu    sync.Mutex // guards what follows
	all   map[any]*meter
	swept hook.Instant
}

// meter is the last sample of the counts of one thing.
type meter struct {
	at     hook.Instant  // of counts
	over   time.Duration // between the two samples that the rates are of; 0 = there was one only
	asked  hook.Instant
	counts []int64
	rates  []float64 // per second; below zero for what has become less
}

const (
	// forgetAfter is how long a meter is kept that nobody asks for.
	forgetAfter = 10 * time.Minute
	// current is how long the time between two samples may be, if their rates are to say how it is now. It is longer if the interval is.
	current = 15 * time.Second
	// maxMeters limits their memory, some 300 bytes each.
	maxMeters = 50_000
)

func newMeters(clock func() hook.Instant, interval time.Duration) *meters {
	return &meters{clock: clock, interval: interval, all: map[any]*meter{}}
}

// rates samples the counts of a key and returns their rates. A key always has the same number of counts.
func (ms *meters) rates(key any, counts []int64) []float64 {
	rates, _ := ms.measure(key, counts)
	return rates
}

// measure is rates, and reports whether these say how it is now. Otherwise they are zero, for want of a second sample, or the average of a
// time in which nobody asked.
func (ms *meters) measure(key any, counts []int64) (rates []float64, known bool) {
	now := ms.clock()
	ms.mu.Lock()
	defer ms.mu.Unlock()
	ms.sweep(now)
	m := ms.all[key]
	if m == nil {
		m = &meter{at: now, counts: slices.Clone(counts), rates: make([]float64, len(counts))}
		if len(ms.all) < maxMeters {
			ms.all[key] = m
		}
	}
	m.asked = now
	if passed := now.Sub(m.at); passed > 0 && passed >= ms.interval {
		m.sample(passed, counts)
		m.at, m.over = now, passed
	}
	return m.rates, m.over > 0 && m.over <= max(current, 3*ms.interval)
}

// sample replaces the last sample, from which some time has passed. Slices of rates that callers hold stay unchanged.
func (m *meter) sample(passed time.Duration, counts []int64) {
	rates := make([]float64, len(counts))
	for i, n := range counts {
		rates[i] = float64(n-m.counts[i]) / passed.Seconds()
	}
	m.rates = rates
	copy(m.counts, counts)
}

// sweep forgets meters that nobody asks for. The caller holds mu.
func (ms *meters) sweep(now hook.Instant) {
	if now.Sub(ms.swept) < forgetAfter/2 {
		return
	}
	ms.swept = now
	for key, m := range ms.all {
		if now.Sub(m.asked) > forgetAfter {
			delete(ms.all, key)
		}
	}
}

// namedCount is a count with the names of its member and of that of its rate. The names are constants: as values of type any they
// cost nothing, while others would cost an allocation for each object.
type namedCount struct {
	name, details any
	n             int64
}

// ratesOf returns the rates of counts, in the same order.
func (ms *meters) ratesOf(key any, counts []namedCount) (r report.Rates) {
	const most = 16 // of counts that cost no allocation
	ns := make([]int64, 0, most)
	for _, it := range counts {
		ns = append(ns, it.n)
	}
	r.PerSecond, r.Known = ms.measure(key, ns)
	return r
}

// append appends counts with their rates.
func (ms *meters) append(o object, key any, counts []namedCount) object {
	return appendRates(o, counts, ms.ratesOf(key, counts).PerSecond)
}

// shown returns the rates that the answer to a query shows; nil, as it may want, for those that are not known.
func (q *query) shown(r report.Rates) []float64 {
	if !r.Known && q.unknown {
		return nil
	}
	return r.PerSecond
}

// appendRates appends counts with their rates as RabbitMQ names them: "publish" and "publish_details". Without rates they are null.
func appendRates(o object, counts []namedCount, rates []float64) object {
	for i, it := range counts {
		var rate any
		if i < len(rates) {
			rate = rates[i]
		}
		o = append(o, member{it.name, it.n}, member{it.details, object{{"rate", rate}}})
	}
	return o
}

func appendCounts(o object, counts []namedCount) object {
	for _, it := range counts {
		o = append(o, member{it.name, it.n})
	}
	return o
}
