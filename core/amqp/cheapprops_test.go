package amqp

import (
	"bytes"
	"testing"
)

func TestPropertiesFoundWithoutAScan(t *testing.T) {
	rich := richProps()
	for p := range Property(propCount) {
		without := rich
		without.Flags &^= p.Flag()
		sameFound(t, without.Append(nil))
	}
	sameFound(t, Properties{}.Append(nil))
	sameFound(t, rich.Append(nil))
}

// sameFound compares the results with those of a full scan.
func sameFound(tb testing.TB, raw []byte) {
	tb.Helper()
	x, err := ScanProps(raw)
	if err != nil {
		return
	}
	want, has := x.MessageID(raw)
	if got, ok := MessageID(raw); ok != has || !bytes.Equal(got, want) {
		tb.Errorf("properties % x: found the message id %q, %v; want %q, %v", raw, got, ok, want, has)
	}
	priority, _ := x.Priority(raw)
	if got := Priority(raw); got != priority {
		tb.Errorf("properties % x: found the priority %d, want %d", raw, got, priority)
	}
}

// Unchecked bytes may give a wrong answer, and nothing worse.
func FuzzFound(f *testing.F) {
	rich := richProps()
	f.Add(rich.Append(nil))
	f.Add([]byte{0xff, 0xfc, 0xff})
	f.Add([]byte{0x20, 0x80, 0xff, 0xff, 0xff, 0xff, 1})
	f.Fuzz(func(t *testing.T, raw []byte) {
		MessageID(raw)
		Priority(raw)
		sameFound(t, raw)
	})
}
