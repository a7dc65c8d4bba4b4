package store

import (
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/curfewmq/curfew/core/telemetry"
	"github.com/curfewmq/curfew/core/wlog/seg"
)

// alarms are what keeps the store from taking more.
type alarms struct {
	log       *slog.Logger
	telemetry *telemetry.Recorder

	room atomic.Pointer[chan struct{}] // closed when there is space on the disk again; nil while there is

	mu     sync.Mutex // guards what follows, and changes of room
	full   map[uint32]shortage
	short  map[uint32]Shortage // as far as it is known, of those that are full
	below  *Shortage           // of the limit for the disk; nil = it has as much space as it is to have
	broken []uint32            // shards
}

func newAlarms(log *slog.Logger, told *telemetry.Recorder) alarms {
	return alarms{log: log, telemetry: told, full: map[uint32]shortage{}, short: map[uint32]Shortage{}}
}

// Shortage is how the disk falls short of what is needed for publishers to go on.
type Shortage = seg.Shortage

// shortage is how a shard wants for space.
type shortage uint8

const (
	tight   shortage = 1 << iota // there is no next segment
	waiting                      // what was committed waits
)

// space notes that a shard has too little space for what comes next, nil that it has enough.
func (a *alarms) space(shard uint32, low *Shortage) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if low != nil {
		a.short[shard] = *low
	}
	a.set(shard, tight, low != nil)
}

// wait notes that what was committed to a shard waits for space, or does not any more.
func (a *alarms) wait(shard uint32, full bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.set(shard, waiting, full)
}

// limit notes that the disk has less space left than its limit, nil that it has enough.
func (a *alarms) limit(low *Shortage) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.below = low
	a.update()
}

// raised reports whether publishers wait for the disk. The caller holds mu.
func (a *alarms) raised() bool { return len(a.full) > 0 || a.below != nil }

// set notes that a shard has too little space in one way, or has enough. The caller holds mu.
func (a *alarms) set(shard uint32, how shortage, full bool) {
	now := a.full[shard] &^ how
	if full {
		now |= how
	}
	if now != 0 {
		a.full[shard] = now
	} else {
		a.enough(shard)
	}
	a.update()
}

// enough notes that a shard wants for nothing. The caller holds mu.
func (a *alarms) enough(shard uint32) {
	delete(a.full, shard)
	delete(a.short, shard)
}

// shortage returns what lacks most of all that is known, nil for nothing. The caller holds mu.
func (a *alarms) shortage() (most *Shortage) {
	most = a.below
	for _, n := range slices.Sorted(maps.Keys(a.short)) {
		if s := a.short[n]; most == nil || s.Needed-s.Free > most.Needed-most.Free {
			most = &s
		}
	}
	return most
}

// update raises or ends the alarm. The caller holds mu.
func (a *alarms) update() {
	c := a.room.Load()
	switch {
	case a.raised() && c == nil:
		fresh := make(chan struct{})
		a.room.Store(&fresh)
		notice := telemetry.Notice{Kind: telemetry.AlarmRaised, Name: diskAlarm}
		var known []any
		if s := a.shortage(); s != nil {
			notice.Disk = telemetry.Shortage(*s)
			known = []any{"path", s.Path, "free_bytes", s.Free, "needed_bytes", s.Needed}
		}
		a.log.Warn("disk alarm: publishers wait", known...)
		a.telemetry.Notice(notice)
	case !a.raised() && c != nil:
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
	a.enough(shard) // nothing waits for space there any more
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
	if a.raised() {
		names = append(names, diskAlarm)
	}
	for _, n := range slices.Sorted(slices.Values(a.broken)) {
		names = append(names, shardAlarm(n))
	}
	return names
}
