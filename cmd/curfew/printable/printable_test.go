package printable

import (
	"encoding/json"
	"strings"
	"testing"
)

func TestWhatATerminalObeysIsNotWritten(t *testing.T) {
	for in, want := range map[string]string{
		"orders":                "orders",
		"ä, 漢字, 👩‍🚀, a\u00a0b":  "ä, 漢字, 👩‍🚀, a\u00a0b",
		"a\x1b]0;title\x07b":    `a\x1b]0;title\ab`,
		"a\tb\nq\t0\r":          `a\tb\nq\t0\r`,
		"a\u009b31mb\u0085\x7f": `a\u009b31mb\u0085\u007f`,
		"a\u202eb\u2066c\u2028": `a\u202eb\u2066c\u2028`,
		"a\x9bb\xff":            `a\x9bb\xff`,
	} {
		if got := Text(in); got != want {
			t.Errorf("%q: got %s, want %s", in, got, want)
		}
	}
	var b strings.Builder
	if n, err := Writer(&b).Write([]byte("one\ttwo\nthree\x1b[2J\n")); n != 18 || err != nil || b.String() != "one\ttwo\nthree\\x1b[2J\n" {
		t.Errorf("got %q, %d, %v", b.String(), n, err)
	}
}

func TestJSONKeepsItsValues(t *testing.T) {
	in := []byte("{\"a\u009b\":\"\u202e\x7f\\u001b\",\"b\":[1,\"ä\"]}")
	out := JSON(in)
	for _, r := range string(out) {
		if obeyed(r) {
			t.Errorf("%q is written", r)
		}
	}
	var was, is any
	if json.Unmarshal(in, &was) != nil || json.Unmarshal(out, &is) != nil || len(is.(map[string]any)) != 2 || is.(map[string]any)["a\u009b"] != was.(map[string]any)["a\u009b"] {
		t.Errorf("got %s", out)
	}
}
