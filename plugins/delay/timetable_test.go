package delay

import (
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/curfewmq/curfew/sdk/hook"
)

func newTable(tb testing.TB, expression, zone string) *timetable {
	tb.Helper()
	t, err := newTimetable([]byte(expression), []byte(zone))
	if err != nil {
		tb.Fatal(err)
	}
	return t
}

// following returns the points in time after an instant, as read on the zone's clock.
func following(tb testing.TB, table *timetable, after string, n int) string {
	tb.Helper()
	var all []string
	for i := at(tb, after); n > 0; n-- {
		i = table.next(i)
		all = append(all, strings.TrimSuffix(show(i, table.zone), "Z"))
	}
	return strings.Join(all, " ")
}

// A zone's clock jumps forward over an hour, and back over an hour that it then reads twice.
func TestChangesOfTheClock(t *testing.T) {
	const berlin = "Europe/Berlin" // 2026-03-29 02:00 to 03:00, 2026-10-25 03:00 to 02:00
	for _, tc := range []struct {
		name, expression, zone, after string
		want                          string
	}{
		{
			"skipped time of day", "30 2 * * *", berlin, "2026-03-28T12:00:00+01:00",
			"2026-03-29T03:00:00+02:00 2026-03-30T02:30:00+02:00 2026-03-31T02:30:00+02:00",
		},
		{
			"several skipped times", "0,30 2 * * *", berlin, "2026-03-28T12:00:00+01:00",
			"2026-03-29T03:00:00+02:00 2026-03-30T02:00:00+02:00 2026-03-30T02:30:00+02:00",
		},
		{
			"skipped time and the one after it", "0,30 2,3 * * *", berlin, "2026-03-28T12:00:00+01:00",
			"2026-03-29T03:00:00+02:00 2026-03-29T03:30:00+02:00 2026-03-30T02:00:00+02:00",
		},
		{
			"every half hour over the gap", "*/30 * * * *", berlin, "2026-03-29T01:00:00+01:00",
			"2026-03-29T01:30:00+01:00 2026-03-29T03:00:00+02:00 2026-03-29T03:30:00+02:00",
		},
		{
			"every hour over the gap", "15 * * * *", berlin, "2026-03-29T01:00:00+01:00",
			"2026-03-29T01:15:00+01:00 2026-03-29T03:15:00+02:00 2026-03-29T04:15:00+02:00",
		},
		{
			"time of day that comes twice", "30 2 * * *", berlin, "2026-10-24T12:00:00+02:00",
			"2026-10-25T02:30:00+02:00 2026-10-26T02:30:00+01:00 2026-10-27T02:30:00+01:00",
		},
		{
			"asked while the clock reads it again", "30 2 * * *", berlin, "2026-10-25T02:10:00+01:00",
			"2026-10-26T02:30:00+01:00",
		},
		{
			"asked between both", "30 2 * * *", berlin, "2026-10-25T02:40:00+02:00",
			"2026-10-26T02:30:00+01:00",
		},
		{
			"the end of what comes twice", "0 3 * * *", berlin, "2026-10-25T02:30:00+01:00",
			"2026-10-25T03:00:00+01:00 2026-10-26T03:00:00+01:00",
		},
		{
			"the start of what comes twice", "0 2 * * *", berlin, "2026-10-25T01:30:00+02:00",
			"2026-10-25T02:00:00+02:00 2026-10-26T02:00:00+01:00",
		},
		{
			"every half hour, twice", "*/30 * * * *", berlin, "2026-10-25T01:45:00+02:00",
			"2026-10-25T02:00:00+02:00 2026-10-25T02:30:00+02:00 2026-10-25T02:00:00+01:00 2026-10-25T02:30:00+01:00 2026-10-25T03:00:00+01:00",
		},
		{
			"every half hour of one hour, once", "*/30 2 * * *", berlin, "2026-10-25T01:45:00+02:00",
			"2026-10-25T02:00:00+02:00 2026-10-25T02:30:00+02:00 2026-10-26T02:00:00+01:00",
		},
		{
			"all hours as a question mark", "30 ? * * *", berlin, "2026-10-25T02:00:00+02:00",
			"2026-10-25T02:30:00+02:00 2026-10-25T02:30:00+01:00 2026-10-25T03:30:00+01:00",
		},
		{
			"half an hour forward", "15 2 * * *", "Australia/Lord_Howe", "2026-10-03T12:00:00+10:30",
			"2026-10-04T02:30:00+11:00 2026-10-05T02:15:00+11:00",
		},
		{
			"half an hour back", "45 1 * * *", "Australia/Lord_Howe", "2026-04-04T12:00:00+11:00",
			"2026-04-05T01:45:00+11:00 2026-04-06T01:45:00+10:30",
		},
		{
			"midnight that is skipped", "0 0 * * *", "America/Havana", "2026-03-07T12:00:00-05:00",
			"2026-03-08T01:00:00-04:00 2026-03-09T00:00:00-04:00",
		},
		{
			"midnight that comes twice", "0 0 * * *", "America/Havana", "2026-10-31T12:00:00-04:00",
			"2026-11-01T00:00:00-04:00 2026-11-02T00:00:00-05:00",
		},
		{
			"a day that was skipped", "0 12 30 12 *", "Pacific/Apia", "2011-12-01T00:00:00-10:00",
			"2011-12-31T00:00:00+14:00 2012-12-30T12:00:00+14:00",
		},
		{
			"over many jumps", "0 0 29 2 *", berlin, "2096-03-01T00:00:00+01:00",
			"2104-02-29T00:00:00+01:00",
		},
		{
			"without jumps", "30 2 * * *", "Asia/Kolkata", "2026-03-28T12:00:00+05:30",
			"2026-03-29T02:30:00+05:30 2026-03-30T02:30:00+05:30",
		},
		{
			"UTC", "30 2 * * *", "UTC", "2026-03-28T02:30:00Z",
			"2026-03-29T02:30:00 2026-03-30T02:30:00",
		},
		{"never", "0 0 31 4 *", berlin, "2026-03-28T12:00:00+01:00", "never"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if got := following(t, newTable(t, tc.expression, tc.zone), tc.after, strings.Count(tc.want, " ")+1); got != tc.want {
				t.Errorf("\n got %s\nwant %s", got, tc.want)
			}
		})
	}
}

// Every point in time around each jump of a year, determined minute by minute, is found, and no other.
func TestEveryPointInTime(t *testing.T) {
	for _, zone := range []string{"Europe/Berlin", "Australia/Lord_Howe", "Africa/Casablanca", "America/Havana"} {
		for _, expression := range []string{"*/20 * * * *", "5 */2 * * *", "30 0-3 * * *", "0 0 * * *", "45 1,2 1-7,29 * 0"} {
			table := newTable(t, expression, zone)
			for jump, jumps := nextJump(at(t, "2026-01-01T00:00:00Z").Time().In(table.zone)); jumps && jump.Year() < 2027; jump, jumps = nextJump(jump) {
				checkAround(t, table, jump)
			}
		}
	}
}

func checkAround(t *testing.T, table *timetable, jump time.Time) {
	t.Helper()
	const around = 36 * time.Hour
	got := hook.Instant(jump.Add(-around).UnixNano())
	for minute := jump.Add(-around + time.Minute); minute.Before(jump.Add(around)); minute = minute.Add(time.Minute) {
		if !isPoint(table, minute) {
			continue
		}
		if got = table.next(got); !got.Time().Equal(minute) {
			t.Fatalf("%s in %s: got %s, want %s", table.expression, table.name, show(got, table.zone), minute)
		}
	}
}

// isPoint decides about one minute by the rules.
func isPoint(table *timetable, minute time.Time) bool {
	matches := func(reading time.Time) bool { return table.schedule.Next(reading.Add(-time.Second)).Equal(reading) }
	reading := clockAt(minute)
	was := clockAt(minute.Add(-time.Minute)).Add(time.Minute) // what it would read if the clock had not jumped
	if jumped := reading.Sub(was); jumped > 0 && !table.everyHour {
		for skipped := was; skipped.Before(reading); skipped = skipped.Add(time.Minute) {
			if matches(skipped) {
				return true
			}
		}
	}
	if !matches(reading) {
		return false
	}
	for back := time.Minute; back <= 2*time.Hour && !table.everyHour; back += time.Minute {
		if clockAt(minute.Add(-back)).Equal(reading) {
			return false
		}
	}
	return true
}

func TestTimetablesAreReadOnce(t *testing.T) {
	ts := &hooked(t).timetables
	expression, zone := []byte("0 9 * * 1-5"), []byte("Europe/Berlin")
	first, err := ts.find(expression, zone)
	if err != nil {
		t.Fatal(err)
	}
	var readers sync.WaitGroup
	for range 4 {
		readers.Go(func() {
			for range 100 {
				if again, err := ts.find([]byte("0 9 * * 1-5"), []byte("Europe/Berlin")); again != first || err != nil {
					t.Errorf("read again: %v", err)
				}
			}
		})
	}
	readers.Wait()
	if other, err := ts.find(expression, []byte("UTC")); err != nil || other == first || other.zone != time.UTC {
		t.Errorf("the zone does not count: %v", err)
	}
	if n := testing.AllocsPerRun(100, func() { _, _ = ts.find(expression, zone) }); n > 0 {
		t.Errorf("%v allocations", n)
	}
	for minute := range 60 { // more than are kept
		for hour := range 24 {
			e := []byte(time.Date(2026, 1, 1, hour, minute, 0, 0, time.UTC).Format("4 15 * * *"))
			if got, err := ts.find(e, zone); err != nil || got.expression != string(e) {
				t.Fatalf("%s: %v", e, err)
			}
		}
	}
}

func hooked(tb testing.TB) *plugin {
	tb.Helper()
	p, err := build(Config{Max: tenYears})
	if err != nil {
		tb.Fatal(err)
	}
	return p.(*plugin)
}

// Every accepted expression has ever later points in time, on whole minutes of the clock or where it jumps.
func FuzzTimetable(f *testing.F) {
	for _, expression := range []string{"0 9 * * 1-5", "*/7 */3 1,15 * 0", "59 23 31 12 *", "0 0 29 2 *", "?", "5-1 22-2 * * fri-mon", "@every 1s", "TZ=UTC * * * *", "0 0 L * *"} {
		f.Add(expression, "Europe/Berlin", int64(1795428006))
	}
	f.Add("* * * * *", "America/Havana", int64(1772863200))
	f.Fuzz(func(t *testing.T, expression, zone string, seconds int64) {
		table, err := newTimetable([]byte(expression), []byte(zone))
		if err != nil {
			if !strings.HasPrefix(err.Error(), "invalid header 'x-schedule-") {
				t.Error(err)
			}
			return
		}
		i := hook.Instant(seconds % 4_000_000_000 * 1e9)
		for range 20 {
			next := table.next(i)
			if next == 0 {
				return
			}
			shown := next.Time().In(table.zone)
			jump, _ := shown.ZoneBounds()
			if next <= i || shown.Second() != 0 && !shown.Equal(jump) && jump.Unix() > 0 {
				t.Fatalf("%q in %s: after %s comes %s", expression, zone, show(i, table.zone), show(next, table.zone))
			}
			i = next
		}
	})
}

func BenchmarkNext(b *testing.B) {
	for _, expression := range []string{"*/5 * * * *", "0 9 * * 1-5", "0 0 29 2 *"} {
		b.Run(expression, func(b *testing.B) {
			table := newTable(b, expression, "Europe/Berlin")
			b.ReportAllocs()
			for b.Loop() {
				table.next(start)
			}
		})
	}
}
