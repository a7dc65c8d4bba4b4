package retry

import (
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/curfewmq/curfew/sdk/hook"
	"github.com/curfewmq/curfew/sdk/hooktest"
	"github.com/curfewmq/curfew/wasm-examples/internal/build"
	"github.com/curfewmq/curfew/wasm-examples/internal/trial"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestIsBuiltFromSource(t *testing.T) {
	build.Same(t, build.AssemblyScript(t, "retry.ts"), "retry.wasm")
}

func settings(config trial.Settings) trial.Settings {
	return trial.Settings{"config": config, "grants": []string{"route"}}
}

func died(times int) trial.Message {
	return trial.Message{Content: hooktest.Content{Deaths: times}}
}

// A message that is worked on first comes with an odd number of deaths, one that
// is published to the waiting queue with an even one.
func TestWaitsGrow(t *testing.T) {
	config := trial.Settings{"base-ms": 1_000, "max-ms": 6_000, "tries": 5, "exchange": "parking", "key": "failed"}
	q := trial.Load(t, "retry.wasm", settings(config)).Queue(nil)
	for deaths, want := range []int64{1_000, 1_000, 2_000, 2_000, 4_000, 4_000, 6_000, 6_000, 6_000, 6_000} {
		if got := q.Wait(trial.Start, died(deaths)); got != want {
			t.Errorf("after %d deaths: got %d ms, want %d", deaths, got, want)
		}
	}
	for _, deaths := range []int{10, 11, 1_000_000} {
		v := q.Enter(trial.Start, died(deaths))[0]
		if v.Action != hook.Route || *v.Target != (hook.Target{Exchange: "parking", Key: "failed", HasKey: true}) {
			t.Errorf("after %d deaths: got %+v to %+v, want it in the parking lot", deaths, v, v.Target)
		}
	}
}

// When the wait is over the queue dead-letters, as it does with any message.
func TestTheWaitEnds(t *testing.T) {
	q := trial.Load(t, "retry.wasm", settings(trial.Settings{"exchange": "parking"})).Queue(nil)
	if v := q.Due(trial.Start, died(1))[0]; v.Action != hook.Drop || v.Reason != hook.ReasonExpired || v.Final {
		t.Errorf("got %+v, want it to expire", v)
	}
}

func TestDefaults(t *testing.T) {
	q := trial.Load(t, "retry.wasm", settings(trial.Settings{"key": "failed"})).Queue(map[string]any{"message-ttl": int32(3_000)})
	for deaths, want := range map[int]int64{1: 1_000, 3: 2_000, 5: 3_000, 7: 3_000} {
		if got := q.Wait(trial.Start, died(deaths)); got != want {
			t.Errorf("in a queue with a TTL, after %d deaths: got %d ms, want %d", deaths, got, want)
		}
	}
	v := q.Enter(trial.Start, died(21))[0]
	if v.Action != hook.Route || *v.Target != (hook.Target{Key: "failed", HasKey: true}) {
		t.Errorf("after ten tries: got %+v to %+v, want it in the queue named failed", v, v.Target)
	}
}

// Collections of garbage in the module neither lose a text nor fill its memory.
func TestManyMessages(t *testing.T) {
	p := trial.Load(t, "retry.wasm", settings(trial.Settings{"exchange": "parking", "key": "failed", "tries": 1}))
	q := p.Queue(nil)
	ms := make([]trial.Message, 200)
	for i := range ms {
		ms[i] = died(2)
	}
	for range 50 {
		for i, v := range q.Enter(trial.Start, ms...) {
			if v.Action != hook.Route || v.Target.Exchange != "parking" || v.Target.Key != "failed" {
				t.Fatalf("message %d: got %+v to %+v", i, v, v.Target)
			}
		}
	}
}

func TestRefusesSettings(t *testing.T) {
	for _, tc := range []struct {
		config trial.Settings
		want   string
	}{
		{trial.Settings{"key": "failed", "base-ms": 0}, "base-ms has to be 1 or more, and max-ms from that to 31536000000"},
		{trial.Settings{"key": "failed", "max-ms": 999}, "base-ms has to be 1 or more, and max-ms from that to 31536000000"},
		{trial.Settings{"key": "failed", "tries": 1001}, "tries has to be from 1 to 1000"},
		{nil, "exchange, key or both have to say where messages go after the last try"},
	} {
		if why := trial.Refusal(t, "retry.wasm", settings(tc.config)); !strings.HasSuffix(why, tc.want) {
			t.Errorf("%v: got %q, want it to end with %q", tc.config, why, tc.want)
		}
	}
}
