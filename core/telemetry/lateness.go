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

// Lateness has histograms of lateness, in seconds. Expired messages are counted by their queue's strategy, separately for those that consumers
// held past their deadlines, and released messages by the kind of object that held them. The zero value is ready for use.
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

// Overstays returns, by strategy, the distributions of messages that consumers held past their deadlines: the time from the deadline until they
// expired. nil reads as empty.
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
