package hook

import (
	"math"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func term(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

func TestCheckInt(t *testing.T) {
	for _, tc := range []struct {
		value     any
		low, high int64
		want      string
	}{
		{value: int8(0), high: 5},
		{value: uint32(5), high: 5},
		{value: int64(6), high: 5, want: "{value_too_large,6}"},
		{value: int64(0), low: 1, high: 5, want: "{value_zero,0}"},
		{value: int64(math.MinInt64), low: 1, high: 5, want: "{value_negative,-9223372036854775808}"},
		{value: []byte("5"), high: 5, want: `"expected integer, got binary"`},
		{value: uint64(5), high: 5, want: `"expected integer, got uint64"`}, // not an AMQP type
	} {
		if got := term(CheckInt(tc.value, tc.low, tc.high)); got != tc.want {
			t.Errorf("%T %v from %d to %d: got %q, want %q", tc.value, tc.value, tc.low, tc.high, got, tc.want)
		}
	}
}

func TestCheckOneOf(t *testing.T) {
	for _, tc := range []struct {
		value any
		want  string
	}{
		{value: "a"},
		{value: "b"},
		{value: "c", want: "invalid_thing"},
		{value: "", want: "invalid_thing"},
		{value: false, want: "{unacceptable_type,bool}"},
	} {
		if got := term(CheckOneOf(tc.value, "invalid_thing", "a", "b")); got != tc.want {
			t.Errorf("%v: got %q, want %q", tc.value, got, tc.want)
		}
	}
}

// A hugely negative number of milliseconds, which a header may contain, used to be added as one in the future, and any number added to a time
// before 1970 gave the end of time.
func TestInstantSaturates(t *testing.T) {
	for _, tc := range []struct{ got, want Instant }{
		{Instant(5).Add(math.MaxInt64), math.MaxInt64},
		{Instant(5).Add(-2), 3},
		{Instant(5).AddMillis(math.MaxInt64), math.MaxInt64},
		{Instant(5).AddMillis(2), 2_000_005},
		{Instant(0).AddMillis(math.MaxInt64 / 1_000_000), math.MaxInt64 / 1_000_000 * 1_000_000},
		{Instant(5).AddMillis(math.MaxInt64 / 1_000_000), math.MaxInt64/1_000_000*1_000_000 + 5},
		{Instant(1_000_000).AddMillis(math.MaxInt64 / 1_000_000), math.MaxInt64},
		{Instant(5).AddMillis(-2), -1_999_995},
		{Instant(5).AddMillis(math.MinInt64), math.MinInt64},
		{Instant(5).AddMillis(math.MinInt64 / 1_000_000), math.MinInt64/1_000_000*1_000_000 + 5},
		{Instant(-1_000_000).AddMillis(math.MinInt64 / 1_000_000), math.MinInt64},
		{Instant(-5).AddMillis(2), 1_999_995},
		{Instant(-5).Add(math.MinInt64), math.MinInt64},
	} {
		if tc.got != tc.want {
			t.Errorf("got %d, want %d", tc.got, tc.want)
		}
	}
}

func TestLimit(t *testing.T) {
	var absent Limit
	for _, tc := range []struct {
		name string
		got  Limit
		set  bool
		n    int64
	}{
		{"absent", absent, false, -1},
		{"negative", LimitOf(-5), false, -1},
		{"zero", LimitOf(0), true, 0},
		{"largest", LimitOf(math.MaxInt64), true, math.MaxInt64 - 1},
		{"lower with absent", LimitOf(3).Min(absent), true, 3},
		{"lower of absent and", absent.Min(LimitOf(3)), true, 3},
		{"lower", LimitOf(3).Min(LimitOf(0)), true, 0},
		{"lower of none", absent.Min(absent), false, -1},
	} {
		if tc.got.Set() != tc.set || tc.got.N() != tc.n {
			t.Errorf("%s: got %t, %d, want %t, %d", tc.name, tc.got.Set(), tc.got.N(), tc.set, tc.n)
		}
	}
}
