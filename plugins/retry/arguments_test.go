package retry

import (
	"math"
	"testing"

	"github.com/curfewmq/curfew/sdk/hook"
	"github.com/curfewmq/curfew/sdk/hooktest"
)

func TestArguments(t *testing.T) {
	minimum := hook.Arg{Name: "x-" + keyMin, Value: int32(100)}
	for _, tc := range []struct {
		name   string
		value  any
		others []hook.Arg
		want   string
	}{
		{keyType, "all", []hook.Arg{minimum}, ""},
		{keyType, "failed", []hook.Arg{minimum}, ""},
		{keyType, "returned", []hook.Arg{minimum}, ""},
		{keyType, "disabled", nil, ""},
		{keyType, "all", nil, "delayed-retry-min is required"},
		{keyType, "All", []hook.Arg{minimum}, `"expected one of disabled, all, failed, returned"`},
		{keyType, int32(1), nil, "{unacceptable_type,signedint}"},
		{keyMin, int32(0), nil, ""},
		{keyMin, int64(hook.MaxMillis), nil, ""},
		{keyMin, int64(hook.MaxMillis + 1), nil, "{value_too_large,315360000001}"},
		{keyMin, int32(-1), nil, "{value_negative,-1}"},
		{keyMin, "100", nil, `"expected integer, got longstr"`},
		{keyMax, int32(100), []hook.Arg{minimum}, ""},
		{keyMax, int32(100), nil, ""},
		{keyMax, int32(99), []hook.Arg{minimum}, "delayed-retry-max is below delayed-retry-min"},
		{keyMax, int32(99), []hook.Arg{{Name: "x-" + keyMin, Value: "x"}}, ""}, // refused itself
		{keyMax, int32(-1), nil, "{value_negative,-1}"},
		{keyMultiplier, int32(1), nil, ""},
		{keyMultiplier, uint8(200), nil, ""},
		{keyMultiplier, float32(1.5), nil, ""},
		{keyMultiplier, 1000.0, nil, ""},
		{keyMultiplier, int32(0), nil, `"expected a number from 1 to 1000"`},
		{keyMultiplier, 0.99, nil, `"expected a number from 1 to 1000"`},
		{keyMultiplier, 1000.1, nil, `"expected a number from 1 to 1000"`},
		{keyMultiplier, math.NaN(), nil, `"expected a number from 1 to 1000"`},
		{keyMultiplier, math.Inf(1), nil, `"expected a number from 1 to 1000"`},
		{keyMultiplier, "2", nil, `"expected a number from 1 to 1000"`},
		{keyMultiplier, nil, nil, `"expected a number from 1 to 1000"`},
	} {
		p := hooktest.New(t, Factory, nil)
		if got := hooktest.Term(t, p, "x-"+tc.name, tc.value, tc.others...); got != tc.want {
			t.Errorf("%s = %v beside %v: got %q, want %q", tc.name, tc.value, tc.others, got, tc.want)
		}
	}
}
