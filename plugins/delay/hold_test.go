package delay

import (
	"math"
	"strings"
	"testing"
	"time"

	"github.com/curfewmq/curfew/sdk/hook"
	"github.com/curfewmq/curfew/sdk/hooktest"
)

// atRead is when headers are read: it has a fraction of a millisecond.
const atRead = hook.Instant(1_700_000_000_123_456_789)

func readHold(tb testing.TB, section hooktest.Section, after, at any) (hook.Wait, error) {
	tb.Helper()
	p := hooktest.New(tb, Factory, section).(hook.HoldReader)
	return p.ReadHold(atRead, []any{after, at})
}

func TestDeliverAfter(t *testing.T) {
	const wrong = "invalid header 'x-deliver-after': "
	const limits = ", expected 0 to 315360000000 milliseconds"
	for _, tc := range []struct {
		value any
		want  int64
		err   string
	}{
		{value: nil},
		{value: int8(100), want: 100},
		{value: uint8(200), want: 200},
		{value: int16(300), want: 300},
		{value: uint16(60000), want: 60000},
		{value: int32(1000), want: 1000},
		{value: uint32(1 << 31), want: 1 << 31},
		{value: int64(1 << 32), want: 1 << 32},
		{value: int64(hook.MaxMillis), want: hook.MaxMillis},
		{value: int32(0)},
		{value: 300.0, want: 300},
		{value: 300.1, want: 301}, // never early
		{value: float32(0.5), want: 1},
		{value: "300", want: 300},
		{value: []byte("300"), want: 300},
		{value: int64(hook.MaxMillis + 1), err: "{value_too_large,315360000001}"},
		{value: int64(math.MaxInt64), err: "{value_too_large,9223372036854775807}"},
		{value: int32(-1), err: "{value_negative,-1}"},
		{value: "-5", err: "{value_negative,-5}"},
		{value: true, err: "no_integer"},
		{value: "", err: "no_integer"},
		{value: "1s", err: "no_integer"},
		{value: "+1", err: "no_integer"},
		{value: strings.Repeat("9", 30), err: "no_integer"},
		{value: math.NaN(), err: "no_integer"},
		{value: math.Inf(1), err: "no_integer"},
		{value: 1e300, err: "no_integer"},
		{value: time.Unix(1, 0), err: "no_integer"},
		{value: struct{}{}, err: "no_integer"},
	} {
		w, err := readHold(t, nil, tc.value, nil)
		if tc.err != "" {
			if err == nil || err.Error() != wrong+tc.err+limits {
				t.Errorf("%v (%T): got %v, want %s", tc.value, tc.value, err, tc.err)
			}
			continue
		}
		if want := (hook.Wait{After: tc.want}); err != nil || w != want {
			t.Errorf("%v (%T): got %+v, %v, want %+v", tc.value, tc.value, w, err, want)
		}
	}
}

func TestDeliverAt(t *testing.T) {
	const wrong = "invalid header 'x-deliver-at': "
	const limits = ", expected a timestamp, or milliseconds since 1970, at most 315360000000 milliseconds from now"
	const last = 1_700_000_000_123 + hook.MaxMillis
	ms := func(n int64) hook.Instant { return hook.Instant(n * 1e6) }
	for _, tc := range []struct {
		value any
		want  hook.Instant
		err   string
	}{
		{value: time.Unix(1_800_000_000, 0), want: ms(1_800_000_000_000)},
		{value: int64(1_800_000_000_001), want: ms(1_800_000_000_001)},
		{value: 1_800_000_000_000.5, want: ms(1_800_000_000_001)},
		{value: "1800000000001", want: ms(1_800_000_000_001)},
		{value: int64(last), want: ms(last)},
		{value: int32(5), want: ms(5)}, // long ago: not held
		{value: int32(0)},
		{value: int64(last + 1), err: "{value_too_large,2015360000124}"},
		{value: time.Unix(253402300799, 0), err: "{value_too_large,253402300799000}"},
		{value: int64(math.MaxInt64), err: "{value_too_large,9223372036854775807}"},
		{value: int32(-1), err: "{value_negative,-1}"},
		{value: false, err: "no_integer"},
		{value: "tomorrow", err: "no_integer"},
		{value: math.Inf(-1), err: "no_integer"},
	} {
		w, err := readHold(t, nil, nil, tc.value)
		if tc.err != "" {
			if err == nil || err.Error() != wrong+tc.err+limits {
				t.Errorf("%v (%T): got %v, want %s", tc.value, tc.value, err, tc.err)
			}
			continue
		}
		if want := (hook.Wait{Until: tc.want}); err != nil || w != want {
			t.Errorf("%v (%T): got %+v, %v, want %+v", tc.value, tc.value, w, err, want)
		}
	}
}

func TestLongestHold(t *testing.T) {
	section := hooktest.Section{"max": "1s"}
	if _, err := readHold(t, section, int32(1000), nil); err != nil {
		t.Error(err)
	}
	for _, values := range [][2]any{{int32(1001), nil}, {nil, int64(1_700_000_001_124)}} {
		if _, err := readHold(t, section, values[0], values[1]); err == nil || !strings.Contains(err.Error(), "1000 milliseconds") {
			t.Errorf("%v: got %v", values, err)
		}
	}
	p := hooktest.New(t, Factory, section)
	if got, want := hooktest.Term(t, p, "x-"+keyDelay, int32(1001)), "{value_too_large,1001}"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestHeadersAreSwitchedOff(t *testing.T) {
	p := hooktest.New(t, Factory, hooktest.Section{"headers": false}).(hook.HoldReader)
	if names := p.HoldHeaders(); names != nil {
		t.Errorf("reads %q", names)
	}
}

func TestQueueDelay(t *testing.T) {
	hold := func(section hooktest.Section, settings map[string]any, before hook.Verdict) hook.Verdict {
		h := hooktest.New(t, Factory, section).Attach(hooktest.NewQueue(hooktest.Spec{Settings: settings}))
		if h.OnEnqueue == nil {
			return before
		}
		vs := []hook.Verdict{before}
		h.OnEnqueue(atRead, hooktest.Messages(hook.Message{Enqueued: atRead}), vs)
		return vs[0]
	}
	second := atRead.Add(time.Second)
	for _, tc := range []struct {
		name         string
		section      hooktest.Section
		delay        any
		before, want hook.Verdict
	}{
		{name: "argument", delay: int32(1000), want: hook.Verdict{Hold: second}},
		{name: "policy", delay: int64(1000), want: hook.Verdict{Hold: second}},
		{name: "none", delay: int32(0)},
		{name: "another type", delay: "1000"},
		{name: "a later one counts", delay: int32(1000), before: hook.Verdict{Hold: second + 1}, want: hook.Verdict{Hold: second + 1}},
		{name: "an earlier one does not", delay: int32(1000), before: hook.Verdict{Hold: second - 1}, want: hook.Verdict{Hold: second}},
		{
			name: "of a message that is dropped", delay: int32(1000), before: hook.Verdict{Action: hook.Drop, Reason: hook.ReasonDuplicate},
			want: hook.Verdict{Action: hook.Drop, Reason: hook.ReasonDuplicate},
		},
		{name: "the longest hold has become shorter", section: hooktest.Section{"max": "1s"}, delay: int32(5000), want: hook.Verdict{Hold: second}},
	} {
		if got := hold(tc.section, map[string]any{keyDelay: tc.delay}, tc.before); got != tc.want {
			t.Errorf("%s: got %+v, want %+v", tc.name, got, tc.want)
		}
	}
}

func TestQueueDelayArgument(t *testing.T) {
	p := hooktest.New(t, Factory, nil)
	for _, tc := range []struct {
		value any
		want  string
	}{
		{int32(0), ""},
		{int64(hook.MaxMillis), ""},
		{int64(hook.MaxMillis + 1), "{value_too_large,315360000001}"},
		{int32(-1), "{value_negative,-1}"},
		{"1000", `"expected integer, got longstr"`},
	} {
		if got := hooktest.Term(t, p, "x-"+keyDelay, tc.value); got != tc.want {
			t.Errorf("%v: got %q, want %q", tc.value, got, tc.want)
		}
	}
}

// Whatever value a publisher sends becomes a time within the limits, or is refused with a one-line error.
func FuzzReadHold(f *testing.F) {
	f.Add("300", int64(5), 1.5)
	f.Add("-1", int64(math.MaxInt64), math.NaN())
	p := hooktest.New(f, Factory, nil).(hook.HoldReader)
	f.Fuzz(func(t *testing.T, s string, n int64, x float64) {
		for _, v := range []any{s, []byte(s), n, int32(n), x, float32(x), time.Unix(n, 0)} {
			for _, values := range [][]any{{v, nil}, {nil, v}} {
				w, err := p.ReadHold(atRead, values)
				if err != nil {
					if strings.ContainsAny(err.Error(), "\r\n") {
						t.Errorf("%v: refused with %q", values, err)
					}
					continue
				}
				if w.After < 0 || w.After > hook.MaxMillis || w.Until < 0 || w.Until > atRead.AddMillis(hook.MaxMillis) {
					t.Errorf("%v: got %+v", values, w)
				}
			}
		}
	})
}
