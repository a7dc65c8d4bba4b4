package delay

import (
	"math"
	"strings"
	"testing"
	"time"

	"github.com/curfewmq/curfew/sdk/hook"
	"github.com/curfewmq/curfew/sdk/hooktest"
)

// timestamp and decimal are like the broker's types.
type (
	timestamp uint64
	decimal   struct{ scale, value uint32 }
)

func (timestamp) AMQPType() string { return "timestamp" }
func (decimal) AMQPType() string   { return "decimal" }

// source has headers in the form in which the broker presents them.
type source struct{ hooktest.Source }

func (s *source) HeaderInt(i int, name string) (int64, bool) {
	if t, ok := s.Source[i].Headers[name].(timestamp); ok {
		return int64(t) * 1000, uint64(t) <= math.MaxInt64/1000
	}
	if f, ok := s.Source[i].Headers[name].(float32); ok {
		return hook.WholeFloat(float64(f))
	}
	return s.Source.HeaderInt(i, name)
}

func publish(at hook.Instant, headers map[string]any) *hook.Publishing {
	m := &hook.Publishing{Now: at, Key: "k"}
	m.Bind(&source{hooktest.Source{{Headers: headers}}})
	return m
}

func TestDelayHeader(t *testing.T) {
	const (
		noInteger = "invalid header 'x-delay': no_integer"
		tooLarge  = "invalid header 'x-delay': {value_too_large,"
	)
	for _, tc := range []struct {
		name  string
		value any
		want  int64 // milliseconds; 0 = at once
		err   string
	}{
		{"byte", int8(100), 100, ""},
		{"unsigned byte", uint8(200), 200, ""},
		{"short", int16(300), 300, ""},
		{"unsigned short", uint16(40_000), 40_000, ""},
		{"int", int32(1000), 1000, ""},
		{"unsigned int", uint32(math.MaxUint32), math.MaxUint32, ""},
		{"long", int64(1001), 1001, ""},
		{"2^32", int64(1) << 32, 1 << 32, ""},
		{"ten years", int64(hook.MaxMillis), hook.MaxMillis, ""},
		{"one", int32(1), 1, ""},
		{"more than ten years", int64(hook.MaxMillis + 1), 0, tooLarge + "315360000001}"},
		{"2^63-1", int64(math.MaxInt64), 0, tooLarge + "9223372036854775807}"},
		{"zero", int32(0), 0, ""},
		{"negative", int32(-1000), 0, ""},
		{"-2^63", int64(math.MinInt64), 0, ""},
		{"float", float32(300.5), 300, ""},
		{"double", 300.9, 300, ""},
		{"whole double", 300.0, 300, ""},
		{"small double", 0.9, 0, ""},
		{"negative double", -300.9, 0, ""},
		{"ten years and a fraction", hook.MaxMillis + 0.9, hook.MaxMillis, ""},
		{"large double", 1e300, 0, tooLarge + "1e+300}"},
		{"infinite", math.Inf(1), 0, tooLarge + "+Inf}"},
		{"minus infinite", math.Inf(-1), 0, ""},
		{"not a number", math.NaN(), 0, noInteger},
		{"digits", "300", 300, ""},
		{"digits of whole seconds", "3000", 3000, ""},
		{"digits as a binary", []byte("300"), 300, ""},
		{"zeros first", strings.Repeat("0", 30) + "300", 300, ""},
		{"negative digits", "-300", 0, ""},
		{"zeros", "000", 0, ""},
		{"too many digits", "99999999999999999999", 0, tooLarge + "99999999999999999999}"},
		{"far too many digits", strings.Repeat("9", 1000), 0, tooLarge + strings.Repeat("9", 40) + "...}"},
		{"text", "abc", 0, noInteger},
		{"empty text", "", 0, noInteger},
		{"minus", "-", 0, noInteger},
		{"two minus", "--1", 0, noInteger},
		{"plus", "+300", 0, noInteger},
		{"space", " 300", 0, noInteger},
		{"fraction as text", "300.9", 0, noInteger},
		{"exponent as text", "3e2", 0, noInteger},
		{"digits of another script", "٣٠٠", 0, noInteger},
		{"text behind digits", "300ms", 0, noInteger},
		{"true", true, 0, ""},
		{"false", false, 0, ""},
		{"void", nil, 0, ""},
		{"timestamp", timestamp(5), 0, ""},
		{"timestamp of today", timestamp(1_700_000_000), 0, ""},
		{"decimal", decimal{1, 3000}, 0, ""},
		{"array", []any{int32(300)}, 0, ""},
	} {
		want := hook.Plan{}
		if tc.want > 0 {
			want.Hold = start.AddMillis(tc.want)
		}
		var p hook.Plan
		err := newSchedule(t, nil, nil).Plan(publish(start, map[string]any{delayHeader: tc.value}), &p)
		if p.Hold != want.Hold || p.ID != nil || p.Cancel || message(err) != tc.err {
			t.Errorf("%s: got %+v and error %q, want %+v, error %q", tc.name, p, message(err), want, tc.err)
		}
	}
	if err := newSchedule(t, nil, nil).Plan(publish(start, nil), &hook.Plan{}); err != nil {
		t.Errorf("without headers: %v", err)
	}
}

func TestIdentity(t *testing.T) {
	long := strings.Repeat("i", 255)
	for _, tc := range []struct {
		name    string
		headers map[string]any
		want    hook.Plan
		err     string
	}{
		{"a string", map[string]any{"x-schedule-id": "a", "x-delay": int32(7)}, hook.Plan{Hold: start.AddMillis(7), ID: []byte("a")}, ""},
		{"a binary", map[string]any{"x-schedule-id": []byte{0}, "x-delay": int32(7)}, hook.Plan{Hold: start.AddMillis(7), ID: []byte{0}}, ""},
		{"without a delay", map[string]any{"x-schedule-id": long}, hook.Plan{ID: []byte(long)}, ""},
		{"cancelled", map[string]any{"x-schedule-id": "a", "x-schedule-cancel": true}, hook.Plan{ID: []byte("a"), Cancel: true}, ""},
		{"cancelled with a delay", map[string]any{"x-schedule-id": "a", "x-schedule-cancel": true, "x-delay": int32(7)}, hook.Plan{ID: []byte("a"), Cancel: true}, ""},
		{"not cancelled", map[string]any{"x-schedule-id": "a", "x-schedule-cancel": false}, hook.Plan{ID: []byte("a")}, ""},
		{"a dead letter", map[string]any{"x-schedule-id": "a", "x-delay": int32(7), "x-death": []any{}}, hook.Plan{Hold: start.AddMillis(7)}, ""},
		{"a redriven message", map[string]any{"x-schedule-id": "a", "x-delay": int32(-7), "x-redriven": map[string]any{}}, hook.Plan{}, ""},
		{"a dead letter that cancelled", map[string]any{"x-schedule-id": "a", "x-schedule-cancel": true, "x-death": []any{}}, hook.Plan{}, ""},
		{"empty", map[string]any{"x-schedule-id": ""}, hook.Plan{}, "invalid header 'x-schedule-id': expected a string of 1 to 255 bytes, got 0"},
		{"too long", map[string]any{"x-schedule-id": long + "i"}, hook.Plan{}, "invalid header 'x-schedule-id': expected a string of 1 to 255 bytes, got 256"},
		{"a number", map[string]any{"x-schedule-id": int32(1)}, hook.Plan{}, "invalid header 'x-schedule-id': expected a string of 1 to 255 bytes, got signedint"},
		{"void", map[string]any{"x-schedule-id": nil}, hook.Plan{}, "invalid header 'x-schedule-id': expected a string of 1 to 255 bytes, got void"},
		{"a number, cancelled", map[string]any{"x-schedule-id": int32(1), "x-schedule-cancel": true}, hook.Plan{}, "invalid header 'x-schedule-id': expected a string of 1 to 255 bytes, got signedint"},
		{"nothing to cancel", map[string]any{"x-schedule-cancel": true}, hook.Plan{}, "invalid header 'x-schedule-cancel': there is no x-schedule-id"},
		{"cancelled by text", map[string]any{"x-schedule-id": "a", "x-schedule-cancel": "true"}, hook.Plan{}, "invalid header 'x-schedule-cancel': expected true or false, got longstr"},
		{"refused", map[string]any{"x-schedule-id": "a", "x-delay": int64(math.MaxInt64)}, hook.Plan{}, "invalid header 'x-delay': {value_too_large,9223372036854775807}"},
		{"cancelled, with a wrong delay", map[string]any{"x-schedule-id": "a", "x-schedule-cancel": true, "x-delay": "x"}, hook.Plan{}, "invalid header 'x-delay': no_integer"},
	} {
		var p hook.Plan
		err := newSchedule(t, nil, nil).Plan(publish(start, tc.headers), &p)
		if message(err) != tc.err {
			t.Errorf("%s: got error %q, want %q", tc.name, message(err), tc.err)
		}
		if want := tc.headers[idHeader]; tc.name == "refused" && string(p.ID) != want {
			t.Errorf("%s: the identity is %q, want %q", tc.name, p.ID, want)
		}
		if err == nil && (p.Hold != tc.want.Hold || string(p.ID) != string(tc.want.ID) || (p.ID == nil) != (tc.want.ID == nil) || p.Cancel != tc.want.Cancel) {
			t.Errorf("%s: got %+v, want %+v", tc.name, p, tc.want)
		}
	}
}

func TestPlanDoesNotAllocate(t *testing.T) {
	s := newSchedule(t, nil, map[string]any{"delay": int32(5)})
	for name, headers := range map[string]map[string]any{
		"delay":      {"x-delay": int32(7001)},
		"no headers": nil,
		"identity":   {"x-delay": int32(7001), "x-schedule-id": []byte("a")},
		"interval":   {"x-schedule-id": []byte("a"), "x-schedule-every": int32(5001)},
		"recurring":  {"x-schedule-id": []byte("a"), "x-schedule-cron": []byte("0 9 * * 1-5"), "x-schedule-zone": []byte("Europe/Berlin")},
	} {
		m := publish(start, headers)
		var p hook.Plan
		if n := testing.AllocsPerRun(100, func() { p = hook.Plan{}; _ = s.Plan(m, &p) }); n > 0 {
			t.Errorf("%s: %v allocations for each message", name, n)
		}
	}
}

// Whatever value a header has, the message is refused with the header's name, or held no longer than allowed.
func FuzzHeaders(f *testing.F) {
	f.Add("300", "a", int64(300), 300.9, uint8(0))
	f.Add("-1", "", int64(math.MaxInt64), 1e300, uint8(255))
	f.Fuzz(func(t *testing.T, text, id string, n int64, x float64, which uint8) {
		values := []any{text, n, x, []byte(text), int32(n), float32(x), timestamp(n), n > 0}
		headers := map[string]any{delayHeader: values[which&7]}
		if which&8 > 0 {
			headers[idHeader] = id
		}
		if which&16 > 0 {
			headers[cancelHeader] = values[which>>5&7]
		}
		var p hook.Plan
		err := newSchedule(t, hooktest.Section{"max": "1h"}, nil).Plan(publish(start, headers), &p)
		switch {
		case err != nil && !strings.HasPrefix(err.Error(), "invalid header 'x-"):
			t.Errorf("%v: %v", headers, err)
		case err == nil && p.Hold != 0 && (p.Hold <= start || p.Hold > start.Add(time.Hour)), p.Cancel && len(p.ID) == 0:
			t.Errorf("%v: %+v", headers, p)
		}
	})
}

func BenchmarkPlan(b *testing.B) {
	s := newSchedule(b, nil, nil)
	m := publish(start, map[string]any{"x-delay": int32(7001)})
	b.ReportAllocs()
	for b.Loop() {
		var p hook.Plan
		_ = s.Plan(m, &p)
	}
}
