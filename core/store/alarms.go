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

// alarms tracks the conditions that block publishers, and the shards that failed.
type alarms struct {
	log       *slog.Logger
	telemetry *telemetry.Recorder

	cleared atomic.Pointer[chan struct{}] // closed when the disk alarm clears; nil = there is none. Changed under mu

	mu         sync.Mutex    // guards the fields below
	raise      chan struct{} // closed when the disk alarm is raised next; nil = no publisher has asked for it
	shards     map[uint32]shardSpace
	belowLimit *Shortage // nil = the disk has as much free space as its limit demands
	failed     []uint32
}

func newAlarms(log *slog.Logger, recorder *telemetry.Recorder) alarms {
	return alarms{log: log, telemetry: recorder, shards: map[uint32]shardSpace{}}
}

// Shortage says how much disk space is missing for publishers to go on.
type Shortage = seg.Shortage

// shardSpace describes a shard that lacks disk space.
type shardSpace struct {
	lowSpace      bool      // there is no next segment
	commitBlocked bool      // a commit waits for space
	shortage      *Shortage // the last that is known
}

// setSpace records that a shard has too little space for its next segment; nil = it has enough.
func (a *alarms) setSpace(number uint32, low *Shortage) {
	a.change(number, func(s *shardSpace) {
		if s.lowSpace = low != nil; s.lowSpace {
			s.shortage = low
		}
	})
}

// setBlocked records whether a commit to a shard waits for space.
func (a *alarms) setBlocked(number uint32, blocked bool) {
	a.change(number, func(s *shardSpace) { s.commitBlocked = blocked })
}

func (a *alarms) change(number uint32, set func(*shardSpace)) {
	a.mu.Lock()
	defer a.mu.Unlock()
	s := a.shards[number]
	if set(&s); s.lowSpace || s.commitBlocked {
		a.shards[number] = s
	} else {
		delete(a.shards, number)
	}
	a.update()
}

// setLimit records that the disk has less free space than its limit; nil = it has enough.
func (a *alarms) setLimit(low *Shortage) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.belowLimit = low
	a.update()
}

// nextRaise returns a channel that is closed when the disk alarm is raised the next time.
func (a *alarms) nextRaise() <-chan struct{} {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.raise == nil {
		a.raise = make(chan struct{})
	}
	return a.raise
}

// raised reports whether there is a disk alarm. The caller holds mu.
func (a *alarms) raised() bool { return len(a.shards) > 0 || a.belowLimit != nil }

// shortage returns the largest shortage that is known, nil for none. The caller holds mu.
func (a *alarms) shortage() *Shortage {
	most := a.belowLimit
	for _, n := range slices.Sorted(maps.Keys(a.shards)) {
		if s := a.shards[n].shortage; s != nil && (most == nil || s.Needed-s.Free > most.Needed-most.Free) {
			most = s
		}
	}
	return most
}

// update raises or clears the disk alarm. The caller holds mu.
func (a *alarms) update() {
	c := a.cleared.Load()
	switch {
	case a.raised() && c == nil:
		cleared := make(chan struct{})
		a.cleared.Store(&cleared)
		if a.raise != nil {
			close(a.raise)
			a.raise = nil
		}
		notice := telemetry.Notice{Kind: telemetry.AlarmRaised, Name: diskAlarm}
		var known []any
		if s := a.shortage(); s != nil {
			notice.Disk = telemetry.Shortage(*s)
			if known = []any{"path", s.Path, "free_bytes", s.Free, "needed_bytes", s.Needed}; s.Files {
				known = append(known, "error", "too many open files: the limit of the process or of the machine is too low for its connections")
			}
		}
		a.log.Warn("disk alarm: publishers wait", known...)
		a.telemetry.Notice(notice)
	case !a.raised() && c != nil:
		a.cleared.Store(nil)
		close(*c)
		a.log.Info("disk alarm is over")
		a.telemetry.Notice(telemetry.Notice{Kind: telemetry.AlarmCleared, Name: diskAlarm})
	}
}

// fail raises the alarm of a shard that failed. No commit waits for space there any more.
func (a *alarms) fail(number uint32) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if slices.Contains(a.failed, number) {
		return
	}
	a.failed = append(a.failed, number)
	a.telemetry.Notice(telemetry.Notice{Kind: telemetry.AlarmRaised, Name: shardAlarm(number)})
	delete(a.shards, number)
	a.update()
}

// clear ends the alarm of a shard that failed, if there is one.
func (a *alarms) clear(number uint32) {
	a.mu.Lock()
	defer a.mu.Unlock()
	was := len(a.failed)
	a.failed = slices.DeleteFunc(a.failed, func(n uint32) bool { return n == number })
	if len(a.failed) < was {
		a.telemetry.Notice(telemetry.Notice{Kind: telemetry.AlarmCleared, Name: shardAlarm(number)})
	}
}

const diskAlarm = "disk"

func shardAlarm(n uint32) string { return fmt.Sprintf("shard %d", n) }

func (a *alarms) names() []string {
	a.mu.Lock()
	defer a.mu.Unlock()
	var names []string
	if a.raised() {
		names = append(names, diskAlarm)
	}
	for _, n := range slices.Sorted(slices.Values(a.failed)) {
		names = append(names, shardAlarm(n))
	}
	return names
}
