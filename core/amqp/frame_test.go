package amqp

import (
	"bytes"
	"math"
	"sync"
	"testing"
)

// rawFrame writes a frame by hand.
func rawFrame(kind byte, channel uint16, payload string) []byte {
	n := len(payload)
	b := []byte{kind, byte(channel >> 8), byte(channel), byte(n >> 24), byte(n >> 16), byte(n >> 8), byte(n)}
	return append(append(b, payload...), FrameEnd)
}

func TestNextFrame(t *testing.T) {
	for _, c := range []struct {
		name    string
		kind    byte
		channel uint16
		payload string
	}{
		{"method", FrameMethod, 1, "\x00\x5a\x00\x0a"},
		{"header", FrameHeader, 0x1234, "\x00\x3c\x00\x00\x00\x00\x00\x00\x00\x00\x00\x01\x00\x00"},
		{"body", FrameBody, math.MaxUint16, "hello"},
		{"empty body", FrameBody, 7, ""},
		{"heartbeat", FrameHeartbeat, 0, ""},
		{"body with an end octet inside", FrameBody, 1, "a\xceb"},
	} {
		b := append(rawFrame(c.kind, c.channel, c.payload), "next"...)
		f, n, err := NextFrame(b, FrameMinSize)
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
			continue
		}
		if f.Type != c.kind || f.Channel != c.channel || string(f.Payload) != c.payload || n != len(b)-4 {
			t.Errorf("%s: got %+v of %d bytes", c.name, f, n)
		}
		if cap(f.Payload) != len(f.Payload) {
			t.Errorf("%s: appending to the payload would write over the next frame", c.name)
		}
	}
}

func TestNextFrameWaitsForTheWholeFrame(t *testing.T) {
	b := rawFrame(FrameBody, 1, "hello")
	for n := range b {
		if _, took, err := NextFrame(b[:n], FrameMinSize); took != 0 || err != nil {
			t.Errorf("%d of %d bytes: took %d, error %v", n, len(b), took, err)
		}
	}
}

// The texts are RabbitMQ's answers, captured on the wire.
func TestNextFrameRefuses(t *testing.T) {
	for _, c := range []struct {
		name  string
		input string
		code  uint16
		text  string
	}{
		{
			"a size over the limit, before the payload is there", "\x03\x00\x01\x00\x00\x13\x88",
			ReplyFrameError, "FRAME_ERROR - type 3, all octets = <<>>: {frame_too_large,5000,4088}",
		},
		{
			"the largest size there is", "\x01\x00\x00\xff\xff\xff\xff",
			ReplyFrameError, "FRAME_ERROR - type 1, all octets = <<>>: {frame_too_large,4294967295,4088}",
		},
		{
			"another end octet", "\x01\x00\x01\x00\x00\x00\x05abcde\x00",
			ReplyFrameError, `FRAME_ERROR - type 1, all octets = <<"abcde">>: {invalid_frame_end_marker,0}`,
		},
		{
			"another end octet, long payload", "\x01\x00\x01\x00\x00\x00\x14\x00\x3c\x00\x28" + string(make([]byte, 16)) + "\x07",
			ReplyFrameError, "FRAME_ERROR - type 1, first 16 octets = <<0,60,0,40,0,0,0,0,0,0,0,0,0,0,0,0>>: {invalid_frame_end_marker,7}",
		},
		{
			"an unknown type", string(rawFrame(9, 1, "hello")),
			ReplyFrameError, `FRAME_ERROR - type 9, all octets = <<"hello">>: unknown_frame`,
		},
		{
			"a heartbeat with a payload", string(rawFrame(FrameHeartbeat, 0, "x")),
			ReplyFrameError, `FRAME_ERROR - type 8, all octets = <<"x">>: unknown_frame`,
		},
		{
			"a heartbeat on a channel", string(rawFrame(FrameHeartbeat, 1, "")),
			ReplyUnexpectedFrame, "UNEXPECTED_FRAME - type 8, all octets = <<>>",
		},
		{
			"a method frame without ids", string(rawFrame(FrameMethod, 1, "\x00\x3c")),
			ReplyFrameError, "FRAME_ERROR - type 1, all octets = <<0,60>>: unknown_frame",
		},
		{
			"a header frame without a body size", string(rawFrame(FrameHeader, 1, "\x00\x3c")),
			ReplyFrameError, "FRAME_ERROR - type 2, all octets = <<0,60>>: unknown_frame",
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, n, err := NextFrame([]byte(c.input), FrameMinSize)
			if n != 0 {
				t.Errorf("took %d bytes", n)
			}
			wantError(t, err, c.code, c.text)
		})
	}
}

// RabbitMQ tolerates clients that do not count the overhead of a frame.
func TestNextFrameGrantsSlack(t *testing.T) {
	size := FrameMinSize - FrameOverhead + FrameSlack
	if _, n, err := NextFrame(rawFrame(FrameBody, 1, string(make([]byte, size))), FrameMinSize); n != FrameMinSize+FrameSlack || err != nil {
		t.Errorf("took %d, error %v", n, err)
	}
	_, _, err := NextFrame(rawFrame(FrameBody, 1, string(make([]byte, size+1))), FrameMinSize)
	wantError(t, err, ReplyFrameError, "FRAME_ERROR - type 3, all octets = <<>>: {frame_too_large,4097,4088}")
}

func TestNextFrameTakesASmallLimitAsTheSmallestLegalOne(t *testing.T) {
	b := rawFrame(FrameBody, 1, string(make([]byte, 4000)))
	for _, limit := range []int{0, -1, 100, math.MinInt} {
		if _, n, err := NextFrame(b, limit); n != len(b) || err != nil {
			t.Errorf("limit %d: took %d, error %v", limit, n, err)
		}
	}
}

func TestNextFrameOfHugeLimit(t *testing.T) {
	if _, n, err := NextFrame([]byte("\x03\x00\x01\xff\xff\xff\xffabc"), math.MaxInt); n != 0 || err != nil {
		t.Errorf("took %d, error %v", n, err)
	}
}

func TestAppendHeartbeat(t *testing.T) {
	got := AppendHeartbeat([]byte("x"))
	if want := append([]byte("x"), rawFrame(FrameHeartbeat, 0, "")...); !bytes.Equal(got, want) {
		t.Errorf("got %x, want %x", got, want)
	}
}

func TestNextFrameDoesNotAllocate(t *testing.T) {
	b := rawFrame(FrameBody, 1, "hello")
	noAllocs(t, "NextFrame", func() {
		if _, n, err := NextFrame(b, FrameMinSize); n == 0 || err != nil {
			t.Fatal(n, err)
		}
	})
}

// Writing a method wrote its flags back: the race detector saw it where two connections send one.
func TestAMethodIsOnlyReadWhereItIsWritten(t *testing.T) {
	m := &QueueDeclare{Queue: "q", Durable: true, Exclusive: true}
	var written [2][]byte
	var wg sync.WaitGroup
	for i := range written {
		wg.Go(func() { written[i] = AppendMethod(nil, 1, m) })
	}
	wg.Wait()
	if !bytes.Equal(written[0], written[1]) || !m.Durable || m.AutoDelete {
		t.Errorf("%x and %x of %+v", written[0], written[1], m)
	}
}

// Every method that was written allocated a codec: each basic.get-ok and tx.commit-ok.
func TestAppendMethodAllocatesNothing(t *testing.T) {
	b := make([]byte, 0, 1<<10)
	for _, m := range []Method{&BasicGetOK{Exchange: "e", RoutingKey: "k"}, &TxCommitOK{}, &QueueDeclare{Queue: "q", Durable: true}} {
		noAllocs(t, m.Name(), func() { b = AppendMethod(b[:0], 1, m) })
	}
}
