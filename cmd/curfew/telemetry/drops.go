package telemetry

import (
	"log/slog"
	"time"
)

// dropLog logs when the core begins to drop spans because too many wait, and how many were dropped in the end. It belongs to one goroutine.
type dropLog struct {
	log      *slog.Logger
	seen     uint64 // dropped spans at the last look
	said     uint64 // dropped spans at the last message
	dropping bool   // the beginning was logged, the end was not
	last     time.Time
}

// calm is how long no span must be dropped until dropping has ended.
const calm = 10 * time.Second

// look compares n, the number of dropped spans, with the last look. closing means that it is the last one.
func (d *dropLog) look(now time.Time, n uint64, closing bool) {
	if n > d.seen {
		d.seen, d.last = n, now
		if !d.dropping {
			d.dropping = true
			d.log.Warn("spans are dropped: too many wait for the collector (telemetry.traces.buffer); this is logged only once until it is over", "dropped", n-d.said)
		}
	}
	if d.dropping && (closing || now.Sub(d.last) >= calm) {
		d.dropping = false
		d.log.Info("spans are not dropped any more", "dropped", n-d.said, "dropped_ever", n)
		d.said = n
	}
}
