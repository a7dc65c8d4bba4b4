package main

import (
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/curfewmq/curfew/sdk/hook"
	"github.com/curfewmq/curfew/wasm-examples/internal/build"
	"github.com/curfewmq/curfew/wasm-examples/internal/trial"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// The module in the broker's host. It is built and compiled once: that takes a
// while.
func TestModule(t *testing.T) {
	p := trial.Load(t, build.Go(t, "."), trial.Settings{"fuel": "large", "config": trial.Settings{
		"ttl-ms": 3_600_000, "zone": "Europe/Berlin", "open": 8, "close": "17:30", "days": "mon tue wed thu fri", "holidays": "2026-12-25 2026-12-26",
	}})
	testWaits(t, p)
	testRefusals(t, p)
}

func testWaits(t *testing.T, p *trial.Policy) {
	t.Helper()
	for _, tc := range []struct {
		name, at, want string
		expiration     hook.Limit
		ttl            int32
	}{
		{name: "while somebody is at work", at: "2026-11-20T09:00:00+01:00", want: "2026-11-20T10:00:00+01:00"},
		{name: "at the end of a Friday", at: "2026-11-20T17:00:00+01:00", want: "2026-11-23T08:30:00+01:00"},
		{name: "before a holiday", at: "2026-12-24T17:15:00+01:00", want: "2026-12-28T08:45:00+01:00"},
		{name: "publisher asks for less", at: "2026-11-20T17:29:00+01:00", expiration: hook.LimitOf(120_000), want: "2026-11-23T08:01:00+01:00"},
		{name: "queue asks for less", at: "2026-11-22T12:00:00+01:00", ttl: 60_000, want: "2026-11-23T08:01:00+01:00"},
	} {
		now := instant(t, tc.at)
		queue := map[string]any{}
		if tc.ttl != 0 {
			queue["message-ttl"] = tc.ttl
		}
		v := p.Queue(queue).Enter(now, trial.Message{Message: hook.Message{Expiration: tc.expiration}})[0]
		if want := instant(t, tc.want); v.Action != hook.Keep || v.Deadline != want {
			t.Errorf("%s: got %+v until %s, want %s", tc.name, v, v.Deadline.Time(), want.Time())
		}
	}
}

func instant(t *testing.T, s string) hook.Instant {
	t.Helper()
	at, err := time.Parse(time.RFC3339, s)
	if err != nil {
		t.Fatal(err)
	}
	return hook.Instant(at.UnixNano())
}

func testRefusals(t *testing.T, p *trial.Policy) {
	t.Helper()
	for name, tc := range map[string]struct{ value, want string }{
		"zone":     {"Berlin", "zone is not known; an example of one that is: Europe/Berlin"},
		"open":     {"17:00", "open has to be before close"},
		"close":    {"5 pm", "close is not a time of day such as 09:00"},
		"days":     {"monday", "days: monday is no day; accepted are mon tue wed thu fri sat sun, with spaces between them"},
		"holidays": {"Christmas", "holidays: Christmas is no date such as 2026-12-25"},
		"ttl-ms":   {"-1", "ttl-ms is out of range; accepted are 0 to 31536000000"},
	} {
		why := p.Refusal(trial.Settings{name: tc.value})
		if !strings.HasSuffix(why, tc.want) {
			t.Errorf("%s: %s: got %q, want it to end with %q", name, tc.value, why, tc.want)
		}
	}
}

// The policy itself runs anywhere: what it computes is what comes of walking
// through the calendar minute by minute.
func TestAfterIsWhatAWalkThroughTheCalendarSays(t *testing.T) {
	zone, err := time.LoadLocation("America/New_York")
	if err != nil {
		t.Fatal(err)
	}
	h := hours{
		open: 9 * 3_600_000, shut: 17 * 3_600_000, zone: zone, week: [7]bool{1: true, 2: true, 3: true, 4: true, 5: true},
		holidays: []int64{time.Date(2026, 3, 10, 0, 0, 0, 0, time.UTC).Unix() / 86_400},
	}
	// Over a change of the clocks, on 2026-03-08.
	for at := time.Date(2026, 3, 6, 3, 0, 0, 0, zone); at.Before(time.Date(2026, 3, 12, 0, 0, 0, 0, zone)); at = at.Add(97 * time.Minute) {
		for _, left := range []time.Duration{time.Minute, 3 * time.Hour, 20 * time.Hour} {
			want := walk(h, at, left)
			if got := time.UnixMilli(h.after(at.UnixMilli(), left.Milliseconds())).In(zone); !got.Equal(want) {
				t.Errorf("%s and %s at work: got %s, want %s", at, left, got, want)
			}
		}
	}
}

// walk returns when so much time at work has passed since at.
func walk(h hours, at time.Time, left time.Duration) time.Time {
	for left > 0 {
		clock := int64(at.Hour()*60+at.Minute()) * 60_000
		holiday := at.Format(time.DateOnly) == "2026-03-10"
		if h.week[at.Weekday()] && !holiday && clock >= h.open && clock < h.shut {
			left -= time.Minute
		}
		at = at.Add(time.Minute)
	}
	return at
}

// A wait that does not end within ten years ends then.
func TestAlmostNeverAtWork(t *testing.T) {
	h := hours{open: 0, shut: 60_000, zone: time.UTC, week: [7]bool{1: true}}
	start := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	if got, want := time.UnixMilli(h.after(start.UnixMilli(), maxTTL)).UTC(), start.AddDate(0, 0, maxDays); !got.Equal(want) {
		t.Errorf("got %s, want %s", got, want)
	}
}

func TestNoTimeLeft(t *testing.T) {
	h := hours{open: 0, shut: millisPerDay, zone: time.UTC, week: [7]bool{0: true, 1: true, 2: true, 3: true, 4: true, 5: true, 6: true}}
	at := time.Date(2026, 1, 1, 10, 0, 0, 0, time.UTC).UnixMilli()
	if got := h.after(at, 0); got != at {
		t.Errorf("without time left, around the clock: got %d, want %d", got, at)
	}
}
