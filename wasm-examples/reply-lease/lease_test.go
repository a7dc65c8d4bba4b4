package lease

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

func TestIsBuiltFromSource(t *testing.T) { build.Same(t, build.Rust(t, "lease.rs"), "lease.wasm") }

func TestQueuesStay(t *testing.T) {
	p := trial.Load(t, "lease.wasm", trial.Settings{"config": trial.Settings{"lease-ms": 10_000, "max-ms": 60_000}})
	for _, tc := range []struct {
		name           string
		ready, unacked int
		idle           time.Duration
		again          int64 // milliseconds until it is asked about again; 0: it goes
	}{
		{name: "just left", again: 10_000},
		{name: "empty", idle: 4 * time.Second, again: 6_000},
		{name: "empty for the lease", idle: 10 * time.Second},
		{name: "with a message", ready: 1, idle: 10 * time.Second, again: 10_000},
		{name: "with a message that is handed out", unacked: 1, idle: 10 * time.Second, again: 10_000},
		{name: "with a message, near the end", ready: 1, idle: 57 * time.Second, again: 3_000},
		{name: "with a message, for too long", ready: 1, idle: time.Minute},
	} {
		q := p.Queue(nil)
		q.Spec.Ready, q.Spec.Unacked = tc.ready, tc.unacked
		v := q.Idle(trial.Start, tc.idle)
		if tc.again == 0 {
			if v.Action != hook.Drop {
				t.Errorf("%s: got %+v, want it deleted", tc.name, v)
			}
			continue
		}
		if got := trial.Millis(trial.Start, v.Deadline); v.Action != hook.Keep || got != tc.again {
			t.Errorf("%s: got %+v, asked about again after %d ms; want it kept, and %d ms", tc.name, v, got, tc.again)
		}
	}
}

// The whole life of a reply queue: its messages expire, and nobody comes.
func TestLife(t *testing.T) {
	q := trial.Load(t, "lease.wasm", trial.Settings{"config": trial.Settings{"lease-ms": 10_000}}).Queue(nil)
	q.Spec.Ready = 3
	now := trial.Start
	for range 100 {
		v := q.Idle(now, now.Sub(trial.Start))
		if v.Action == hook.Drop {
			break
		}
		now = v.Deadline
		if now >= trial.Start.AddMillis(35_000) {
			q.Spec.Ready = 0
		}
	}
	if got := trial.Millis(trial.Start, now); got != 40_000 {
		t.Errorf("the queue goes after %d ms, want 40000: at the first look after its messages have", got)
	}
}

// What is not about queues stays with the broker.
func TestMessagesExpireAsWithoutThePolicy(t *testing.T) {
	q := trial.Load(t, "lease.wasm", nil).Queue(map[string]any{"message-ttl": int32(500)})
	if got := q.Wait(trial.Start, trial.Message{}); got != 500 {
		t.Errorf("got %d ms, want 500", got)
	}
}

func TestRefusesSettings(t *testing.T) {
	for _, config := range []trial.Settings{{"lease-ms": 999}, {"max-ms": 59_999}, {"max-ms": 31_536_000_001}} {
		why := trial.Refusal(t, "lease.wasm", trial.Settings{"config": config})
		if want := "lease-ms has to be 1000 or more, and max-ms from that to 31536000000"; !strings.HasSuffix(why, want) {
			t.Errorf("%v: got %q, want it to end with %q", config, why, want)
		}
	}
}
