package maxlength

import (
	"math"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/curfewmq/curfew/sdk/hook"
	"github.com/curfewmq/curfew/sdk/hooktest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestConformance(t *testing.T) {
	settings := func(overflow string) map[string]any {
		return map[string]any{"max-length": int32(100), "max-length-bytes": int64(5 << 20), "overflow": overflow}
	}
	hooktest.Run(t, Factory,
		hooktest.Case{Name: "drop-head", Queue: hooktest.Spec{Settings: settings(dropHead)}},
		hooktest.Case{Name: "reject", Queue: hooktest.Spec{Settings: settings(rejectPublish), Credit: 40}},
		hooktest.Case{Name: "reject busy", Queue: hooktest.Spec{Settings: settings(rejectPublish), Credit: 40, Ready: 70, ReadyBytes: 1 << 20}},
		hooktest.Case{Name: "dead-letter", Queue: hooktest.Spec{Settings: settings(rejectPublishDLX), Ready: 90}})
}

const now = hook.Instant(1_700_000_000_000_000_000)

func attach(tb testing.TB, s hooktest.Spec) hook.Hooks {
	tb.Helper()
	return hooktest.New(tb, Factory, nil).Attach(hooktest.NewQueue(s))
}

func TestDropHead(t *testing.T) {
	for _, tc := range []struct {
		name          string
		kind          string
		settings      map[string]any
		length, bytes hook.Limit
	}{
		{name: "length", settings: map[string]any{"max-length": int32(5)}, length: hook.LimitOf(5)},
		{name: "bytes", settings: map[string]any{"max-length-bytes": uint8(6)}, bytes: hook.LimitOf(6)},
		{name: "both", settings: map[string]any{"max-length": int32(0), "max-length-bytes": int64(math.MaxInt64)}, length: hook.LimitOf(0), bytes: hook.LimitOf(math.MaxInt64)},
		{name: "said", settings: map[string]any{"max-length": int32(5), "overflow": dropHead}, length: hook.LimitOf(5)},
		{
			name: "reject-publish-dlx is for classic queues", kind: "quorum",
			settings: map[string]any{"max-length": int32(5), "overflow": rejectPublishDLX}, length: hook.LimitOf(5),
		},
		{name: "no limit", settings: map[string]any{"overflow": rejectPublish}},
	} {
		h := attach(t, hooktest.Spec{Type: tc.kind, Settings: tc.settings})
		if h.OnEnqueue != nil || h.Length != tc.length || h.Bytes != tc.bytes {
			t.Errorf("%s: got OnEnqueue %t, length %d, bytes %d, want none, %d, %d", tc.name, h.OnEnqueue != nil, h.Length.N(), h.Bytes.N(), tc.length.N(), tc.bytes.N())
		}
	}
}

// Each message is a letter. Its case gives its size ("a" 1 byte, "A" 10). t is a small message whose time is up, h one that is held, p one
// whose hold has ended, d one that an earlier plugin dropped. In want, a dot is a message that enters, and an x one that is kept out.
func TestReject(t *testing.T) {
	for _, tc := range []struct {
		name          string
		length, bytes hook.Limit
		queue         hooktest.Spec
		batch, want   string
	}{
		{name: "room", length: hook.LimitOf(3), batch: "aaa", want: "..."},
		{name: "one too many", length: hook.LimitOf(3), batch: "aaaa", want: "...x"},
		{name: "nearly full", length: hook.LimitOf(3), queue: hooktest.Spec{Ready: 2}, batch: "aa", want: ".x"},
		{name: "fuller than full", length: hook.LimitOf(3), queue: hooktest.Spec{Ready: 9}, batch: "a", want: "x"},
		{name: "unacked do not count", length: hook.LimitOf(1), queue: hooktest.Spec{Unacked: 9}, batch: "aa", want: ".x"},
		{name: "consumers take the first", length: hook.LimitOf(1), queue: hooktest.Spec{Credit: 2}, batch: "aaaa", want: "...x"},
		{name: "consumers of a queue that is not empty", length: hook.LimitOf(2), queue: hooktest.Spec{Ready: 1, Credit: 2}, batch: "aa", want: ".x"},
		{name: "nothing enters a queue of length 0", length: hook.LimitOf(0), queue: hooktest.Spec{Credit: 2}, batch: "aa", want: "xx"},
		{name: "bytes", bytes: hook.LimitOf(12), batch: "AaaaA", want: "...xx"},
		{name: "a small one fits behind a large one", bytes: hook.LimitOf(5), batch: "aAa", want: ".x."},
		{name: "bytes there", bytes: hook.LimitOf(12), queue: hooktest.Spec{Ready: 1, ReadyBytes: 10}, batch: "aaa", want: "..x"},
		{name: "bytes taken by consumers", bytes: hook.LimitOf(10), queue: hooktest.Spec{Credit: 1}, batch: "AAa", want: "..x"},
		{name: "both", length: hook.LimitOf(2), bytes: hook.LimitOf(10), batch: "aAaa", want: ".x.x"},
		{name: "expired on arrival", length: hook.LimitOf(1), batch: "tttaa", want: "....x"},
		{name: "expired behind others", length: hook.LimitOf(2), batch: "ata", want: "..x"},
		{name: "held ones count later", length: hook.LimitOf(1), queue: hooktest.Spec{Ready: 1}, batch: "hahA", want: ".x.x"},
		{name: "held ones leave room", length: hook.LimitOf(1), batch: "hha", want: "..."},
		{name: "a hold that has passed", length: hook.LimitOf(1), batch: "pp", want: ".x"},
		{name: "dropped before", length: hook.LimitOf(1), batch: "ddaa", want: "...x"},
	} {
		tc.queue.Settings = map[string]any{"overflow": rejectPublish}
		if tc.length.Set() {
			tc.queue.Settings["max-length"] = tc.length.N()
		}
		if tc.bytes.Set() {
			tc.queue.Settings["max-length-bytes"] = tc.bytes.N()
		}
		ms, vs := batch(tc.batch)
		attach(t, tc.queue).OnEnqueue(now, ms, vs)
		var got strings.Builder
		for _, v := range vs {
			if v.Action == hook.Refuse {
				got.WriteByte('x')
				continue
			}
			got.WriteByte('.')
		}
		if got.String() != tc.want {
			t.Errorf("%s: %s: got %s, want %s", tc.name, tc.batch, got.String(), tc.want)
		}
	}
}

func batch(letters string) ([]hook.Message, []hook.Verdict) {
	ms, vs := make([]hook.Message, len(letters)), make([]hook.Verdict, len(letters))
	for i, letter := range letters {
		ms[i] = hook.Message{Enqueued: now, Size: 1}
		switch letter {
		case 'A':
			ms[i].Size = 10
		case 't':
			vs[i].Deadline = now
		case 'h':
			vs[i].Hold = now + 1
		case 'p':
			vs[i].Hold = now
		case 'd':
			vs[i] = hook.Verdict{Action: hook.Drop, Reason: hook.ReasonExpired}
		}
	}
	return hooktest.Messages(ms...), vs
}

func TestRejectLeavesNothingToTheHead(t *testing.T) {
	for _, overflow := range []string{rejectPublish, rejectPublishDLX} {
		h := attach(t, hooktest.Spec{Settings: map[string]any{"max-length": int32(1), "max-length-bytes": int32(1), "overflow": overflow}})
		if h.Length.Set() || h.Bytes.Set() {
			t.Errorf("%s: got limits for the head, want none", overflow)
		}
		if one := hook.LimitOf(1); h.ReleaseLength != one || h.ReleaseBytes != one || h.DropReleased != (overflow == rejectPublishDLX) {
			t.Errorf("%s: got limits %d, %d for what is released, dropped %t", overflow, h.ReleaseLength.N(), h.ReleaseBytes.N(), h.DropReleased)
		}
	}
}

func TestRejectPublishDLX(t *testing.T) {
	h := attach(t, hooktest.Spec{Settings: map[string]any{"max-length": int32(1), "overflow": rejectPublishDLX}})
	ms, vs := batch("aa")
	h.OnEnqueue(now, ms, vs)
	want := []hook.Verdict{{}, {Action: hook.Drop, Reason: hook.ReasonMaxLen, Nack: true}}
	for i := range want {
		if vs[i] != want[i] {
			t.Errorf("message %d: got %+v, want %+v", i, vs[i], want[i])
		}
	}
}

func TestArguments(t *testing.T) {
	p := hooktest.New(t, Factory, nil)
	for _, tc := range []struct {
		name  string
		value any
		want  string
	}{
		{name: "x-max-length", value: int32(0)},
		{name: "x-max-length", value: int64(math.MaxInt64)},
		{name: "x-max-length", value: int32(-1), want: "{value_negative,-1}"},
		{name: "x-max-length", value: "1", want: `"expected integer, got longstr"`},
		{name: "x-max-length-bytes", value: uint16(7)},
		{name: "x-max-length-bytes", value: int16(-7), want: "{value_negative,-7}"},
		{name: "x-overflow", value: dropHead},
		{name: "x-overflow", value: rejectPublish},
		{name: "x-overflow", value: rejectPublishDLX},
		{name: "x-overflow", value: "drop-tail", want: "invalid_overflow"},
		{name: "x-overflow", value: int32(1), want: "{unacceptable_type,signedint}"},
	} {
		if got := hooktest.Term(t, p, tc.name, tc.value); got != tc.want {
			t.Errorf("%s = %v: got %q, want %q", tc.name, tc.value, got, tc.want)
		}
	}
}

func BenchmarkEnqueue(b *testing.B) {
	h := attach(b, hooktest.Spec{Settings: map[string]any{"max-length": int32(1000), "overflow": rejectPublish}})
	hooktest.Bench(b, h.OnEnqueue, hook.Message{Enqueued: now, Size: 100})
}
