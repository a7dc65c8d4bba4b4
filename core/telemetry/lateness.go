package telemetry

import (
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

// Lateness has histograms of the lateness of expired messages, in seconds, by their queue's strategy. The zero value is
// ready for use.
type Lateness struct{ byStrategy Strategies[Histogram] }

// add counts the removals whose reason is expiry. It runs in the queue's turn.
func (l *Lateness) add(strategy string, now hook.Instant, rs []Removal) {
	var counts [len(latenessBounds) + 1]uint64
	sum, expired, at := 0., false, 0
	for i := range rs {
		late, known := rs[i].late(now)
		if !known || rs[i].Reason != hook.ReasonExpired {
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
		expired = true
	}
	if expired {
		l.byStrategy.Of(strategy, newLateness).merge(counts[:], sum/float64(time.Second))
	}
}

// Read returns the distributions by strategy; nil reads as empty.
func (l *Lateness) Read() map[string]Distribution {
	all := map[string]Distribution{}
	if l == nil {
		return all
	}
	for strategy, h := range l.byStrategy.All() {
		all[strategy] = h.Read()
	}
	return all
}
