package hook

import (
	"errors"
	"math"
	"testing"
	"time"
)

type odd struct{}

func (odd) AMQPType() string { return "decimal" }

func TestTypes(t *testing.T) {
	for _, tc := range []struct {
		value     any
		name      string
		n         int64
		isInteger bool
	}{
		{value: nil, name: "void"},
		{value: true, name: "bool"},
		{value: int8(-1), name: "byte", n: -1, isInteger: true},
		{value: uint8(255), name: "unsignedbyte", n: 255, isInteger: true},
		{value: int16(-2), name: "short", n: -2, isInteger: true},
		{value: uint16(65535), name: "unsignedshort", n: 65535, isInteger: true},
		{value: int32(-3), name: "signedint", n: -3, isInteger: true},
		{value: uint32(1 << 31), name: "unsignedint", n: 1 << 31, isInteger: true},
		{value: int64(-4), name: "long", n: -4, isInteger: true},
		{value: float32(1), name: "float"},
		{value: 1.0, name: "double"},
		{value: "x", name: "longstr"},
		{value: []byte("x"), name: "binary"},
		{value: odd{}, name: "decimal"},
		{value: 5, name: "int"}, // no AMQP type
	} {
		if got := TypeName(tc.value); got != tc.name {
			t.Errorf("TypeName(%T): got %s, want %s", tc.value, got, tc.name)
		}
		if n, ok := Int(tc.value); n != tc.n || ok != tc.isInteger {
			t.Errorf("Int(%T): got %d, %t, want %d, %t", tc.value, n, ok, tc.n, tc.isInteger)
		}
	}
}

// The strings are what clients find in x-death.
func TestReasons(t *testing.T) {
	for r, want := range map[Reason]string{
		ReasonNone: "", ReasonExpired: "expired", ReasonRejected: "rejected", ReasonMaxLen: "maxlen",
		ReasonDeliveryLimit: "delivery_limit", ReasonQueueExpired: "queue_expired", ReasonDuplicate: "duplicate",
	} {
		if got := r.String(); got != want {
			t.Errorf("reason %d: got %q, want %q", r, got, want)
		}
	}
}

func TestArgsLookup(t *testing.T) {
	args := Args{{"x-a", int32(1)}, {"x-b", nil}, {"x-a", int32(2)}}
	if v, ok := args.Lookup("x-a"); v != int32(1) || !ok {
		t.Errorf("x-a: got %v, %t, want the first", v, ok)
	}
	if v, ok := args.Lookup("x-b"); v != nil || !ok {
		t.Errorf("x-b: got %v, %t, want nil, true", v, ok)
	}
	if _, ok := args.Lookup("x-c"); ok {
		t.Error("x-c: found")
	}
}

func TestNewFactory(t *testing.T) {
	type config struct{ N int }
	refused := errors.New("refused")
	f := NewFactory("x", config{N: 7}, func(c config) (Plugin, error) {
		if c.N < 0 {
			return nil, refused
		}
		return nil, nil
	})
	for _, tc := range []struct {
		name   string
		decode func(any) error
		want   config
		err    error
	}{
		{name: "defaults", decode: func(any) error { return nil }, want: config{7}},
		{name: "decoded", decode: func(into any) error { into.(*config).N = 8; return nil }, want: config{8}},
		{name: "refused by the decoder", decode: func(any) error { return refused }, err: refused},
		{name: "refused by the plugin", decode: func(into any) error { into.(*config).N = -1; return nil }, err: refused},
	} {
		_, c, err := f.New(tc.decode)
		if !errors.Is(err, tc.err) {
			t.Errorf("%s: got error %v, want %v", tc.name, err, tc.err)
		}
		if tc.err == nil && c != any(tc.want) {
			t.Errorf("%s: got %+v, want %+v", tc.name, c, tc.want)
		}
	}
}

func TestInstantTime(t *testing.T) {
	want := time.Date(2026, 11, 21, 8, 0, 0, 5, time.UTC)
	if got := Instant(want.UnixNano()).Time(); !got.Equal(want) || got.Location() != time.UTC {
		t.Errorf("got %s, want %s", got, want)
	}
}

func TestWhole(t *testing.T) {
	for _, tc := range []struct {
		f  float64
		n  int64
		ok bool
	}{{0, 0, true}, {-3, -3, true}, {1 << 62, 1 << 62, true}, {-1 << 63, math.MinInt64, true}, {f: 0.5}, {f: 1 << 63}, {f: math.Inf(1)}, {f: math.NaN()}} {
		if n, ok := WholeFloat(tc.f); n != tc.n || ok != tc.ok {
			t.Errorf("%v: got %d, %t, want %d, %t", tc.f, n, ok, tc.n, tc.ok)
		}
	}
	for _, tc := range []struct {
		text string
		n    int64
		ok   bool
	}{
		{"0", 0, true},
		{"-7", -7, true},
		{"9223372036854775807", math.MaxInt64, true},
		{"-9223372036854775808", math.MinInt64, true},
		{text: ""},
		{text: "+1"},
		{text: "9223372036854775808"},
		{text: "1.0"},
		{text: " 1"},
		{text: "0x1"},
		{text: "000000000000000000001"},
	} {
		if n, ok := WholeText([]byte(tc.text)); n != tc.n || ok != tc.ok {
			t.Errorf("%q: got %d, %t, want %d, %t", tc.text, n, ok, tc.n, tc.ok)
		}
	}
}
