package retry

import (
	"math"
	"slices"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/curfewmq/curfew/sdk/hook"
	"github.com/curfewmq/curfew/sdk/hooktest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestConformance(t *testing.T) {
	settings := func(kind string) map[string]any {
		return map[string]any{keyType: kind, keyMin: int32(100), keyMax: int64(1000)}
	}
	hooktest.Run(t, Factory,
		hooktest.Case{Name: "all", Queue: hooktest.Spec{Settings: settings(retryAll)}},
		hooktest.Case{Name: "failed", Queue: hooktest.Spec{Settings: settings(retryFailed)}},
		hooktest.Case{Name: "returned", Queue: hooktest.Spec{Settings: settings(retryReturned)}},
		hooktest.Case{Name: "multiplier", Queue: hooktest.Spec{Settings: map[string]any{keyType: retryAll, keyMin: int32(100), keyMultiplier: 1.5}}},
		hooktest.Case{Name: "disabled", Queue: hooktest.Spec{Settings: settings(retryDisabled)}})
}

const now = hook.Instant(1_700_000_000_000_000_000)

func attach(tb testing.TB, settings map[string]any) hook.Hooks {
	tb.Helper()
	return hooktest.New(tb, Factory, nil).Attach(hooktest.NewQueue(hooktest.Spec{Settings: settings}))
}

// waits returns how long a message is held when it comes back for the n-th time, in milliseconds.
func waits(t *testing.T, settings map[string]any, how hook.Return, ns ...uint32) []int64 {
	t.Helper()
	h := attach(t, settings)
	if h.OnReturn == nil {
		t.Fatalf("%v: no OnReturn", settings)
	}
	var all []int64
	for _, n := range ns {
		vs := make([]hook.Verdict, 1)
		h.OnReturn(now, hooktest.Messages(hook.Message{Return: how, Returns: n, Why: hook.WhyRequeue}), vs)
		wait := int64(-1) // not held
		if vs[0].Hold != 0 {
			wait = vs[0].Hold.Sub(now).Milliseconds()
		}
		all = append(all, wait)
	}
	return all
}

func TestWaits(t *testing.T) {
	const never = math.MaxUint32
	for _, tc := range []struct {
		name     string
		settings map[string]any
		n        []uint32
		want     []int64
	}{
		{
			name:     "longer each time, up to the maximum",
			settings: map[string]any{keyMin: int32(3000), keyMax: int32(12000)},
			n:        []uint32{1, 2, 3, 4, 5, never}, want: []int64{3000, 6000, 9000, 12000, 12000, 12000},
		},
		{
			name:     "without a maximum it is the minimum",
			settings: map[string]any{keyMin: int32(500)},
			n:        []uint32{1, 2, never}, want: []int64{500, 500, 500},
		},
		{
			name:     "with a multiplier",
			settings: map[string]any{keyMin: int32(100), keyMax: int64(1000), keyMultiplier: int32(2)},
			n:        []uint32{1, 2, 3, 4, 5, never}, want: []int64{100, 200, 400, 800, 1000, 1000},
		},
		{
			name:     "with a fraction, rounded up",
			settings: map[string]any{keyMin: int32(101), keyMax: int64(1000), keyMultiplier: 1.5},
			n:        []uint32{1, 2, 3}, want: []int64{101, 152, 228},
		},
		{
			name:     "whole milliseconds by a fraction",
			settings: map[string]any{keyMin: int32(1000), keyMultiplier: 1.1},
			n:        []uint32{1, 2, 3, 4, 5}, want: []int64{1000, 1100, 1210, 1331, 1465},
		},
		{
			name:     "the multiplier 1 is the same each time",
			settings: map[string]any{keyMin: int32(100), keyMultiplier: int32(1)},
			n:        []uint32{1, 2, never}, want: []int64{100, 100, 100},
		},
		{
			name:     "a multiplier without a maximum ends at ten years",
			settings: map[string]any{keyMin: int32(1), keyMultiplier: int32(10)},
			n:        []uint32{1, 4, 12, 13, never}, want: []int64{1, 1000, 100_000_000_000, hook.MaxMillis, hook.MaxMillis},
		},
		{
			name:     "a maximum below the minimum, of another policy, counts",
			settings: map[string]any{keyMin: int32(500), keyMax: int32(200)},
			n:        []uint32{1, 2}, want: []int64{200, 200},
		},
		{
			name:     "a count that is missing is the first",
			settings: map[string]any{keyMin: int32(500), keyMax: int32(2000)},
			n:        []uint32{0}, want: []int64{500},
		},
		{
			name:     "a maximum of nothing",
			settings: map[string]any{keyMin: int32(500), keyMax: int32(0)},
			n:        []uint32{1}, want: []int64{0},
		},
	} {
		tc.settings[keyType] = retryAll
		if got := waits(t, tc.settings, hook.ReturnFailed, tc.n...); !slices.Equal(got, tc.want) {
			t.Errorf("%s: got %v ms, want %v", tc.name, got, tc.want)
		}
	}
}

// Policies have no upper bound: values that do not fit saturate.
func TestHugeWaits(t *testing.T) {
	for _, settings := range []map[string]any{
		{keyMin: int64(math.MaxInt64), keyMax: int64(math.MaxInt64)},
		{keyMin: int64(math.MaxInt64 - 1), keyMax: int64(math.MaxInt64), keyMultiplier: 1000.0},
		{keyMin: int64(1), keyMax: int64(math.MaxInt64), keyMultiplier: 1000.0},
	} {
		settings[keyType] = retryAll
		h := attach(t, settings)
		for _, n := range []uint32{1, 2, 1000, math.MaxUint32} {
			vs := make([]hook.Verdict, 1)
			h.OnReturn(now, hooktest.Messages(hook.Message{Return: hook.ReturnNacked, Returns: n}), vs)
			if vs[0].Hold <= now {
				t.Errorf("%v: the message is held until %d the time %d", settings, vs[0].Hold, n)
			}
		}
	}
}

func TestTypes(t *testing.T) {
	for kind, want := range map[string][2]int64{ // rejected, nacked
		retryAll: {100, 100}, retryFailed: {100, -1}, retryReturned: {-1, 100},
	} {
		settings := map[string]any{keyType: kind, keyMin: int32(100)}
		got := [2]int64{waits(t, settings, hook.ReturnFailed, 1)[0], waits(t, settings, hook.ReturnNacked, 1)[0]}
		if got != want {
			t.Errorf("%s: got %v, want %v", kind, got, want)
		}
	}
}

func TestQueuesWithoutRetries(t *testing.T) {
	for _, settings := range []map[string]any{
		nil,
		{keyMin: int32(100), keyMax: int32(200), keyMultiplier: int32(2)},
		{keyType: retryDisabled, keyMin: int32(100)},
		{keyType: retryAll},
		{keyType: retryAll, keyMin: int32(0), keyMax: int32(100)},
		{keyType: "of a later version", keyMin: int32(100)},
		{keyType: int32(1), keyMin: int32(100)},
	} {
		if attach(t, settings).OnReturn != nil {
			t.Errorf("%v: messages wait", settings)
		}
	}
}

// A later hold of another plugin stays.
func TestTheLatestHoldCounts(t *testing.T) {
	h := attach(t, map[string]any{keyType: retryAll, keyMin: int32(100)})
	for before, want := range map[hook.Instant]hook.Instant{
		0: now.Add(100 * time.Millisecond), now: now.Add(100 * time.Millisecond), now.Add(time.Second): now.Add(time.Second),
	} {
		vs := []hook.Verdict{{Hold: before, Deadline: 7, State: 8}}
		h.OnReturn(now, hooktest.Messages(hook.Message{Return: hook.ReturnFailed, Returns: 1}), vs)
		if w := (hook.Verdict{Hold: want, Deadline: 7, State: 8}); vs[0] != w {
			t.Errorf("got %+v, want %+v", vs[0], w)
		}
	}
}

func BenchmarkHold(b *testing.B) {
	for name, settings := range map[string]map[string]any{
		"linear":     {keyType: retryAll, keyMin: int32(100), keyMax: int32(1000)},
		"multiplier": {keyType: retryAll, keyMin: int32(100), keyMultiplier: int32(2)},
	} {
		b.Run(name, func(b *testing.B) {
			hooktest.Bench(b, attach(b, settings).OnReturn, hook.Message{Return: hook.ReturnFailed, Returns: 3, Enqueued: now})
		})
	}
}
