package main

import (
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/curfewmq/curfew/sdk/go/policy"
	"github.com/curfewmq/curfew/sdk/hook"
	"github.com/curfewmq/curfew/wasm-examples/internal/build"
	"github.com/curfewmq/curfew/wasm-examples/internal/trial"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// The module in the broker's host. It is built and compiled once: that takes a while.
func TestModule(t *testing.T) {
	p := trial.Load(t, build.Go(t, "."), trial.Settings{"fuel": "large", "grants": []string{"hold"}, "config": trial.Settings{
		"zone": "Europe/Berlin", "from": "21:30", "to": 7, "days": "mon tue wed thu fri", "urgent": 9,
	}})
	testHolds(t, p)
	testRefusals(t, p)
}

func testHolds(t *testing.T, p *trial.Policy) {
	t.Helper()
	for _, tc := range []struct {
		name, at, want string // want is when it may be delivered; "" means at once
		priority       uint8
	}{
		{name: "by day", at: "2026-11-20T09:00:00+01:00"},
		{name: "at the last moment", at: "2026-11-19T21:29:59+01:00"},
		{name: "at night", at: "2026-11-19T21:30:00+01:00", want: "2026-11-20T07:00:00+01:00"},
		{name: "after midnight", at: "2026-11-20T00:00:00+01:00", want: "2026-11-20T07:00:00+01:00"},
		{name: "in the morning", at: "2026-11-20T07:00:00+01:00"},
		{name: "on a Friday evening", at: "2026-11-20T23:00:00+01:00", want: "2026-11-23T07:00:00+01:00"},
		{name: "on a Sunday", at: "2026-11-22T12:00:00+01:00", want: "2026-11-23T07:00:00+01:00"},
		{name: "urgent, at night", at: "2026-11-20T00:00:00+01:00", priority: 9},
		{name: "before the clocks change", at: "2026-03-27T22:00:00+01:00", want: "2026-03-30T07:00:00+02:00"},
	} {
		now, want := instant(t, tc.at), hook.Instant(0)
		if tc.want != "" {
			want = instant(t, tc.want)
		}
		q := p.Queue(map[string]any{"message-ttl": int32(60_000)})
		m := func() trial.Message { return trial.Message{Message: hook.Message{Priority: tc.priority}} }
		entered := q.Enter(now, m())[0]
		if entered.Action != hook.Keep || entered.Hold != want || entered.Deadline != now.AddMillis(60_000) {
			t.Errorf("%s: got %+v, want it held until %d, and its TTL", tc.name, entered, want)
		}
		for what, v := range map[string]hook.Verdict{"at the head": q.Head(now, m())[0], "when it comes back": q.Requeue(now, m())[0]} {
			if v.Action != hook.Keep || v.Hold != want || v.AskHead != (tc.priority < 9) {
				t.Errorf("%s, %s: got %+v, want it held until %d", tc.name, what, v, want)
			}
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
		"zone":   {"Berlin", "zone is not known; an example of one that is: Europe/Berlin"},
		"from":   {"24:00", "from is not a time of day such as 09:00"},
		"to":     {"7 am", "to is not a time of day such as 09:00"},
		"days":   {"monday", "days: monday is no day; accepted are mon tue wed thu fri sat sun, with spaces between them"},
		"urgent": {"257", "urgent is out of range; accepted are 0 to 256"},
	} {
		why := p.Refusal(trial.Settings{name: tc.value})
		if !strings.HasSuffix(why, tc.want) {
			t.Errorf("%s: %s: got %q, want it to end with %q", name, tc.value, why, tc.want)
		}
	}
}

// The policy itself runs anywhere: a night ends at the first minute that is not in it, also
// if the clocks change meanwhile.
func TestTheNightEndsAsTheClockSays(t *testing.T) {
	zone, err := time.LoadLocation("America/New_York")
	if err != nil {
		t.Fatal(err)
	}
	const hour = 3_600_000
	for _, q := range []*quiet{
		{from: 22 * hour, to: 7 * hour, week: [7]bool{true, true, true, true, true, true, true}},
		{from: 1 * hour, to: 2*hour + hour/2, week: [7]bool{true, true, true, true, true, true, true}}, // over a change of the clocks
		{from: 18 * hour, to: 9 * hour, week: [7]bool{3: true}},
		{from: 0, to: 0, week: [7]bool{1: true, 2: true}},
	} {
		q.zone, q.urgent, q.asked = zone, 256, policy.None
		for _, start := range []time.Time{
			time.Date(2026, 3, 6, 3, 0, 0, 0, zone), time.Date(2026, 10, 30, 3, 0, 0, 0, zone),
			time.Date(2040, 12, 29, 3, 0, 0, 0, zone), // the last night of a leap year was none
		} {
			for at := start; at.Before(start.AddDate(0, 0, 5)); at = at.Add(61 * time.Minute) {
				want := at
				for isQuiet(q, want) {
					want = want.Add(time.Minute)
				}
				if got := time.UnixMilli(q.end(at.UnixMilli())).In(zone); !got.Equal(want) {
					t.Errorf("%d to %d, %s: got %s, want %s", q.from/hour, q.to/hour, at, got, want)
				}
			}
		}
	}
}

// isQuiet reports whether it is quiet, by the calendar of package time.
func isQuiet(q *quiet, at time.Time) bool {
	clock := int64(at.Hour()*60+at.Minute()) * 60_000
	night := clock >= q.from && clock < q.to
	if q.to < q.from {
		night = clock >= q.from || clock < q.to
	}
	return night || !q.week[at.Weekday()]
}

// A policy's methods say what they hold, without a broker.
func TestUrgentMessagesAreNotHeld(t *testing.T) {
	q := &quiet{urgent: 5, asked: policy.None, zone: time.UTC} // no day is one for messages
	for priority, want := range map[uint8]bool{4: true, 5: false, 6: false} {
		m, v := policy.Msg{Priority: priority}, policy.Verdict{}
		q.OnEnqueue(1_000_000_000_000, &m, &v)
		if held := m.Held > 1_000_000_000_000; held != want || v.Ask != want {
			t.Errorf("priority %d: got %+v, want it held: %t", priority, m, want)
		}
	}
}
