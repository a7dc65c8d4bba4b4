package header

import (
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/curfewmq/curfew/sdk/hook"
	"github.com/curfewmq/curfew/sdk/hooktest"
	"github.com/curfewmq/curfew/wasm-examples/internal/build"
	"github.com/curfewmq/curfew/wasm-examples/internal/trial"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestIsBuiltFromSource(t *testing.T) { build.Same(t, build.Rust(t, "header.rs"), "header.wasm") }

func load(t *testing.T, config trial.Settings) *trial.Queue {
	t.Helper()
	return trial.Load(t, "header.wasm", trial.Settings{"config": config, "grants": []string{"headers"}}).Queue(nil)
}

func saying(header string, v any) trial.Message {
	return trial.Message{Content: hooktest.Content{Headers: map[string]any{header: v}}}
}

// The clock says 2023-11-14 22:13:20 UTC.
func TestHeaderSaysUntilWhen(t *testing.T) {
	q := load(t, nil)
	for _, tc := range []struct {
		says any
		want int64 // milliseconds to wait; -1: no limit
	}{
		{"2023-11-14T22:13:30+00:00", 10_000},
		{"2023-11-14T22:13:30.123456+00:00", 10_123},
		{"2023-11-14T23:13:30+01:00", 10_000},
		{"2023-11-14T17:43:30.5-0430", 10_500},
		{"2023-11-14 22:13:30", 10_000},
		{"2023-11-14T22:14Z", 40_000},
		{"2024-02-29T22:13:20Z", (107 * 24 * time.Hour).Milliseconds()},
		{"2024-03-01T00:00:00Z", (107*24*time.Hour + 6400*time.Second).Milliseconds()},
		{int64(1_700_000_010), 10_000},
		{int64(1_700_000_010_123), 10_123},
		{"1700000010", 10_000},
		{"soon", -1},
		{"2023-02-29T00:00:00Z", -1},
		{"2023-11-14T22:13:30 and more", -1},
		{"2023-11-14T24:00:00", -1},
		{"2023-13-01T00:00:00", -1},
		{"", -1},
		{int64(-5), -1},
		{nil, -1},
	} {
		if got := q.Wait(trial.Start, saying("expires", tc.says)); got != tc.want {
			t.Errorf("expires: %v: got %d ms, want %d", tc.says, got, tc.want)
		}
	}
}

// The module's calendar is the standard library's.
func TestCalendar(t *testing.T) {
	q := load(t, nil)
	for d := time.Date(2023, 12, 1, 12, 0, 0, 0, time.UTC); d.Year() < 2105; d = d.AddDate(0, 0, 47) {
		want := d.UnixMilli() - int64(trial.Start)/1_000_000
		if got := q.Wait(trial.Start, saying("expires", d.Format(time.RFC3339))); got != want {
			t.Fatalf("%s: got %d ms, want %d", d, got, want)
		}
	}
}

func TestTooLate(t *testing.T) {
	q := load(t, nil)
	for _, at := range []string{"2023-11-14T22:13:20Z", "1999-12-31T23:59:59Z"} {
		if v := q.Enter(trial.Start, saying("expires", at))[0]; v.Action != hook.Drop || v.Reason != hook.ReasonExpired || v.Final {
			t.Errorf("%s: got %+v, want it to expire at once", at, v)
		}
	}
}

func TestPublisherMayAskForLess(t *testing.T) {
	m := saying("expires", "2023-11-14T22:13:30Z")
	m.Expiration = hook.LimitOf(700)
	if got := load(t, nil).Wait(trial.Start, m); got != 700 {
		t.Errorf("got %d ms, want 700", got)
	}
}

// A task that is to begin at eta is of no use an hour later.
func TestOtherHeader(t *testing.T) {
	q := load(t, trial.Settings{"header": "eta", "plus-ms": 3_600_000})
	if got := q.Wait(trial.Start, saying("eta", "2023-11-14T22:13:30Z")); got != 3_610_000 {
		t.Errorf("got %d ms, want 3610000", got)
	}
	if got := q.Wait(trial.Start, saying("expires", "2023-11-14T22:13:30Z")); got != -1 {
		t.Errorf("another header: got %d ms, want no limit", got)
	}
}

func TestRefusals(t *testing.T) {
	for _, tc := range []struct {
		settings trial.Settings
		want     string
	}{
		{trial.Settings{"config": trial.Settings{"header": ""}}, "header has to be a name of 1 to 64 bytes"},
		{trial.Settings{"config": trial.Settings{"header": strings.Repeat("x", 65)}}, "header has to be a name of 1 to 64 bytes"},
		{trial.Settings{"config": trial.Settings{"plus-ms": 31_536_000_001}}, "plus-ms has to be from -31536000000 to 31536000000"},
	} {
		tc.settings["grants"] = []string{"headers"}
		if why := trial.Refusal(t, "header.wasm", tc.settings); !strings.HasSuffix(why, tc.want) {
			t.Errorf("%v: got %q, want it to end with %q", tc.settings, why, tc.want)
		}
	}
	if why := trial.Refusal(t, "header.wasm", nil); !strings.Contains(why, "headers") {
		t.Errorf("without the grant: got %q, want it to name headers", why)
	}
}
