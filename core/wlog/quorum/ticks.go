package quorum

import "time"

// ticks count the ticks of a replica's clock. A group needs to know of each only while an election or the like is under way: else its
// goroutine sleeps over several, and counts them when it wakes up. They belong to run.
//
// All shards of a node have the same ticks, and those that sleep wake up at the same ones: one wake-up serves the heartbeats of all of
// them, and one write those to another node.
type ticks struct {
	began   time.Time
	each    time.Duration
	counted int64 // ticks since began that have passed, as far as the group knows
	planned int64 // the tick that the group is to know of at once
	timer   *time.Timer
	armed   int64 // the tick that the timer fires at; 0 = it is not armed
}

func newTicks(began time.Time, each time.Duration) *ticks {
	t := &ticks{began: began, each: each, timer: time.NewTimer(time.Hour)}
	t.counted = t.now()
	return t
}

func (t *ticks) stop() { t.timer.Stop() }

func (t *ticks) now() int64 { return int64(time.Since(t.began) / t.each) }

// plan has the timer fire at one of the next ticks: at the n-th if n is 1, else at the last one until then that is a multiple of
// heartbeatTicks, if there is one. It may fire before that for nothing.
func (t *ticks) plan(n int) {
	t.planned = t.counted + int64(n)
	if aligned := t.planned - t.planned%heartbeatTicks; aligned > t.counted {
		t.planned = aligned
	}
	if t.armed == 0 || t.planned < t.armed {
		t.armed = t.planned
		t.timer.Reset(time.Until(t.began.Add(time.Duration(t.armed) * t.each)))
	}
}

// fired notes that the timer has.
func (t *ticks) fired() { t.armed = 0 }

// passed returns how many ticks have passed that the group does not know of. One that is late counts those behind the planned one as
// that: whoever has not been running for a while must not believe that others have been silent so long.
func (t *ticks) passed() int64 {
	now := t.now()
	n := min(now, t.planned) - t.counted
	t.counted = now
	return max(n, 0)
}
