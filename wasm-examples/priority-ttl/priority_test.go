package priority

import (
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/curfewmq/curfew/sdk/hook"
	"github.com/curfewmq/curfew/wasm-examples/internal/build"
	"github.com/curfewmq/curfew/wasm-examples/internal/trial"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestIsBuiltFromSource(t *testing.T) {
	build.Same(t, build.C(t, "src/priority.c"), "priority.wasm")
}

func load(t *testing.T, config trial.Settings) *trial.Policy {
	t.Helper()
	return trial.Load(t, "priority.wasm", trial.Settings{"config": config})
}

func TestTimeByPriority(t *testing.T) {
	p := load(t, trial.Settings{"default-ms": 5_000, "ttl-ms": trial.Settings{"2": 60_000, "9": -1, "10": 3_000, "255": 0}})
	for _, tc := range []struct {
		name       string
		priority   uint8
		expiration hook.Limit
		ttl        int32
		want       int64
	}{
		{name: "lowest", want: 5_000},
		{name: "has its own", priority: 2, want: 60_000},
		{name: "has that of the next lower", priority: 8, want: 60_000},
		{name: "no limit", priority: 9, want: -1},
		{name: "two digits", priority: 10, want: 3_000},
		{name: "between", priority: 254, want: 3_000},
		{name: "highest, not to wait at all", priority: 255, want: 0},
		{name: "publisher asks for less", priority: 2, expiration: hook.LimitOf(100), want: 100},
		{name: "publisher asks for more", priority: 1, expiration: hook.LimitOf(6_000), want: 5_000},
		{name: "queue asks for less", priority: 9, ttl: 200, want: 200},
		{name: "both ask for less", priority: 2, expiration: hook.LimitOf(0), ttl: 200, want: 0},
	} {
		settings := map[string]any{}
		if tc.ttl != 0 {
			settings["message-ttl"] = tc.ttl
		}
		m := trial.Message{Message: hook.Message{Priority: tc.priority, Expiration: tc.expiration}}
		if got := p.Queue(settings).Wait(trial.Start, m); got != tc.want {
			t.Errorf("%s: got %d ms, want %d", tc.name, got, tc.want)
		}
	}
}

// Batches that do not fit into one call of the module get the same answers.
func TestManyAtOnce(t *testing.T) {
	q := load(t, trial.Settings{"ttl-ms": trial.Settings{"0": 1_000, "1": 2_000}}).Queue(nil)
	ms := make([]trial.Message, 200)
	for i := range ms {
		ms[i].Priority = uint8(i % 2)
	}
	for i, v := range q.Enter(trial.Start, ms...) {
		if got, want := trial.Millis(trial.Start, v.Deadline), int64(1_000+i%2*1_000); got != want {
			t.Errorf("message %d: got %d ms, want %d", i, got, want)
		}
	}
}

func TestWithoutSettingsNothingExpires(t *testing.T) {
	if got := load(t, nil).Queue(nil).Wait(trial.Start, trial.Message{}); got != -1 {
		t.Errorf("got %d ms, want none", got)
	}
}

func TestRefusesSettings(t *testing.T) {
	for _, tc := range []struct {
		config trial.Settings
		want   string
	}{
		{trial.Settings{"default-ms": -2}, "accepted are 0 to 2147483647000, and -1 for no limit"},
		{trial.Settings{"ttl-ms": trial.Settings{"255": 2_147_483_647_001}}, "accepted are 0 to 2147483647000, and -1 for no limit"},
		{trial.Settings{"ttl-ms": trial.Settings{"3": "soon"}}, `ttl-ms.3: "soon" is not a whole number`},
	} {
		why := trial.Refusal(t, "priority.wasm", trial.Settings{"config": tc.config})
		if !strings.HasSuffix(why, tc.want) {
			t.Errorf("%v: got %q, want it to end with %q", tc.config, why, tc.want)
		}
	}
}
