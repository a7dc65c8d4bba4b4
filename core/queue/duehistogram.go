package queue

import (
	"time"

	"github.com/curfewmq/curfew/sdk/hook"
)

// DueBounds are how far ahead a [DueHistogram] tells instants apart. They do not change.
var DueBounds = [...]time.Duration{time.Second, 10 * time.Second, time.Minute, 10 * time.Minute, time.Hour}

// DueHistogram is how instants lie ahead of a moment: the deadlines of messages, or the ends of leases. The zero value is one of
// none.
type DueHistogram struct {
	// Due counts instants by how far ahead they are: up to and including DueBounds[i] but not DueBounds[i-1]. The
	// last one is what is later still.
	Due      [len(DueBounds) + 1]int
	Overdue  int          // of Due[0]: those that have come already
	Never    int          // of what has no such instant
	Earliest hook.Instant // of all; 0 = there is none
}

// Add counts n times an instant as it lies ahead of now; 0 is none.
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
	for i < len(DueBounds) && at > now.Add(DueBounds[i]) {
		i++
	}
	h.Due[i] += n
}

// Merge adds what another one counts.
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

// Count is how many there are in all.
func (h *DueHistogram) Count() int {
	n := h.Never
	for _, due := range h.Due {
		n += due
	}
	return n
}
