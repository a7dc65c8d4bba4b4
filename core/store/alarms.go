package store

import (
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/curfewmq/curfew/core/telemetry"
)

// alarms are what keeps the store from taking more.
type alarms struct {
	log       *slog.Logger
	telemetry *telemetry.Recorder

	room atomic.Pointer[chan struct{}] // closed when there is space on the disk again; nil while there is

	mu     sync.Mutex // guards what follows, and changes of room
	full   map[uint32]lack
	broken []uint32 // shards
}

// lack is how a shard wants for space.
type lack uint8

const (
	tight   lack = 1 << iota // there is no next segment
	waiting                  // what was committed waits
)

// set notes that a shard has too little space in one way, or has enough.
func (a *alarms) set(shard uint32, how lack, full bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	now := a.full[shard] &^ how
	if full {
		now |= how
	}
	if now != 0 {
		a.full[shard] = now
	} else {
		delete(a.full, shard)
	}
	a.update()
}

// update raises or ends the alarm. The caller holds mu.
func (a *alarms) update() {
	c := a.room.Load()
	switch {
	case len(a.full) > 0 && c == nil:
		fresh := make(chan struct{})
		a.room.Store(&fresh)
		a.log.Warn("disk alarm: publishers wait")
		a.telemetry.Notice(telemetry.Notice{Kind: telemetry.AlarmRaised, Name: diskAlarm})
	case len(a.full) == 0 && c != nil:
		a.room.Store(nil)
		close(*c)
		a.log.Info("disk alarm is over")
		a.telemetry.Notice(telemetry.Notice{Kind: telemetry.AlarmCleared, Name: diskAlarm})
	}
}

// fail notes that a shard is broken.
func (a *alarms) fail(shard uint32) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.broken = append(a.broken, shard)
	a.telemetry.Notice(telemetry.Notice{Kind: telemetry.AlarmRaised, Name: shardAlarm(shard)})
	delete(a.full, shard) // nothing waits for space there any more
	a.update()
}

// The names of alarms.
const diskAlarm = "disk"

func shardAlarm(n uint32) string { return fmt.Sprintf("shard %d", n) }

// names lists the alarms.
func (a *alarms) names() []string {
	a.mu.Lock()
	defer a.mu.Unlock()
	var names []string
	if len(a.full) > 0 {
		names = append(names, diskAlarm)
	}
	for _, n := range slices.Sorted(slices.Values(a.broken)) {
		names = append(names, shardAlarm(n))
	}
	return names
}
