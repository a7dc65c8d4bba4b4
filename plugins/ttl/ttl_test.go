package ttl

import (
	"math"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/curfewmq/curfew/sdk/hook"
	"github.com/curfewmq/curfew/sdk/hooktest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestConformance(t *testing.T) {
	second := hooktest.Spec{Settings: map[string]any{"message-ttl": int32(1000)}}
	zero := hooktest.Spec{Settings: map[string]any{"message-ttl": uint8(0)}, Consumers: 1}
	hooktest.Run(t, Factory,
		hooktest.Case{Name: "ttl", Queue: second},
		hooktest.Case{Name: "zero", Queue: zero},
		hooktest.Case{Name: "max", Section: hooktest.Section{"max": "10s"}, Queue: second})
}

const now = hook.Instant(1_700_000_000_050_000_000) // 50 ms past a tenth of a second

// attach returns the hooks of a queue; ttl < 0 is none.
func attach(tb testing.TB, s hooktest.Section, strategy string, ttl int64) (hook.Hooks, *hooktest.Queue) {
	tb.Helper()
	q := hooktest.NewQueue(hooktest.Spec{Strategy: strategy})
	if ttl >= 0 {
		q.Settings = map[string]any{"message-ttl": ttl}
	}
	return hooktest.New(tb, Factory, s).Attach(q), q
}

// enqueue returns the verdict on one message with the expiration, < 0 = none.
func enqueue(h hook.Hooks, expiration int64) hook.Verdict {
	ms := hooktest.Messages(hook.Message{Enqueued: now, Expiration: hook.LimitOf(expiration)})
	vs := make([]hook.Verdict, 1)
	h.OnEnqueue(now, ms, vs)
	return vs[0]
}

func TestDeadline(t *testing.T) {
	const none = -1
	for _, tc := range []struct {
		strategy        string
		max             string
		ttl, expiration int64
		want            int64 // milliseconds from now; none = no deadline
	}{
		{strategy: "deadline", ttl: none, expiration: none, want: none},
		{strategy: "deadline", ttl: 100, expiration: none, want: 100},
		{strategy: "deadline", ttl: none, expiration: 70, want: 70},
		{strategy: "deadline", ttl: 100, expiration: 70, want: 70},
		{strategy: "deadline", ttl: 70, expiration: 100, want: 70},
		{strategy: "deadline", ttl: 0, expiration: 100, want: 0},
		{strategy: "deadline", ttl: 100, expiration: 0, want: 0},
		{strategy: "deadline", ttl: hook.MaxMillis, expiration: none, want: hook.MaxMillis},
		{strategy: "rabbitmq", ttl: 100, expiration: 70, want: 70},
		{strategy: "rabbitmq", ttl: 70, expiration: 100, want: 70},
		{strategy: "ottermq", ttl: 70, expiration: 100, want: 100},
		{strategy: "ottermq", ttl: 70, expiration: none, want: 70},
		{strategy: "ottermq", ttl: none, expiration: 100, want: 100},
		{strategy: "ottermq", ttl: none, expiration: none, want: none},
		{strategy: "lavinmq", ttl: 50, expiration: none, want: 50},
		{strategy: "lavinmq", ttl: 149, expiration: none, want: 50},
		{strategy: "lavinmq", ttl: 150, expiration: 1000, want: 150},
		{strategy: "lavinmq", ttl: 49, expiration: none, want: -50},
		{strategy: "lavinmq", ttl: none, expiration: none, want: none},

		{strategy: "deadline", max: "1s", ttl: none, expiration: none, want: 1000},
		{strategy: "deadline", max: "1s", ttl: 5000, expiration: 6000, want: 1000},
		{strategy: "deadline", max: "1s", ttl: 5000, expiration: 500, want: 500},
		{strategy: "ottermq", max: "1s", ttl: 100, expiration: 5000, want: 1000},
		{strategy: "ottermq", max: "1s", ttl: none, expiration: none, want: 1000},
		{strategy: "lavinmq", max: "1s", ttl: none, expiration: none, want: 950},
	} {
		var s hooktest.Section
		if tc.max != "" {
			s = hooktest.Section{"max": tc.max}
		}
		h, _ := attach(t, s, tc.strategy, tc.ttl)
		want := now.Add(time.Duration(tc.want) * time.Millisecond)
		if tc.want == none {
			want = 0
		}
		if got := enqueue(h, tc.expiration).Deadline; got != want {
			t.Errorf("%s, max %q, queue %d, message %d: got %s from now, want %d ms", tc.strategy, tc.max, tc.ttl, tc.expiration, got.Sub(now), tc.want)
		}
	}
}

// A policy that changes a queue's TTL applies to queued messages if the strategy or the configuration says so.
func TestRestamp(t *testing.T) {
	for _, tc := range []struct {
		strategy string
		section  hooktest.Section
		asked    bool
	}{
		{"deadline", nil, false},
		{"rabbitmq", nil, false},
		{"deadline", hooktest.Section{"retroactive": true}, true},
		{"rabbitmq", hooktest.Section{"retroactive": true}, true},
		{"lavinmq", nil, true},
		{"ottermq", nil, true},
	} {
		h, _ := attach(t, tc.section, tc.strategy, 100)
		if asked := h.OnRestamp != nil; asked != tc.asked {
			t.Errorf("%s %v: asked for the deadlines of old messages: %t, want %t", tc.strategy, tc.section, asked, tc.asked)
			continue
		}
		if !tc.asked {
			continue
		}
		vs := make([]hook.Verdict, 1)
		h.OnRestamp(now.Add(time.Hour), hooktest.Messages(hook.Message{Enqueued: now, Why: hook.WhyChange}), vs)
		if want := enqueue(h, -1).Deadline; vs[0].Deadline != want {
			t.Errorf("%s: got a deadline %s from when it entered, want %s", tc.strategy, vs[0].Deadline.Sub(now), want.Sub(now))
		}
	}
}

func TestDeadlineSaturates(t *testing.T) {
	for _, strategy := range []string{"deadline", "rabbitmq", "ottermq"} {
		h, _ := attach(t, nil, strategy, math.MaxInt64)
		if got := enqueue(h, -1).Deadline; got != math.MaxInt64 {
			t.Errorf("%s: got deadline %d, want the last instant", strategy, got)
		}
	}
}

func TestEarlierDeadlineStays(t *testing.T) {
	for _, strategy := range []string{"deadline", "rabbitmq", "lavinmq", "ottermq"} {
		for _, ttl := range []int64{-1, 1000} {
			h, _ := attach(t, nil, strategy, ttl)
			ms := hooktest.Messages(hook.Message{Enqueued: now, Expiration: hook.LimitOf(2000)})
			vs := []hook.Verdict{{Deadline: now + 1}}
			h.OnEnqueue(now, ms, vs)
			if vs[0].Deadline != now+1 {
				t.Errorf("%s, queue %d: got %s from now, want the 1 ns set before", strategy, ttl, vs[0].Deadline.Sub(now))
			}
		}
	}
}

func TestScan(t *testing.T) {
	for strategy, want := range map[string]hook.Scan{
		"deadline": hook.ScanAnywhere, "rabbitmq": hook.ScanHeads, "lavinmq": hook.ScanTop, "ottermq": hook.ScanLazy,
	} {
		h, _ := attach(t, nil, strategy, 1)
		if h.Scan != want || !h.Strategy || !h.DeadlineFromReady {
			t.Errorf("%s: got scan %d, strategy %t, deadlines from ready %t, want %d, true, true", strategy, h.Scan, h.Strategy, h.DeadlineFromReady, want)
		}
	}
}

func TestLeavesOtherStrategiesAlone(t *testing.T) {
	h, _ := attach(t, nil, "wasm/mine", 1)
	if h.OnEnqueue != nil || h.OnHead != nil || h.Strategy {
		t.Errorf("got hooks %+v, want none", h)
	}
}

func TestHead(t *testing.T) {
	for _, strategy := range []string{"deadline", "rabbitmq", "lavinmq", "ottermq"} {
		h, _ := attach(t, nil, strategy, 1)
		ms := hooktest.Messages(
			hook.Message{Deadline: now - 1, Why: hook.WhyDue},
			hook.Message{Deadline: now, Why: hook.WhyDue},
			hook.Message{Deadline: now + 1, Why: hook.WhyHead},
			hook.Message{Why: hook.WhyHead},
			hook.Message{Deadline: now - 1, Why: hook.WhyLeaving},
		)
		vs := []hook.Verdict{{}, {}, {}, {}, {Action: hook.Drop, Reason: hook.ReasonRejected}}
		h.OnHead(now, ms, vs)
		want := []hook.Verdict{
			{Action: hook.Drop, Reason: hook.ReasonExpired},
			{Action: hook.Drop, Reason: hook.ReasonExpired},
			{},
			{},
			{Action: hook.Drop, Reason: hook.ReasonRejected},
		}
		for i := range want {
			if vs[i] != want[i] {
				t.Errorf("%s: message %d: got %+v, want %+v", strategy, i, vs[i], want[i])
			}
		}
	}
}

// In LavinMQ a message with TTL 0 waits while the queue has a consumer, and does not survive coming back.
func TestLavinMQZero(t *testing.T) {
	h, q := attach(t, nil, "lavinmq", 0)
	q.Spec.Consumers = 1
	v := enqueue(h, -1)
	m := hook.Message{Enqueued: now, Deadline: v.Deadline, State: v.State, Why: hook.WhyDue}

	v = head(h, m)
	if v.Action != hook.Keep || v.Deadline != now.Add(100*time.Millisecond) {
		t.Errorf("with a consumer: got %+v, want another 100 ms", v)
	}
	q.Spec.Consumers = 0
	if v = head(h, m); v.Action != hook.Drop || v.Reason != hook.ReasonExpired {
		t.Errorf("without a consumer: got %+v, want Drop(expired)", v)
	}

	q.Spec.Consumers = 1
	m.Why, m.Redelivered, m.Deadline = hook.WhyRequeue, true, now.Add(time.Hour)
	vs := []hook.Verdict{{Deadline: m.Deadline, State: m.State}}
	h.OnRequeue(now, hooktest.Messages(m), vs)
	if vs[0].Deadline != now {
		t.Errorf("requeued: got a deadline %s from now, want now", vs[0].Deadline.Sub(now))
	}
	m.Why, m.Deadline = hook.WhyDue, now
	if v = head(h, m); v.Action != hook.Drop {
		t.Errorf("after requeue: got %+v, want Drop", v)
	}
}

func head(h hook.Hooks, m hook.Message) hook.Verdict {
	vs := []hook.Verdict{{Deadline: m.Deadline, State: m.State}}
	h.OnHead(now, hooktest.Messages(m), vs)
	return vs[0]
}

// In LavinMQ too, other messages keep the deadline they had.
func TestLavinMQRequeueKeepsDeadline(t *testing.T) {
	h, _ := attach(t, nil, "lavinmq", 1000)
	m := hook.Message{Enqueued: now, Deadline: now.Add(time.Second), Why: hook.WhyRequeue, Redelivered: true}
	vs := []hook.Verdict{{Deadline: m.Deadline}}
	h.OnRequeue(now.Add(time.Minute), hooktest.Messages(m), vs)
	if vs[0].Deadline != m.Deadline {
		t.Errorf("got a deadline moved by %s", vs[0].Deadline.Sub(m.Deadline))
	}
}

// A message stamped in the first tenth of a second of 1970 still has a deadline.
func TestLavinMQFloorIsNotNone(t *testing.T) {
	h, _ := attach(t, nil, "lavinmq", 0)
	vs := make([]hook.Verdict, 1)
	h.OnEnqueue(5, hooktest.Messages(hook.Message{Enqueued: 5}), vs)
	if vs[0].Deadline == 0 {
		t.Error("got no deadline")
	}
}

func TestArgument(t *testing.T) {
	p := hooktest.New(t, Factory, nil)
	for _, tc := range []struct {
		value any
		want  string
	}{
		{value: int8(0)},
		{value: uint8(255)},
		{value: int16(1)},
		{value: uint16(1)},
		{value: int32(1)},
		{value: uint32(1)},
		{value: int64(hook.MaxMillis)},
		{value: int64(hook.MaxMillis + 1), want: "{value_too_large,315360000001}"},
		{value: int32(-10), want: "{value_negative,-10}"},
		{value: "10", want: `"expected integer, got longstr"`},
		{value: 10.0, want: `"expected integer, got double"`},
		{value: float32(10), want: `"expected integer, got float"`},
		{value: true, want: `"expected integer, got bool"`},
		{value: nil, want: `"expected integer, got void"`},
	} {
		if got := hooktest.Term(t, p, "x-message-ttl", tc.value); got != tc.want {
			t.Errorf("%T %v: got %q, want %q", tc.value, tc.value, got, tc.want)
		}
	}
}

func TestConfigErrors(t *testing.T) {
	for _, tc := range []struct {
		section hooktest.Section
		want    string
	}{
		{hooktest.Section{"max": "-1s"}, "max: -1s is out of range; accepted are"},
		{hooktest.Section{"max": "10us"}, "max: 10µs is out of range"},
		{hooktest.Section{"max": "1.0005s"}, "max: 1.0005s is out of range"},
		{hooktest.Section{"strategy": ""}, "strategy: is empty"},
	} {
		_, _, err := Factory.New(tc.section.Decode)
		if err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%v: got error %v, want %q", tc.section, err, tc.want)
		}
	}
}

func TestDefaultStrategy(t *testing.T) {
	for want, s := range map[string]hooktest.Section{"deadline": nil, "wasm/mine": {"strategy": "wasm/mine"}} {
		p, _ := hooktest.New(t, Factory, s).(hook.Strategist)
		if got := p.DefaultStrategy(); got != want {
			t.Errorf("%v: got default %q, want %q", s, got, want)
		}
	}
}

// There may be a million queues without a TTL: attaching to one must not cost memory.
func TestPlainQueuesShareHooks(t *testing.T) {
	p := hooktest.New(t, Factory, nil)
	for _, strategy := range []string{"deadline", "rabbitmq", "ottermq"} {
		q := hooktest.NewQueue(hooktest.Spec{Strategy: strategy})
		if n := testing.AllocsPerRun(10, func() { p.Attach(q) }); n > 0 {
			t.Errorf("%s: got %v allocations, want none", strategy, n)
		}
	}
}

func BenchmarkEnqueue(b *testing.B) {
	for _, bm := range []struct {
		name            string
		ttl, expiration int64
	}{
		{"no TTL", -1, -1},
		{"queue TTL", 60_000, -1},
		{"expiration", -1, 60_000},
		{"both", 60_000, 50_000},
	} {
		b.Run(bm.name, func(b *testing.B) {
			h, _ := attach(b, nil, "deadline", bm.ttl)
			hooktest.Bench(b, h.OnEnqueue, hook.Message{Enqueued: now, Expiration: hook.LimitOf(bm.expiration)})
		})
	}
}

func BenchmarkHead(b *testing.B) {
	h, _ := attach(b, nil, "deadline", 1)
	hooktest.Bench(b, h.OnHead, hook.Message{Enqueued: now, Deadline: now, Why: hook.WhyDue})
}
