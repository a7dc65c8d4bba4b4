package parts

import (
	"fmt"
	"strconv"
	"testing"

	"go.uber.org/goleak"

	"github.com/curfewmq/curfew/core/amqp"
	"github.com/curfewmq/curfew/sdk/hook"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func props(t *testing.T) []byte {
	t.Helper()
	p := amqp.Properties{
		Headers:   amqp.Table{{Key: "n", Value: uint8(7)}, {Key: "half", Value: 0.5}, {Key: "digits", Value: "12"}, {Key: "flag", Value: true}},
		MessageID: "id", CorrelationID: "corr", Timestamp: 1 << 63, Type: "type", AppID: "app", UserID: "user", Expiration: "5",
	}
	p.Set(
		amqp.PropHeaders, amqp.PropMessageID, amqp.PropCorrelationID, amqp.PropTimestamp, amqp.PropType, amqp.PropAppID, amqp.PropUserID,
		amqp.PropExpiration,
	)
	return p.Append(nil)
}

// look describes a message as plugins see it.
func look(s hook.Source) string {
	var all []string
	for p := range hook.Parts {
		if p != hook.PartHeaders {
			all = append(all, string(s.Part(0, p)))
		}
	}
	n, isInt := s.HeaderInt(0, "n")
	half, isWhole := s.HeaderInt(0, "half")
	digits, isDigits := s.HeaderInt(0, "digits")
	text, isText := s.HeaderText(0, "digits")
	_, isNone := s.HeaderText(0, "n")
	flag, isFlag := s.Header(0, "flag")
	_, isThere := s.Header(0, "none")
	return fmt.Sprintf("%q %d %t %d %t %d %t %s %t %t %v %t %t %t",
		all, n, isInt, half, isWhole, digits, isDigits, text, isText, isNone, flag, isFlag, isThere, len(s.Part(0, hook.PartHeaders)) > 0)
}

func TestMessage(t *testing.T) {
	const full = `["x" "key" "id" "corr" "type" "app" "user" "5" "9223372036854775808" "body"] 7 true 0 false 12 true 12 true false true true false true`
	const bare = `["x" "key" "" "" "" "" "" "" "" "body"] 0 false 0 false 0 false  false false <nil> false false false`
	raw := props(t)
	index, err := amqp.ScanProps(raw)
	if err != nil {
		t.Fatal(err)
	}
	loads := 0
	load := func() []byte { loads++; return raw }
	for _, tt := range []struct {
		name string
		m    Message
		want string
	}{
		{"with an index", Message{Props: raw, Index: &index}, full},
		{"without an index", Message{Props: raw}, full},
		{"loaded", Message{Load: load}, full},
		{"without properties", Message{}, bare},
		{"with invalid properties", Message{Props: []byte{0xff}}, bare},
	} {
		m := tt.m
		m.Exchange, m.Key, m.Body = "x", "key", []byte("body")
		if got := look(&m); got != tt.want || !m.BodyRead {
			t.Errorf("%s: got  %s, body read: %v\nwant %s", tt.name, got, m.BodyRead, tt.want)
		}
	}
	if loads != 1 {
		t.Errorf("the properties were loaded %d times", loads)
	}
}

// Text of numbers that was read stays until the message is reset.
func TestDigits(t *testing.T) {
	var d Digits
	var all [][]byte
	for n := range uint64(100) {
		all = append(all, d.of(n))
	}
	for n, b := range all {
		if string(b) != strconv.FormatUint(uint64(n), 10) {
			t.Fatalf("%d became %s", n, b)
		}
	}
}

func TestReadingDoesNotAllocate(t *testing.T) {
	raw := props(t)
	var m Message
	read := func() {
		m.Exchange, m.Key, m.Props = "x", "key", raw
		for p := range hook.Parts {
			_ = m.Part(0, p)
		}
		_, _ = m.HeaderInt(0, "n")
		_, _ = m.HeaderText(0, "digits")
		m.Reset()
	}
	read()
	if n := testing.AllocsPerRun(100, read); n > 0 {
		t.Errorf("%v allocations", n)
	}
}
