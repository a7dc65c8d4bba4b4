package store

import (
	"fmt"
	"log/slog"
	"slices"
	"testing"

	"github.com/curfewmq/curfew/core/logtest"
	"github.com/curfewmq/curfew/core/telemetry"
)

// Every alarm is told of when it is raised and when it is over, once.
func TestAlarmsAreTold(t *testing.T) {
	told := telemetry.New(telemetry.Options{Events: 1})
	a := newAlarms(slog.New(slog.DiscardHandler), told)
	a.setSpace(1, &Shortage{})
	a.setBlocked(2, true)
	a.setSpace(2, &Shortage{})
	a.setSpace(1, nil)
	a.setSpace(2, nil)
	a.setBlocked(2, false)
	a.setSpace(3, &Shortage{})
	a.fail(3)
	var got []string
	events := make([]telemetry.Event, 10)
	for _, e := range events[:told.Events().Read(told.Events().First(), events)] {
		got = append(got, fmt.Sprint(e.Kind, " ", e.Notice.Name))
	}
	want := []string{"alarm_raised disk", "alarm_cleared disk", "alarm_raised disk", "alarm_raised shard 3", "alarm_cleared disk"}
	if !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

// An alarm that names neither the disk nor what it lacks sends its reader to look for both.
func TestTheDiskAlarmSaysWhatIsMissing(t *testing.T) {
	var log logtest.Log
	told := telemetry.New(telemetry.Options{Events: 1})
	a := newAlarms(slog.New(slog.NewTextHandler(&log, nil)), told)
	a.setSpace(2, &Shortage{Path: "/data", Free: 10, Needed: 30})
	a.setSpace(1, &Shortage{Path: "/data", Free: 5, Needed: 100})
	if got, want := log.Find("disk alarm"), `"disk alarm: publishers wait" path=/data free_bytes=10 needed_bytes=30`; got != want {
		t.Errorf("logged %s, want %s", got, want)
	}
	if got := a.shortage(); got == nil || got.Needed != 100 {
		t.Errorf("got shortage %+v, want the one that lacks most", got)
	}
	events := make([]telemetry.Event, 1)
	told.Events().Read(told.Events().First(), events)
	if got, want := events[0].Notice.Disk, (telemetry.Shortage{Path: "/data", Free: 10, Needed: 30}); got != want {
		t.Errorf("told %+v, want %+v", got, want)
	}
	a.setSpace(1, nil)
	a.setSpace(2, nil)
	if got := a.shortage(); got != nil {
		t.Errorf("still short of %+v", got)
	}
}
