package mgmt

import (
	"slices"
	"sync"
	"time"

	"github.com/curfewmq/curfew/sdk/hook"
)

// meters turn counts into rates. They sample a count when a request asks for it, and measure nothing otherwise. A rate is the average over
// the time between two samples, which are at least an interval apart; the first request gets zero. Counts without requests are forgotten
// after a while.
type meters struct {
	clock    func() hook.Instant
	interval time.Duration

	mu    sync.Mutex // guards the fields below
	all   map[any]*meter
	swept hook.Instant
}

// meter is the last sample of the counts of one thing.
type meter struct {
	at     hook.Instant  // of counts
	over   time.Duration // between the two samples that the rates are of; 0 = there was one only
	asked  hook.Instant
	counts []int64
	rates  []float64 // per second; below zero if a count has decreased
}

const (
	// forgetAfter is how long a meter is kept without requests.
	forgetAfter = 10 * time.Minute
	// current is the longest time between two samples after which their rates count as current. It is longer for long intervals.
	current = 15 * time.Second
	// maxMeters limits their memory, some 300 bytes each.
	maxMeters = 50_000
)

func newMeters(clock func() hook.Instant, interval time.Duration) *meters {
	return &meters{clock: clock, interval: interval, all: map[any]*meter{}}
}

// measure samples the counts of a key, which always has the same number of counts. It returns their rates, and reports
// whether these are current. Otherwise they are zero, for want of a second sample, or an average over a long time without
// requests.
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

// sample replaces the last sample, after some time has passed. Slices of rates that callers hold stay unchanged.
func (m *meter) sample(passed time.Duration, counts []int64) {
	rates := make([]float64, len(counts))
	for i, n := range counts {
		rates[i] = float64(n-m.counts[i]) / passed.Seconds()
	}
	m.rates = rates
	copy(m.counts, counts)
}

// sweep forgets meters without recent requests. The caller holds mu.
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

// namedCount is a count with the names of its member and of its rate's. The names are constants: as values of type any these cost nothing,
// while other strings would cost an allocation for each object.
type namedCount struct {
	name, details any
	n             int64
}

// ratesOf returns the rates of counts, in the same order, and whether they are current.
func (ms *meters) ratesOf(key any, counts []namedCount) (rates []float64, known bool) {
	ns := make([]int64, len(counts))
	for i, it := range counts {
		ns[i] = it.n
	}
	return ms.measure(key, ns)
}

// append appends counts with their rates.
func (ms *meters) append(o object, key any, counts []namedCount) object {
	rates, _ := ms.ratesOf(key, counts)
	return appendRates(o, counts, rates)
}

// appendKnown is append for the answer to a query, which may want null for rates that are not known.
func (ms *meters) appendKnown(o object, key any, counts []namedCount, q *query) object {
	rates, known := ms.ratesOf(key, counts)
	if !known && q.unknown {
		rates = nil
	}
	return appendRates(o, counts, rates)
}

// appendRates appends counts with their rates as RabbitMQ names them: "publish" and "publish_details". Without rates they are null.
func appendRates(o object, counts []namedCount, rates []float64) object {
	for i, it := range counts {
		var rate any
		if rates != nil {
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
