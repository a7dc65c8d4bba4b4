package quorum

import (
	"testing"
	"testing/synctest"
	"time"
)

// A group that needs no tick for a while is woken at the last aligned one of these ticks, and counts all of them.
func TestTicksOfALull(t *testing.T) {
	const each = 100 * time.Millisecond
	for _, x := range []struct {
		name   string
		lull   int
		starts int // tick at which the replica starts
		fires  []int
	}{
		{name: "each", lull: 1, fires: []int{1, 2, 3, 4, 5}},
		{name: "a heartbeat", lull: heartbeatTicks, fires: []int{4, 8, 12}},
		{name: "a heartbeat of a replica that starts later", lull: heartbeatTicks, starts: 2, fires: []int{4, 8, 12}},
		{name: "less than a heartbeat", lull: 2, fires: []int{2, 4, 6, 8}},
		{name: "more than a heartbeat", lull: 5, fires: []int{4, 8, 12}},
	} {
		t.Run(x.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				began := time.Now()
				time.Sleep(time.Duration(x.starts) * each)
				k := newTicks(began, each)
				defer k.stop()
				counted := x.starts
				for _, want := range x.fires {
					k.plan(x.lull)
					<-k.timer.C
					k.fired()
					if counted += int(k.passed()); counted != want || time.Since(began) != time.Duration(want)*each {
						t.Fatalf("%d ticks were counted after %v, want %d", counted, time.Since(began), want)
					}
				}
			})
		})
	}
}

// An event during a lull finds the ticks so far counted, and a shorter plan is kept.
func TestTicksOfALullThatEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := newTicks(time.Now(), time.Second)
		defer k.stop()
		k.plan(4)
		time.Sleep(2500 * time.Millisecond)
		if n := k.passed(); n != 2 {
			t.Errorf("%d ticks passed, want 2", n)
		}
		k.plan(1)
		began := time.Now()
		<-k.timer.C
		k.fired()
		if took, n := time.Since(began), k.passed(); took != 500*time.Millisecond || n != 1 {
			t.Errorf("after %v %d ticks, want one after 500ms", took, n)
		}
	})
}

// A process that was stopped counts no more ticks than it meant to sleep: other nodes may have sent messages meanwhile.
func TestTicksOfAStoppedProcess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := newTicks(time.Now(), time.Second)
		defer k.stop()
		k.plan(4)
		time.Sleep(time.Minute + time.Second/2)
		if n := k.passed(); n != 4 {
			t.Errorf("%d ticks passed, want 4", n)
		}
		if n := k.passed(); n != 0 {
			t.Errorf("%d ticks passed at once, want none", n)
		}
		k.plan(1)
		k.fired()
		time.Sleep(time.Second / 2)
		if n := k.passed(); n != 1 {
			t.Errorf("%d ticks passed, want 1", n)
		}
	})
}
