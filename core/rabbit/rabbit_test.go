package rabbit

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/curfewmq/curfew/core/amqp"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestTerms(t *testing.T) {
	for _, c := range []struct {
		value      any
		term, text string
	}{
		{"a", `<<"a">>`, "a"},
		{"", "<<>>", ""},
		{"\x00\xff", "<<0,255>>", "\x00\xff"},
		{[]byte("a"), `<<"a">>`, "a"},
		{nil, "undefined", "undefined"},
		{true, "true", "true"},
		{int32(5), "5", "5"},
		{float32(1), "1.0", "1.0"},
		{0.25, "0.25", "0.25"},
		{amqp.Decimal{Scale: 2, Value: 314}, "{2,314}", "{2,314}"},
		{amqp.Table{{Key: "a", Value: "b"}}, "[...]", "[...]"},
		{amqp.Array{"a"}, "[...]", "[...]"},
	} {
		if got := Term(c.value); got != c.term {
			t.Errorf("Term(%#v) = %s, want %s", c.value, got, c.term)
		}
		if got := Text(c.value); got != c.text {
			t.Errorf("Text(%#v) = %s, want %s", c.value, got, c.text)
		}
	}
}

func TestJSON(t *testing.T) {
	for raw, want := range map[string]string{` "a" `: `<<"a">>`, "5": "5", "": "", " null": "null"} {
		if got := JSON([]byte(raw)); got != want {
			t.Errorf("JSON(%q) = %s, want %s", raw, got, want)
		}
	}
}
