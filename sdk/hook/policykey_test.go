package hook

import (
	"errors"
	"math"
	"strings"
	"testing"
)

func TestPolicyChecks(t *testing.T) {
	values := []any{nil, true, false, int64(-1), int64(0), int64(5), int64(9), int64(10), int32(5), 5.0, math.NaN()}
	values = append(values, "", "a", "b", strings.Repeat("a", 5), strings.Repeat("a", 6), []any{"a"}, map[string]any{"a": int64(5)})
	for _, tc := range []struct {
		name     string
		check    func(any) error
		accepted []any
	}{
		{"integer", PolicyInt(0, 9, "thing"), []any{int64(0), int64(5), int64(9)}},
		{"string", PolicyString(5, "thing"), []any{"", "a", "b", "aaaaa"}},
		{"one of", PolicyOneOf("thing", "a", "c"), []any{"a"}},
		{"boolean", PolicyBool("thing"), []any{true, false}},
	} {
		for _, v := range values {
			want := false
			for _, a := range tc.accepted {
				if _, isList := v.([]any); isList {
					continue
				}
				if _, isMap := v.(map[string]any); !isMap && a == v {
					want = true
				}
			}
			err := tc.check(v)
			if (err == nil) != want {
				t.Errorf("%s: %#v: got %v", tc.name, v, err)
			}
			if wrong, ok := errors.AsType[*InvalidError](err); err != nil && (!ok || wrong.What != "thing") {
				t.Errorf("%s: %#v: got %v (%T)", tc.name, v, err, err)
			}
		}
	}
}
