package delay

import (
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/curfewmq/curfew/sdk/hook"
)

func at(tb testing.TB, text string) hook.Instant {
	tb.Helper()
	t, err := time.Parse(time.RFC3339, text)
	if err != nil {
		tb.Fatal(err)
	}
	return hook.Instant(t.UnixNano())
}

func show(i hook.Instant, in *time.Location) string {
	if i == 0 {
		return "never"
	}
	return i.Time().In(in).Format("2006-01-02T15:04:05.999Z07:00")
}

func TestRecurrenceHeaders(t *testing.T) {
	const (
		id    = "x-schedule-id"
		every = "x-schedule-every"
		cron  = "x-schedule-cron"
		zone  = "x-schedule-zone"
		until = "x-schedule-until"
		count = "x-schedule-count"
		miss  = "x-schedule-missed"

		published = "2026-11-23T10:00:00.5Z"
		interval  = "invalid header 'x-schedule-every': expected 1000 to 315360000000, got "
		names     = "expected numbers, *, lists, ranges, steps, and names such as JAN and MON"
		fields    = "invalid header 'x-schedule-cron': expected five fields (minute, hour, day of the month, month, day of the week), got "
		noZone    = "invalid header 'x-schedule-zone': no time zone "
		iana      = "; expected a name of the IANA, such as Europe/Berlin"
	)
	type headers = map[string]any
	for _, tc := range []struct {
		name    string
		headers headers
		want    string // the first release, or the error
	}{
		{"interval", headers{id: "a", every: int32(5000)}, "2026-11-23T10:00:05.5Z"},
		{"interval as digits", headers{id: "a", every: "5000"}, "2026-11-23T10:00:05.5Z"},
		{"interval from a delay", headers{id: "a", every: int32(5000), "x-delay": int32(10)}, "2026-11-23T10:00:00.51Z"},
		{"interval from no delay", headers{id: "a", every: int32(5000), "x-delay": int32(0)}, "2026-11-23T10:00:05.5Z"},
		{"the shortest interval", headers{id: "a", every: int32(1000)}, "2026-11-23T10:00:01.5Z"},
		{"cron", headers{id: "a", cron: "0 12 * * *"}, "2026-11-23T12:00:00Z"},
		{"cron in a zone", headers{id: "a", cron: "0 12 * * *", zone: "Europe/Berlin"}, "2026-11-23T11:00:00Z"},
		{"cron with names", headers{id: "a", cron: "30 8 * JAN Mon-fri"}, "2027-01-01T08:30:00Z"},
		{"cron after a delay", headers{id: "a", cron: "0 12 * * *", "x-delay": int32(7_200_000)}, "2026-11-24T12:00:00Z"},
		{"cron of a leap day", headers{id: "a", cron: "0 0 29 2 *"}, "2028-02-29T00:00:00Z"},
		{"Sunday is 0 and 7", headers{id: "a", cron: "0 0 * * 7"}, "2026-11-29T00:00:00Z"},
		{"either of the days", headers{id: "a", cron: "0 0 1 * 5"}, "2026-11-27T00:00:00Z"},
		{"more white space", headers{id: "a", cron: " 0\t12  * * * "}, "2026-11-23T12:00:00Z"},
		{"end", headers{id: "a", every: int32(5000), until: timestamp(1795428006)}, "2026-11-23T10:00:05.5Z"},
		{"end in milliseconds, with the first release", headers{id: "a", every: int32(5000), until: int64(1795428005500)}, "2026-11-23T10:00:05.5Z"},
		{"count", headers{id: "a", every: int32(5000), count: int32(1)}, "2026-11-23T10:00:05.5Z"},
		{"missed", headers{id: "a", every: int32(5000), miss: "once"}, "2026-11-23T10:00:05.5Z"},
		{"missed, skipped", headers{id: "a", every: int32(5000), miss: "skip"}, "2026-11-23T10:00:05.5Z"},
		{"a dead letter", headers{id: "a", every: int32(5000), "x-death": []any{}}, "never"},
		{"a dead letter that cannot be read", headers{every: "x", "x-death": []any{}}, "never"},

		{"no identity", headers{every: int32(5000)}, "invalid header 'x-schedule-every': there is no x-schedule-id"},
		{"cron without identity", headers{cron: "* * * * *"}, "invalid header 'x-schedule-cron': there is no x-schedule-id"},
		{"both", headers{id: "a", cron: "* * * * *", every: int32(5000)}, "invalid header 'x-schedule-cron': there is x-schedule-every, too"},
		{"too short an interval", headers{id: "a", every: int32(999)}, interval + "999"},
		{"negative interval", headers{id: "a", every: int32(-5000)}, interval + "-5000"},
		{"too long an interval", headers{id: "a", every: int64(math.MaxInt64)}, interval + "9223372036854775807"},
		{"interval of text", headers{id: "a", every: "5s"}, interval + "longstr"},
		{"interval of a boolean", headers{id: "a", every: true}, interval + "bool"},
		{"interval of a timestamp", headers{id: "a", every: timestamp(5)}, interval + "timestamp"},
		{"void interval", headers{id: "a", every: nil}, interval + "void"},
		{"cron of a number", headers{id: "a", cron: int32(5)}, "invalid header 'x-schedule-cron': expected a string, got signedint"},
		{"empty cron", headers{id: "a", cron: ""}, fields + `""`},
		{"four fields", headers{id: "a", cron: "0 12 * *"}, fields + `"0 12 * *"`},
		{"six fields", headers{id: "a", cron: "0 0 12 * * *"}, fields + `"0 0 12 * * *"`},
		{"a long name", headers{id: "a", cron: "0 0 * * sunday"}, `invalid header 'x-schedule-cron': "0 0 * * sunday": ` + names},
		{"the last day", headers{id: "a", cron: "0 0 L * *"}, `invalid header 'x-schedule-cron': "0 0 L * *": ` + names},
		{"a name of an interval", headers{id: "a", cron: "@daily"}, fields + `"@daily"`},
		{"a zone within", headers{id: "a", cron: "TZ=Asia/Tokyo 0 12 * *"}, fields + `"TZ=Asia/Tokyo 0 12 * *"`},
		{"a minute too many", headers{id: "a", cron: "60 * * * *"}, `invalid header 'x-schedule-cron': "60 * * * *": `},
		{"step 0", headers{id: "a", cron: "*/0 * * * *"}, `invalid header 'x-schedule-cron': "*/0 * * * *": `},
		{"too long", headers{id: "a", cron: "0" + strings.Repeat(",0", 200) + " * * * *"}, "invalid header 'x-schedule-cron': expected at most 255 bytes, got 409"},
		{"never", headers{id: "a", cron: "0 0 30 2 *"}, `invalid header 'x-schedule-cron': "0 0 30 2 *" names no time within ten years`},
		{"no zone of that name", headers{id: "a", cron: "* * * * *", zone: "Mars/Olympus"}, noZone + `"Mars/Olympus"` + iana},
		{"empty zone", headers{id: "a", cron: "* * * * *", zone: ""}, noZone + `""` + iana},
		{"the machine's zone", headers{id: "a", cron: "* * * * *", zone: "Local"}, noZone + `"Local"` + iana},
		{"a file", headers{id: "a", cron: "* * * * *", zone: "../../../etc/passwd"}, noZone + `"../../../etc/passwd"` + iana},
		{"the machine's zone as a file", headers{id: "a", cron: "* * * * *", zone: "localtime"}, noZone + `"localtime"` + iana},
		{"a zone with leap seconds", headers{id: "a", cron: "* * * * *", zone: "right/Europe/Berlin"}, noZone + `"right/Europe/Berlin"` + iana},
		{"hostile bytes", headers{id: "a", cron: "* * * * *", zone: "\x00\xff"}, noZone + `"\x00\xff"` + iana},
		{"a long zone", headers{id: "a", cron: "* * * * *", zone: strings.Repeat("z", 65)}, noZone + `"` + strings.Repeat("z", 64) + `"...` + iana},
		{"zone of a number", headers{id: "a", cron: "* * * * *", zone: int32(1)}, "invalid header 'x-schedule-zone': expected a string, got signedint"},
		{"zone with an interval", headers{id: "a", every: int32(5000), zone: "UTC"}, "invalid header 'x-schedule-zone': there is no x-schedule-cron"},
		{"zone alone", headers{zone: "UTC"}, "invalid header 'x-schedule-zone': there is no x-schedule-every or x-schedule-cron"},
		{"count alone", headers{id: "a", count: int32(1)}, "invalid header 'x-schedule-count': there is no x-schedule-every or x-schedule-cron"},
		{"end before the first release", headers{id: "a", every: int32(5000), until: int64(1795428005499)}, "invalid header 'x-schedule-until': it comes before the first release"},
		{"end of text", headers{id: "a", every: int32(5000), until: "tomorrow"}, "invalid header 'x-schedule-until': expected 1 to 9223372036854, got longstr"},
		{"end after all time", headers{id: "a", every: int32(5000), until: int64(math.MaxInt64)}, "invalid header 'x-schedule-until': expected 1 to 9223372036854, got 9223372036854775807"},
		{"count 0", headers{id: "a", every: int32(5000), count: int32(0)}, "invalid header 'x-schedule-count': expected 1 to 9223372036854775807, got 0"},
		{"missed otherwise", headers{id: "a", every: int32(5000), miss: "twice"}, `invalid header 'x-schedule-missed': expected once or skip, got "twice"`},
		{"missed of a number", headers{id: "a", every: int32(5000), miss: int32(1)}, "invalid header 'x-schedule-missed': expected a string, got signedint"},
	} {
		var p hook.Plan
		err := newSchedule(t, nil, nil).Plan(publish(at(t, published), tc.headers), &p)
		got := show(p.Hold, time.UTC)
		if err != nil {
			got = err.Error()
		}
		if got != tc.want && (!strings.HasSuffix(tc.want, ": ") || !strings.HasPrefix(got, tc.want)) {
			t.Errorf("%s:\n got %q\nwant %q", tc.name, got, tc.want)
		}
	}
}

// life is a recurring message that the broker holds.
type life struct {
	tb       testing.TB
	schedule hook.Schedule
	headers  map[string]any
	hold     hook.Instant
	state    int64
	releases []string // "+" and seconds since start
}

func newLife(tb testing.TB, headers map[string]any) *life {
	tb.Helper()
	l := &life{tb: tb, schedule: newSchedule(tb, nil, nil), headers: headers}
	headers[idHeader] = "a"
	var p hook.Plan
	if err := l.schedule.Plan(publish(start, headers), &p); err != nil {
		tb.Fatal(err)
	}
	l.hold = p.Hold
	return l
}

// run releases the message when it is due, up to an instant. late is the delay of each release.
func (l *life) run(until hook.Instant, late time.Duration) {
	l.tb.Helper()
	for l.hold != 0 && l.hold.Add(late) <= until {
		l.release(l.hold.Add(late))
	}
}

// release releases the message at an instant, as the broker does.
func (l *life) release(now hook.Instant) {
	l.tb.Helper()
	r := hook.Release{Due: l.hold, State: l.state}
	l.schedule.Released(publish(now, l.headers), &r)
	if !r.Skip {
		l.releases = append(l.releases, fmt.Sprintf("+%g", now.Sub(start).Seconds()))
	}
	if r.Hold != 0 && r.Hold <= now {
		l.tb.Fatalf("released at %d, and due again at %d", now, r.Hold)
	}
	l.hold, l.state = r.Hold, r.State
}

func (l *life) want(releases string, held bool) {
	l.tb.Helper()
	if got := strings.Join(l.releases, " "); got != releases || held != (l.hold != 0) {
		l.tb.Errorf("released at %s, held %t, want %s, %t", got, l.hold != 0, releases, held)
	}
	l.releases = nil
}

func TestIntervals(t *testing.T) {
	l := newLife(t, map[string]any{everyHeader: int32(10_000)})
	l.run(start.Add(30*time.Second), 2*time.Millisecond)
	l.want("+10.002 +20.002", true)
	l.run(start.Add(31*time.Second), 2*time.Millisecond) // points in time do not move by lateness
	l.want("+30.002", true)

	l = newLife(t, map[string]any{everyHeader: int32(10_000), delayHeader: int32(3000)})
	l.run(start.Add(25*time.Second), 0)
	l.want("+3 +13 +23", true)
}

// A lowered limit does not end existing recurrences.
func TestLoweredLimit(t *testing.T) {
	l := newLife(t, map[string]any{everyHeader: int32(10_000)})
	l.schedule = newSchedule(t, nil, map[string]any{"max-delay": int32(5000)})
	l.run(start.Add(25*time.Second), 0)
	l.want("+10 +20", true)
}

// A message published in a transaction before a limit was lowered used to be released at the commit, long before its time.
func TestLimitLoweredBeforeTheCommit(t *testing.T) {
	for _, headers := range []map[string]any{
		{delayHeader: int32(60_000)},
		{delayHeader: "60000", idHeader: "a"},
		{everyHeader: int32(60_000), idHeader: "a"},
	} {
		var p hook.Plan
		err := newSchedule(t, nil, map[string]any{"max-delay": int32(5000)}).Plan(publish(start, headers), &p)
		if want := start.AddMillis(60_000); err == nil || p.Hold != want || len(p.ID) != len(headers)-1 {
			t.Errorf("%v: got %+v, error %v, want an error and a hold until %d", headers, p, err, want)
		}
	}
}

func TestEndOfRecurrence(t *testing.T) {
	l := newLife(t, map[string]any{everyHeader: int32(10_000), countHeader: int32(2)})
	l.run(start.Add(time.Hour), 0)
	l.want("+10 +20", false)

	l = newLife(t, map[string]any{everyHeader: int32(10_000), untilHeader: int64(start)/1e6 + 30_000})
	l.run(start.Add(time.Hour), 0)
	l.want("+10 +20 +30", false)

	l = newLife(t, map[string]any{everyHeader: int32(10_000), untilHeader: int64(start)/1e6 + 29_999})
	l.run(start.Add(time.Hour), 0)
	l.want("+10 +20", false)
}

// While the broker was down, points in time passed.
func TestMissed(t *testing.T) {
	for _, tc := range []struct {
		name    string
		headers map[string]any
		up      time.Duration // after the start
		want    string
		held    bool
	}{
		{"once", map[string]any{everyHeader: int32(10_000)}, 47 * time.Second, "+47 +50 +60", true},
		{"skip", map[string]any{everyHeader: int32(10_000), missedHeader: "skip"}, 47 * time.Second, "+50 +60", true},
		{"at a point in time", map[string]any{everyHeader: int32(10_000)}, 40 * time.Second, "+40 +50 +60", true},
		{"a little late", map[string]any{everyHeader: int32(10_000), missedHeader: "skip"}, 19 * time.Second, "+19 +20 +30 +40 +50 +60", true},
		{"a minute late", map[string]any{everyHeader: int32(100_000), missedHeader: "skip"}, 160 * time.Second, "+160", true},
		{"more than a minute late", map[string]any{everyHeader: int32(100_000), missedHeader: "skip"}, 161 * time.Second, "", true},
		{"more than a minute late, once", map[string]any{everyHeader: int32(100_000)}, 161 * time.Second, "+161", true},
		{"count", map[string]any{everyHeader: int32(10_000), countHeader: int32(2)}, 47 * time.Second, "+47 +50", false},
		{"count of what was not skipped", map[string]any{everyHeader: int32(10_000), countHeader: int32(2), missedHeader: "skip"}, 47 * time.Second, "+50 +60", false},
		{"end", map[string]any{everyHeader: int32(10_000), untilHeader: int64(start)/1e6 + 30_000}, 47 * time.Second, "+47", false},
		{"skipped end", map[string]any{everyHeader: int32(10_000), untilHeader: int64(start)/1e6 + 30_000, missedHeader: "skip"}, 47 * time.Second, "", false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			l := newLife(t, tc.headers)
			l.release(start.Add(tc.up))
			l.run(start.Add(max(tc.up, time.Minute)), 0)
			l.want(tc.want, tc.held)
		})
	}
}

func TestCronThroughAnOutage(t *testing.T) {
	for missed, want := range map[string]string{
		"once": "2026-11-25T10:30:00Z 2026-11-26T08:00:00Z", "skip": "2026-11-26T08:00:00Z",
	} {
		s := newSchedule(t, nil, nil)
		headers := map[string]any{idHeader: "a", cronHeader: "0 8 * * *", missedHeader: missed}
		var p hook.Plan
		if err := s.Plan(publish(at(t, "2026-11-22T12:00:00Z"), headers), &p); err != nil {
			t.Fatal(err)
		}
		var releases []string
		hold := p.Hold
		for _, now := range []hook.Instant{at(t, "2026-11-25T10:30:00Z"), at(t, "2026-11-26T08:00:00Z")} {
			r := hook.Release{Due: hold}
			s.Released(publish(now, headers), &r)
			if !r.Skip {
				releases = append(releases, show(now, time.UTC))
			}
			hold = r.Hold
		}
		if got := strings.Join(releases, " "); got != want || show(hold, time.UTC) != "2026-11-27T08:00:00Z" {
			t.Errorf("%s: released at %s, then at %s, want %s", missed, got, show(hold, time.UTC), want)
		}
	}
}

// A message that does not recur, or that recurs by rules unknown to this version, leaves when it is released.
func TestReleasedForGood(t *testing.T) {
	for name, headers := range map[string]map[string]any{
		"delay":                  {delayHeader: int32(5)},
		"identity":               {delayHeader: int32(5), idHeader: "a"},
		"a dead letter":          {idHeader: "a", everyHeader: int32(5000), "x-death": []any{}},
		"unreadable":             {idHeader: "a", everyHeader: "x"},
		"a zone that went":       {idHeader: "a", cronHeader: "* * * * *", zoneHeader: "Mars/Olympus"},
		"an expression no more":  {idHeader: "a", cronHeader: "0 0 30 2 *"},
		"an interval too short":  {idHeader: "a", everyHeader: int32(1)},
		"the end of all instant": {idHeader: "a", everyHeader: int32(1000), untilHeader: int64(1)},
	} {
		r := hook.Release{Due: start}
		newSchedule(t, nil, nil).Released(publish(start, headers), &r)
		if r.Hold != 0 || r.Skip {
			t.Errorf("%s: %+v", name, r)
		}
	}
}

// Whatever the headers are, a message is either refused, or released at ever later instants.
func FuzzRecurrence(f *testing.F) {
	f.Add("0 9 * * 1-5", "Europe/Berlin", int64(0), int64(0), int64(0), "skip", int64(1795428006), int64(5))
	f.Add("*/7 */3 1,15 * 0", "America/Havana", int64(0), int64(1900000000000), int64(3), "once", int64(1772863200), int64(86400))
	f.Add("", "", int64(5000), int64(0), int64(10), "", int64(1795428006), int64(100))
	f.Fuzz(func(t *testing.T, cron, zone string, every, until, count int64, missed string, published, late int64) {
		headers := map[string]any{idHeader: "a"}
		for header, v := range map[string]any{cronHeader: cron, zoneHeader: zone, everyHeader: every, untilHeader: until, countHeader: count, missedHeader: missed} {
			if v != "" && v != int64(0) {
				headers[header] = v
			}
		}
		now := hook.Instant(published % 4_000_000_000 * 1e9)
		if now <= 0 {
			return
		}
		s := newSchedule(t, nil, nil)
		var p hook.Plan
		if err := s.Plan(publish(now, headers), &p); err != nil {
			if !strings.HasPrefix(err.Error(), "invalid header 'x-schedule-") {
				t.Error(err)
			}
			return
		}
		hold, state := p.Hold, int64(0)
		for range 10 {
			if hold == 0 {
				return
			}
			if hold <= now {
				t.Fatalf("%v: at %s it is due at %s", headers, show(now, time.UTC), show(hold, time.UTC))
			}
			now = max(hold, hold.Add(time.Duration(late%1e6)*time.Second))
			r := hook.Release{Due: hold, State: state}
			s.Released(publish(now, headers), &r)
			hold, state = r.Hold, r.State
		}
	})
}
