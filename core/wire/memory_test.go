package wire

import (
	"runtime"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/curfewmq/curfew/core/slab"
	"github.com/curfewmq/curfew/core/telemetry"
)

func TestMemoryAlarm(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var used atomic.Int64
		told := telemetry.New(telemetry.Options{Events: 1})
		s := newServer(t, func(o *Options) { o.MemoryLimit, o.Session.Telemetry = 1600, told })
		s.memory.used = used.Load

		if s.memory.check() != nil || s.Alarms() != nil {
			t.Error("alarm without need")
		}
		used.Store(1600)
		if s.memory.check() != nil {
			t.Error("alarm at the limit, want it above")
		}
		used.Store(1601)
		cleared := s.memory.check()
		if cleared == nil || s.memory.check() != cleared || len(s.Alarms()) != 1 || s.Alarms()[0] != "memory" {
			t.Fatalf("no alarm above the limit: %v", s.Alarms())
		}
		used.Store(1501)
		time.Sleep(time.Minute + memoryInterval/2)
		if s.memory.cleared.Load() == nil {
			t.Error("the alarm ended too early: it would come and go")
		}
		used.Store(1500)
		wantElapsed(t, memoryInterval/2, func() { <-cleared })
		if s.memory.check() != nil || s.Alarms() != nil {
			t.Error("the alarm did not end")
		}
		var events [3]telemetry.Event
		if n := told.Events().Read(0, events[:]); n != 2 || events[0].Kind != telemetry.AlarmRaised || events[1].Kind != telemetry.AlarmCleared ||
			events[0].Notice.Name != "memory" {
			t.Errorf("%d events: %+v", n, events)
		}
	})
}

func TestMemoryAlarmEndsWithTheServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t, func(o *Options) { o.MemoryLimit = 1 })
		s.memory.used = func() int64 { return 2 }
		s.memory.check()
		if err := s.Shutdown(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// While publishers were blocked because of a backlog, or by an operator, the broker collected garbage every five seconds, which cannot end that.
func TestMemoryAlarmCollectsIfThatMayEndIt(t *testing.T) {
	collections := func() uint32 {
		var s runtime.MemStats
		runtime.ReadMemStats(&s)
		return s.NumForcedGC
	}
	for _, tt := range []struct {
		name                 string
		limit, backlog, heap int64
		want                 uint32
	}{
		{"a backlog", 1000, 2000, 500, 0},
		{"an operator", 0, 0, 500, 0},
		{"the heap", 1000, 500, 2000, 12},
	} {
		synctest.Test(t, func(t *testing.T) {
			s := newServer(t, func(o *Options) { o.MemoryLimit, o.LiveHeap = 1, func() int64 { return tt.heap } })
			s.memory.used = func() int64 { return tt.backlog + tt.heap }
			s.SetMemoryLimit(tt.limit)
			s.memory.check()
			before := collections()
			time.Sleep(time.Minute + memoryInterval/2)
			if n := collections() - before; n != tt.want {
				t.Errorf("%s: %d collections in a minute, want %d", tt.name, n, tt.want)
			}
		})
	}
}

// The rest of the Go heap counts, too, and messages in it are not counted twice.
func TestMemoryInUseCountsTheHeapOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		heap := int64(1 << 30) // more than messages of other tests
		s := newServer(t, func(o *Options) { o.LiveHeap = func() int64 { return heap } })
		before := s.MemoryUsed()
		small := slab.Alloc(600)
		if got := s.MemoryUsed(); got != before {
			t.Errorf("%d bytes in use with a small message, %d before: the heap has both", got, before)
		}
		large := slab.Alloc(1 << 20)
		if got := s.MemoryUsed(); got != before+1<<20 {
			t.Errorf("%d bytes in use with a large message, %d before", got, before)
		}
		slab.Free(small)
		slab.Free(large)
		heap += 4000
		if got := s.MemoryUsed(); got != before {
			t.Errorf("%d bytes in use, want %d: the heap was asked again within %v", got, before, heapInterval)
		}
		time.Sleep(heapInterval)
		if got := s.MemoryUsed(); got != before+4000 {
			t.Errorf("%d bytes in use, want %d", got, before+4000)
		}
	})
}
