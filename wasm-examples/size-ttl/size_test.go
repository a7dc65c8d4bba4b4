package size

import (
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/curfewmq/curfew/sdk/hook"
	"github.com/curfewmq/curfew/wasm-examples/internal/build"
	"github.com/curfewmq/curfew/wasm-examples/internal/trial"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestIsBuiltFromSource(t *testing.T) { build.Same(t, build.WAT(t, "size.wat"), "size.wasm") }

func TestHeavyMessagesWaitLess(t *testing.T) {
	config := trial.Settings{"base-ms": 10_000, "per-kib-ms": 100, "least-ms": 500}
	p := trial.Load(t, "size.wasm", trial.Settings{"config": config})
	for _, tc := range []struct {
		name       string
		size       int
		expiration hook.Limit
		ttl        int32
		want       int64
	}{
		{name: "empty", want: 10_000},
		{name: "less than a KiB", size: 1023, want: 10_000},
		{name: "a KiB", size: 1024, want: 9_900},
		{name: "heavy", size: 80 << 10, want: 2_000},
		{name: "too heavy for more than the least", size: 1 << 30, want: 500},
		{name: "publisher asks for less", expiration: hook.LimitOf(30), want: 30},
		{name: "publisher asks for more", expiration: hook.LimitOf(30_000), want: 10_000},
		{name: "queue asks for less", ttl: 40, want: 40},
		{name: "all of them", size: 80 << 10, ttl: 3_000, expiration: hook.LimitOf(4_000), want: 2_000},
	} {
		settings := map[string]any{}
		if tc.ttl != 0 {
			settings["message-ttl"] = tc.ttl
		}
		m := trial.Message{Message: hook.Message{Size: tc.size, Expiration: tc.expiration}}
		if got := p.Queue(settings).Wait(trial.Start, m); got != tc.want {
			t.Errorf("%s: got %d ms, want %d", tc.name, got, tc.want)
		}
	}
}

func TestDefaults(t *testing.T) {
	p := trial.Load(t, "size.wasm", nil)
	m := trial.Message{Message: hook.Message{Size: 100 << 10}}
	if got := p.Queue(nil).Wait(trial.Start, m); got != 59_000 {
		t.Errorf("100 KiB: got %d ms, want 59000", got)
	}
}

func TestRefusesSettings(t *testing.T) {
	for _, name := range []string{"base-ms", "per-kib-ms", "least-ms"} {
		for _, value := range []int64{-1, 315_360_000_001} {
			why := trial.Refusal(t, "size.wasm", trial.Settings{"config": trial.Settings{name: value}})
			if want := "base-ms, per-kib-ms and least-ms have to be from 0 to 315360000000"; !strings.HasSuffix(why, want) {
				t.Errorf("%s: %d: got %q, want it to end with %q", name, value, why, want)
			}
		}
	}
}
