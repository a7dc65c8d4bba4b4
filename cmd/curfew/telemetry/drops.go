package telemetry

import (
	"log/slog"
	"time"
)

// drops tracks what was logged about spans that the core dropped because too many were waiting.
type drops struct {
	seen, said uint64 // counts at the last look, and at the last message
	lasts      bool   // the beginning has been logged, the end has not
	when       time.Time
}

// sayAgain is the shortest time between two warnings about dropped spans.
const sayAgain = 10 * time.Second

// watch logs when spans begin to be dropped and, when that is over, how many were dropped. n is the number so far. over means that dropping
// has ended, unless n has grown since the last look.
func (d *drops) watch(log *slog.Logger, n uint64, over bool) {
	now, more := time.Now(), n > d.seen
	d.seen = n
	switch {
	case more && !d.lasts && (d.when.IsZero() || now.Sub(d.when) >= sayAgain):
		d.lasts, d.when = true, now
		log.Warn("spans are dropped: too many wait for the collector (telemetry.traces.buffer); this is logged only once until it is over", "dropped", n-d.said)
	case d.lasts && !more && over:
		d.lasts = false
		log.Info("spans are not dropped any more", "dropped", n-d.said, "dropped_ever", n)
		d.said = n
	}
}
