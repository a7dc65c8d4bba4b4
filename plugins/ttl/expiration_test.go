package ttl

import (
	"testing"

	"github.com/curfewmq/curfew/sdk/hook"
	"github.com/curfewmq/curfew/sdk/hooktest"
)

func TestExpiration(t *testing.T) {
	tests := []struct {
		raw   string
		want  int64
		wrong string
	}{
		{raw: "0"},
		{raw: "-0"},
		{raw: "+000"},
		{raw: "+10", want: 10},
		{raw: "0060000", want: 60000},
		{raw: "315360000000", want: 315360000000},
		{raw: "315360000001", wrong: "{value_too_large,315360000001}"},
		{raw: "99999999999999999999", wrong: "{value_too_large,99999999999999999999}"},
		{raw: "-10", wrong: "{value_negative,-10}"},
		{raw: "-99999999999999999999", wrong: "{value_negative,-99999999999999999999}"},
		{raw: "", wrong: "no_integer"},
		{raw: "+", wrong: "no_integer"},
		{raw: "--1", wrong: "no_integer"},
		{raw: "+-1", wrong: "no_integer"},
		{raw: " 1", wrong: "no_integer"},
		{raw: "foobar", wrong: "no_integer"},
		{raw: "10000foobar", wrong: `{leftover_string,"foobar"}`},
		{raw: "1.5", wrong: `{leftover_string,".5"}`},
		{raw: "1 ", wrong: `{leftover_string," "}`},
		{raw: `1"a\b`, wrong: `{leftover_string,"\"a\\b"}`},
		{raw: "1\n", wrong: `{leftover_string,"\n"}`},
	}
	p := hooktest.New(t, Factory, nil).(hook.ExpirationChecker) //nolint:forcetypeassert // a panic says it as well
	for _, tt := range tests {
		t.Run(tt.raw, func(t *testing.T) {
			got, err := p.CheckExpiration([]byte(tt.raw))
			if tt.wrong != "" {
				if err == nil || err.Error() != tt.wrong {
					t.Errorf("got %v\nwant %s", err, tt.wrong)
				}
				return
			}
			if err != nil || !got.Set() || got.N() != tt.want {
				t.Errorf("got %d, %v, want %d", got.N(), err, tt.want)
			}
		})
	}
}

// Properties are read for every message whose properties differ from the one before.
func TestExpirationsAreReadWithoutAllocation(t *testing.T) {
	p := hooktest.New(t, Factory, nil).(hook.ExpirationChecker) //nolint:forcetypeassert // a panic says it as well
	raw := []byte("315360000000")
	allocations := testing.AllocsPerRun(100, func() {
		if _, err := p.CheckExpiration(raw); err != nil {
			t.Fatal(err)
		}
	})
	if allocations != 0 {
		t.Errorf("%v allocations", allocations)
	}
}
