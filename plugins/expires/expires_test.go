package expires

import (
	"math"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/curfewmq/curfew/sdk/hook"
	"github.com/curfewmq/curfew/sdk/hooktest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestConformance(t *testing.T) {
	minute := hooktest.Spec{Settings: map[string]any{"expires": int32(60_000)}, Ready: 1}
	hooktest.Run(t, Factory,
		hooktest.Case{Name: "lease", Queue: minute},
		hooktest.Case{Name: "only if empty", Section: hooktest.Section{"only-if-empty": true}, Queue: minute},
		hooktest.Case{Name: "dead letter", Section: hooktest.Section{"dead-letter": true}, Queue: minute})
}

const now = hook.Instant(1_700_000_000_000_000_001)

func attach(tb testing.TB, s hooktest.Section, expires int64) (hook.Hooks, *hooktest.Queue) {
	tb.Helper()
	q := hooktest.NewQueue(hooktest.Spec{Settings: map[string]any{"expires": expires}})
	return hooktest.New(tb, Factory, s).Attach(q), q
}

func idle(h hook.Hooks, since time.Duration, v hook.Verdict) hook.Verdict {
	h.OnIdle(now, since, &v)
	return v
}

var gone = hook.Verdict{Action: hook.Drop, Reason: hook.ReasonQueueExpired}

func TestLease(t *testing.T) {
	h, q := attach(t, nil, 1000)
	q.Spec.Ready = 5 // a queue goes with its messages
	for _, tc := range []struct {
		name  string
		idle  time.Duration
		start hook.Verdict
		want  hook.Verdict
	}{
		{name: "just used", idle: 0, want: hook.Verdict{Deadline: now.Add(time.Second)}},
		{name: "for a while", idle: 400 * time.Millisecond, want: hook.Verdict{Deadline: now.Add(600 * time.Millisecond)}},
		{name: "never early", idle: time.Second - 1, want: hook.Verdict{Deadline: now + 1}},
		{name: "to the nanosecond", idle: time.Second, want: gone},
		{name: "late", idle: time.Hour, want: gone},
		{
			name: "another plugin asks earlier", idle: 0,
			start: hook.Verdict{Deadline: now + 7}, want: hook.Verdict{Deadline: now + 7},
		},
		{
			name: "another plugin asks later", idle: 0,
			start: hook.Verdict{Deadline: now.Add(time.Hour)}, want: hook.Verdict{Deadline: now.Add(time.Second)},
		},
	} {
		if got := idle(h, tc.idle, tc.start); got != tc.want {
			t.Errorf("%s: got %+v, want %+v", tc.name, got, tc.want)
		}
	}
}

// A policy may set any number of milliseconds.
func TestLeaseForEver(t *testing.T) {
	h, _ := attach(t, nil, math.MaxInt64)
	if got := idle(h, time.Hour, hook.Verdict{}); got.Action != hook.Keep || got.Deadline <= now {
		t.Errorf("got %+v, want Keep", got)
	}
}

func TestOnlyIfEmpty(t *testing.T) {
	h, q := attach(t, hooktest.Section{"only-if-empty": true}, 1000)
	again := hook.Verdict{Deadline: now.Add(time.Second)}
	if got := idle(h, 0, hook.Verdict{}); got != again {
		t.Errorf("just used: got %+v, want %+v", got, again)
	}
	q.Spec.Ready = 1
	if got := idle(h, time.Second, hook.Verdict{}); got != again {
		t.Errorf("one message waiting: got %+v, want another period", got)
	}
	q.Spec.Ready, q.Spec.Unacked = 0, 1
	if got := idle(h, time.Hour, hook.Verdict{}); got != again {
		t.Errorf("one message handed out: got %+v, want another period", got)
	}
	q.Spec.Unacked, q.Spec.Held = 0, 1
	if got := idle(h, time.Hour, hook.Verdict{}); got != again {
		t.Errorf("one message held: got %+v, want another period", got)
	}
	q.Spec.Held = 0
	if got := idle(h, time.Hour, hook.Verdict{}); got != gone {
		t.Errorf("empty: got %+v, want %+v", got, gone)
	}
}

func TestDeadLetter(t *testing.T) {
	h, _ := attach(t, hooktest.Section{"dead-letter": true}, 1000)
	want := gone
	want.DeadLetter = true
	if got := idle(h, time.Second, hook.Verdict{}); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
}

func TestNothingToDo(t *testing.T) {
	p := hooktest.New(t, Factory, nil)
	if h := p.Attach(hooktest.NewQueue(hooktest.Spec{})); h.OnIdle != nil {
		t.Error("got OnIdle on a queue that does not expire")
	}
}

func TestArgument(t *testing.T) {
	p := hooktest.New(t, Factory, nil)
	for _, tc := range []struct {
		value any
		want  string
	}{
		{value: uint8(1)},
		{value: int64(hook.MaxMillis)},
		{value: int32(0), want: "{value_zero,0}"},
		{value: int32(-1), want: "{value_negative,-1}"},
		{value: int64(hook.MaxMillis + 1), want: "{value_too_large,315360000001}"},
		{value: "1000", want: `"expected integer, got longstr"`},
	} {
		if got := hooktest.Term(t, p, "x-expires", tc.value); got != tc.want {
			t.Errorf("%T %v: got %q, want %q", tc.value, tc.value, got, tc.want)
		}
	}
}

// There may be a million leased queues: each one's callback captures only its period.
func TestLeaseIsSmall(t *testing.T) {
	p := hooktest.New(t, Factory, nil)
	q := hooktest.NewQueue(hooktest.Spec{Settings: map[string]any{"expires": int32(60_000)}})
	if n := testing.AllocsPerRun(10, func() { p.Attach(q) }); n > 1 {
		t.Errorf("got %v allocations per queue, want 1", n)
	}
}

func BenchmarkIdle(b *testing.B) {
	h, _ := attach(b, nil, 1000)
	var v hook.Verdict
	b.ReportAllocs()
	for b.Loop() {
		v = hook.Verdict{}
		h.OnIdle(now, 0, &v)
	}
}

func BenchmarkAttach(b *testing.B) {
	p := hooktest.New(b, Factory, nil)
	q := hooktest.NewQueue(hooktest.Spec{Settings: map[string]any{"expires": int32(60_000)}})
	b.ReportAllocs()
	for b.Loop() {
		p.Attach(q)
	}
}
