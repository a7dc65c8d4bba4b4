package mgmt

import (
	"sync"
	"time"

	"github.com/curfewmq/curfew/sdk/hook"
)

// meters turn counts into rates, from samples that are taken when somebody asks: nothing is measured for nobody. A rate is
// that of the time between two samples, which are at least an interval apart; who asks for the first time learns that it is
// zero. What nobody asks for any more is forgotten.
type meters struct {
	clock    func() hook.Instant
	interval time.Duration

	mu    sync.Mutex // guards what follows
	all   map[any]*meter
	swept hook.Instant
}

// meter is the counts of one thing as they were.
type meter struct {
	at     hook.Instant // of counts
	asked  hook.Instant
	counts []int64
	rates  []float64 // per second; below zero for what has become less
}

const (
	// forgetAfter is how long a meter lives that nobody looks at.
	forgetAfter = 10 * time.Minute
	// maxMeters bounds what there is of them: some 300 bytes each.
	maxMeters = 50_000
)

func newMeters(clock func() hook.Instant, interval time.Duration) *meters {
	return &meters{clock: clock, interval: interval, all: map[any]*meter{}}
}

// rates returns the rates of the counts that key has now. A key always comes with as many counts.
func (ms *meters) rates(key any, counts []int64) []float64 {
	now := ms.clock()
	ms.mu.Lock()
	defer ms.mu.Unlock()
	ms.sweep(now)
	m := ms.all[key]
	if m == nil {
		if len(ms.all) < maxMeters {
			ms.all[key] = &meter{at: now, asked: now, counts: append([]int64(nil), counts...), rates: make([]float64, len(counts))}
		}
		return make([]float64, len(counts))
	}
	m.asked = now
	if passed := now.Sub(m.at); passed >= ms.interval {
		m.sample(passed, counts)
		m.at = now
	}
	return m.rates
}

// sample takes the counts after some time. Rates that were handed out stay as they are.
func (m *meter) sample(passed time.Duration, counts []int64) {
	rates := make([]float64, len(counts))
	for i, n := range counts {
		rates[i] = float64(n-m.counts[i]) / passed.Seconds()
	}
	m.rates = rates
	copy(m.counts, counts)
}

// sweep forgets meters that nobody looks at. The caller holds mu.
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

// tallied is a count with its name.
type tallied struct {
	name  string
	count int64
}

// ratesOf returns the rates of counts, each in its place.
func (ms *meters) ratesOf(key any, ts []tallied) []float64 {
	counts := make([]int64, len(ts))
	for i, t := range ts {
		counts[i] = t.count
	}
	return ms.rates(key, counts)
}

// stats appends counts with their rates.
func (ms *meters) stats(o object, key any, ts []tallied) object {
	return appendRates(o, ts, ms.ratesOf(key, ts))
}

// appendRates appends counts with their rates as RabbitMQ has them: "publish" and "publish_details".
func appendRates(o object, ts []tallied, rates []float64) object {
	for i, t := range ts {
		o.add(t.name, t.count)
		o.add(t.name+"_details", object{{"rate", rates[i]}})
	}
	return o
}

func appendCounts(o object, ts []tallied) object {
	for _, t := range ts {
		o.add(t.name, t.count)
	}
	return o
}
