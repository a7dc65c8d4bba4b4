package telemetry

import (
	"time"

	"github.com/curfewmq/curfew/sdk/hook"
)

// latenessBounds are the bounds of distributions of lateness: times after the deadline.
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

// Lateness is how long after their deadlines messages left, in seconds, by strategy of their queues. The zero value is
// ready for use.
type Lateness struct{ byStrategy Strategies[Histogram] }

// add counts those of the messages that expired. It is called with every message that expires, on the turn of its queue.
func (l *Lateness) add(strategy string, now hook.Instant, ls []Removal) {
	var counts [len(latenessBounds) + 1]uint64
	sum, expired, at := 0., false, 0
	for i := range ls {
		late, known := ls[i].Late(now)
		if !known || ls[i].Reason != hook.ReasonExpired {
			continue
		}
		for at > 0 && late <= latenessBounds[at-1] { // most are about as late as the one before
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

// Read returns the distributions by strategy.
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
