package store

import (
	"fmt"
	"log/slog"
	"slices"
	"testing"

	"github.com/curfewmq/curfew/core/telemetry"
)

// Every alarm is told of when it is raised and when it is over, once.
func TestAlarmsAreTold(t *testing.T) {
	told := telemetry.New(telemetry.Options{Events: 1})
	a := alarms{log: slog.New(slog.DiscardHandler), telemetry: told, full: map[uint32]lack{}}
	a.set(1, tight, true)
	a.set(2, waiting, true)
	a.set(2, tight, true)
	a.set(1, tight, false)
	a.set(2, tight, false)
	a.set(2, waiting, false)
	a.set(3, tight, true)
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
