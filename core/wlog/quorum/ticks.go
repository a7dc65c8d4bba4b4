package quorum

import "time"

// ticks count the ticks of a replica's clock. A group needs every tick only while an election or the like is under way; else its goroutine
// sleeps over several ticks and counts them when it wakes up. They belong to run.
//
// All shards of a node have the same ticks, and sleeping shards wake up at the same multiples of heartbeatTicks. So the heartbeats of all
// shards cost one wake-up, and one write for each other node.
type ticks struct {
	began   time.Time
	each    time.Duration
	counted int64 // ticks since began that the group has counted
	planned int64 // the tick at which the group is to wake up
	timer   *time.Timer
	armed   int64 // the tick at which the timer fires; 0 = it is not armed
}

func newTicks(began time.Time, each time.Duration) *ticks {
	t := &ticks{began: began, each: each, timer: time.NewTimer(time.Hour)}
	t.counted = t.now()
	return t
}

func (t *ticks) stop() { t.timer.Stop() }

func (t *ticks) now() int64 { return int64(time.Since(t.began) / t.each) }

// plan arms the timer for one of the next n ticks: the next one if n is 1, else the last multiple of heartbeatTicks among them, if there is
// one, else the n-th. The timer may fire earlier for nothing.
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

// fired notes that the timer has fired.
func (t *ticks) fired() { t.armed = 0 }

// passed returns how many passed ticks the group has not counted yet. Ticks after the planned one are skipped, because the node did not run
// then, and must not take its own pause for silence of other nodes.
func (t *ticks) passed() int64 {
	now := t.now()
	n := min(now, t.planned) - t.counted
	t.counted = now
	return max(n, 0)
}
