package amqp

import (
	"bytes"
	"testing"
)

func TestContentHeaderSurvivesTheWire(t *testing.T) {
	props := richProps().Append(nil)
	f, _, err := NextFrame(AppendContentHeader(nil, 3, 1<<28, props), FrameMinSize)
	if err != nil || f.Type != FrameHeader || f.Channel != 3 {
		t.Fatalf("got %+v, error %v", f, err)
	}
	h, err := ParseContentHeader(f.Payload)
	if err != nil || h.Class != ClassBasic || h.BodySize != 1<<28 || !bytes.Equal(h.Props, props) {
		t.Errorf("got %+v, error %v", h, err)
	}
}

func TestParseContentHeaderRefuses(t *testing.T) {
	for _, c := range []struct {
		name, payload string
		code          uint16
		text          string
	}{
		{"too short", "\x00\x3c\x00\x00\x00\x00\x00\x00\x00\x00\x00", ReplySyntaxError, "SYNTAX_ERROR - content header of 11 octets: at least 12 expected"},
		{
			"a weight", "\x00\x3c\x00\x01\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00",
			ReplyUnexpectedFrame, "UNEXPECTED_FRAME - expected content header for class 60, got non content header frame instead",
		},
		{
			"a body no message can have", "\x00\x3c\x00\x00\x00\x00\x00\x00\x20\x00\x00\x01\x00\x00",
			ReplyFrameError, "FRAME_ERROR - content body size 536870913 exceeds maximum allowed size 536870912",
		},
		{
			"the largest body there is", "\x00\x3c\x00\x00\xff\xff\xff\xff\xff\xff\xff\xff\x00\x00",
			ReplyFrameError, "FRAME_ERROR - content body size 18446744073709551615 exceeds maximum allowed size 536870912",
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := ParseContentHeader([]byte(c.payload))
			wantError(t, err, c.code, c.text)
		})
	}
}

func TestAppendBodySplits(t *testing.T) {
	for _, c := range []struct {
		size, frameMax int
		frames         []int
	}{
		{0, 4096, nil},
		{1, 4096, []int{1}},
		{4088, 4096, []int{4088}},
		{4089, 4096, []int{4088, 1}},
		{8177, 4096, []int{4088, 4088, 1}},
		{10000, 131072, []int{10000}},
		{5000, 0, []int{4088, 912}},
	} {
		body := bytes.Repeat([]byte("b"), c.size)
		b := AppendBody(nil, 5, body, c.frameMax)
		if want := BodyFramesSize(c.size, c.frameMax); len(b) != want {
			t.Errorf("%d: got %d bytes, announced %d", c.size, len(b), want)
		}
		var got []byte
		for i, size := range c.frames {
			f, n, err := NextFrame(b, c.frameMax)
			if err != nil || f.Type != FrameBody || f.Channel != 5 || len(f.Payload) != size {
				t.Fatalf("%d: frame %d is %d bytes, want %d, error %v", c.size, i, len(f.Payload), size, err)
			}
			got, b = append(got, f.Payload...), b[n:]
		}
		if len(b) != 0 || !bytes.Equal(got, body) {
			t.Errorf("%d: %d bytes left, body of %d", c.size, len(b), len(got))
		}
	}
}
