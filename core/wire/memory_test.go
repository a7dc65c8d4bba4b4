package wire

import (
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

// The rest of the Go heap counts, too, and messages in it do not count twice.
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
