package telemetry

import (
	"log/slog"
	"time"
)

// drops tracks what was logged about spans that the core dropped because too many waited.
type drops struct {
	seen, said uint64 // the count at the last look, and when the last message was logged
	lasts      bool   // the beginning was logged, the end was not
	when       time.Time
}

// sayAgain is the least time between two warnings that spans are dropped.
const sayAgain = 10 * time.Second

// watch logs when spans begin to be dropped, and, when that is over, how many were. n are dropped so far; over means that it ends
// unless more are dropped since the last look.
func (d *drops) watch(log *slog.Logger, n uint64, over bool) {
	now, more := time.Now(), n > d.seen
	d.seen = n
	switch {
	case more && !d.lasts && (d.when.IsZero() || now.Sub(d.when) >= sayAgain):
		d.lasts, d.when = true, now
		log.Warn("spans are dropped: too many wait for the collector (telemetry.traces.buffer); this is said once until it is over", "dropped", n-d.said)
	case d.lasts && !more && over:
		d.lasts = false
		log.Info("spans are not dropped any more", "dropped", n-d.said, "dropped_ever", n)
		d.said = n
	}
}
