package amqp

import (
	"bytes"
	"testing"
)

func TestMessageID(t *testing.T) {
	rich := richProps()
	for p := range Property(propCount) {
		without := rich
		without.Flags &^= p.Flag()
		sameMessageID(t, without.Append(nil))
	}
	sameMessageID(t, Properties{}.Append(nil))
	sameMessageID(t, rich.Append(nil))
}

// sameMessageID compares with what a whole scan finds.
func sameMessageID(tb testing.TB, raw []byte) {
	tb.Helper()
	x, err := ScanProps(raw)
	if err != nil {
		return
	}
	want, has := x.MessageID(raw)
	if got, ok := MessageID(raw); ok != has || !bytes.Equal(got, want) {
		tb.Errorf("properties % x: found %q, %v; want %q, %v", raw, got, ok, want, has)
	}
}

// What was not checked gives a wrong answer, and nothing worse.
func FuzzMessageID(f *testing.F) {
	rich := richProps()
	f.Add(rich.Append(nil))
	f.Add([]byte{0xff, 0xfc, 0xff})
	f.Add([]byte{0x20, 0x80, 0xff, 0xff, 0xff, 0xff, 1})
	f.Fuzz(func(t *testing.T, raw []byte) {
		MessageID(raw)
		sameMessageID(t, raw)
	})
}
