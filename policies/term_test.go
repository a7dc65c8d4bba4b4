package policies

import (
	"strings"
	"testing"
)

// What io_lib:format("~tp", …) of Erlang 25 prints.
func TestTerm(t *testing.T) {
	for _, tc := range []struct {
		value any
		want  string
	}{
		{"", `<<>>`},
		{"a", `<<"a">>`},
		{"é", `<<"é"/utf8>>`},
		{"€", `<<226,130,172>>`},
		{"😀", `<<240,159,152,128>>`},
		{"\x00", `<<0>>`},
		{"\x7f", `<<127>>`},
		{"a\x01", `<<97,1>>`},
		{"\x1b\b\f\v\t\r\n'\"\\", `<<"\e\b\f\v\t\r\n'\"\\">>`},
		{[]any{}, `[]`},
		{[]any{[]any{}}, `[[]]`},
		{[]any{int64(1), int64(2)}, `[1,2]`},
		{[]any{int64(104), int64(101)}, `"he"`},
		{[]any{int64(104), int64(256)}, `[104,256]`},
		{[]any{"a", nil, true}, `[<<"a">>,null,true]`},
		{map[string]any{}, `#{}`},
		{map[string]any{"b": int64(2), "a": []any{"x"}}, `#{<<"a">> => [<<"x">>],<<"b">> => 2}`},
		{0.0001, "0.0001"},
		{0.001, "0.001"},
		{0.00012, "1.2e-4"},
		{0.00123, "0.00123"},
		{0.00001234, "1.234e-5"},
		{1e-5, "1.0e-5"},
		{100.0, "100.0"},
		{1000.0, "1.0e3"},
		{1200.0, "1.2e3"},
		{12345.0, "12345.0"},
		{123000.0, "1.23e5"},
		{1234567.0, "1234567.0"},
		{1e15, "1.0e15"},
		{9007199254740991.0, "9007199254740991.0"},
		{9007199254740992.0, "9.007199254740992e15"},
		{123456789012345678.0, "1.2345678901234568e17"},
		{1.25e10, "1.25e10"},
		{1e300, "1.0e300"},
		{5e-324, "5.0e-324"},
		{-1.5, "-1.5"},
		{0.1234567890123, "0.1234567890123"},
	} {
		if got := term(tc.value); got != tc.want {
			t.Errorf("%#v: got %s, want %s", tc.value, got, tc.want)
		}
	}
}

func TestTermIsBounded(t *testing.T) {
	for _, v := range []any{strings.Repeat("x", 10_000), strings.Repeat("\x00", 10_000), strings.Repeat("é", 10_000), digits(strings.Repeat("9", 10_000))} {
		if got := term(v); len(got) > maxTerm+len("...") {
			t.Errorf("%.10v: %d bytes", v, len(got))
		}
	}
}
