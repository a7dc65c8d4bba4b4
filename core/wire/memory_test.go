package wire

import (
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

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
