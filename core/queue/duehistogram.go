package queue

import (
	"time"

	"github.com/curfewmq/curfew/sdk/hook"
)

// dueBounds are the bounds of the buckets of a [DueHistogram]. They never change.
var dueBounds = [...]time.Duration{time.Second, 10 * time.Second, time.Minute, 10 * time.Minute, time.Hour}

// DueHistogram counts instants by how far ahead of a point in time they are: deadlines
// of messages, or ends of leases. The zero value is empty.
type DueHistogram struct {
	// Due[i] counts instants up to and including dueBounds[i] ahead, but beyond
	// dueBounds[i-1]. The last bucket has no bound.
	Due      [len(dueBounds) + 1]int
	Overdue  int          // part of Due[0]: instants in the past
	Never    int          // messages or queues without an instant
	Earliest hook.Instant // 0 = there is none
}

// Add counts an instant n times, relative to now; 0 means none.
func (h *DueHistogram) Add(now, at hook.Instant, n int) {
	if at == 0 {
		h.Never += n
		return
	}
	if at <= now {
		h.Overdue += n
	}
	if h.Earliest == 0 || at < h.Earliest {
		h.Earliest = at
	}
	i := 0
	for i < len(dueBounds) && at > now.Add(dueBounds[i]) {
		i++
	}
	h.Due[i] += n
}

// dueBuckets are the steps of the grid at the bounds of a [DueHistogram].
var dueBuckets = func() (steps [len(dueBounds)]int) {
	for i, bound := range dueBounds {
		steps[i] = DueStep(bound)
	}
	return steps
}()

// Histogram returns the counts in the buckets of a DueHistogram.
func (c *DueCounts) Histogram() (h DueHistogram) {
	if c.Earliest == 0 {
		return h
	}
	h.Overdue, h.Earliest = c.Overdue, c.Earliest
	h.Due[0] = c.Overdue
	from := 0
	for i := range h.Due {
		end := len(c.Steps)
		if i < len(dueBuckets) {
			end = dueBuckets[i] + 1
		}
		for _, n := range c.Steps[from:end] {
			h.Due[i] += int(n)
		}
		from = end
	}
	return h
}

// Merge adds the counts of o.
func (h *DueHistogram) Merge(o *DueHistogram) {
	for i := range o.Due {
		h.Due[i] += o.Due[i]
	}
	h.Overdue += o.Overdue
	h.Never += o.Never
	if h.Earliest == 0 || o.Earliest != 0 && o.Earliest < h.Earliest {
		h.Earliest = o.Earliest
	}
}
