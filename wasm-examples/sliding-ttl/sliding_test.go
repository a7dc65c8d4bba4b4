package sliding

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

func TestIsBuiltFromSource(t *testing.T) { build.Same(t, build.Rust(t, "sliding.rs"), "sliding.wasm") }

func load(t *testing.T) *trial.Policy {
	t.Helper()
	return trial.Load(t, "sliding.wasm", trial.Settings{"config": trial.Settings{"ttl-ms": 1_000, "max-ms": 3_000}})
}

func TestComingBackRenews(t *testing.T) {
	for _, tc := range []struct {
		name       string
		after      time.Duration // since it entered
		expiration hook.Limit
		ttl        int32
		want       int64 // deadline, milliseconds since it entered
	}{
		{name: "at once", want: 1_000},
		{name: "later", after: 900 * time.Millisecond, want: 1_900},
		{name: "when its time was up while it was handed out", after: 1_500 * time.Millisecond, want: 2_500},
		{name: "near the limit", after: 2_500 * time.Millisecond, want: 3_000},
		{name: "beyond it", after: 10 * time.Second, want: 3_000},
		{name: "publisher lowers the limit", after: 900 * time.Millisecond, expiration: hook.LimitOf(1_200), want: 1_200},
		{name: "queue lowers the limit", after: 900 * time.Millisecond, ttl: 1_300, want: 1_300},
	} {
		settings := map[string]any{}
		if tc.ttl != 0 {
			settings["message-ttl"] = tc.ttl
		}
		m := trial.Message{Message: hook.Message{Enqueued: trial.Start, Deadline: trial.Start.AddMillis(1_000), Expiration: tc.expiration}}
		v := load(t).Queue(settings).Requeue(trial.Start.Add(tc.after), m)[0]
		if got := trial.Millis(trial.Start, v.Deadline); v.Action != hook.Keep || got != tc.want {
			t.Errorf("%s: got %+v, a deadline after %d ms; want one after %d", tc.name, v, got, tc.want)
		}
	}
}

func TestEntering(t *testing.T) {
	q := load(t).Queue(nil)
	if got := q.Wait(trial.Start, trial.Message{}); got != 1_000 {
		t.Errorf("got %d ms, want 1000", got)
	}
	brief := trial.Message{Message: hook.Message{Expiration: hook.LimitOf(10)}}
	if got := q.Wait(trial.Start, brief); got != 10 {
		t.Errorf("with an expiration of 10 ms: got %d ms", got)
	}
	if v := q.Due(trial.Start, trial.Message{})[0]; v.Action != hook.Drop || v.Reason != hook.ReasonExpired || v.Final {
		t.Errorf("when it is due: got %+v, want it to expire", v)
	}
}

func TestRefusesSettings(t *testing.T) {
	for _, config := range []trial.Settings{{"ttl-ms": 0}, {"ttl-ms": 2_000, "max-ms": 1_999}} {
		why := trial.Refusal(t, "sliding.wasm", trial.Settings{"config": config})
		if want := "ttl-ms must be 1 or more, and max-ms no less than that"; !strings.HasSuffix(why, want) {
			t.Errorf("%v: got %q, want it to end with %q", config, why, want)
		}
	}
}
