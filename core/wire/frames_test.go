package wire

import (
	"slices"
	"strings"
	"testing"

	"github.com/curfewmq/curfew/core/amqp"
)

// someFrames is a stream of five frames, the last connection.close.
func someFrames() (b []byte, ends []int) {
	add := func(grown []byte) {
		b = grown
		ends = append(ends, len(b))
	}
	add(amqp.AppendMethod(b, 1, &amqp.BasicPublish{RoutingKey: "q"}))
	add(amqp.AppendContentHeader(b, 1, 5, []byte{0, 0}))
	add(amqp.AppendBody(b, 1, []byte("hello"), 4096))
	add(amqp.AppendHeartbeat(b))
	add(amqp.AppendMethod(b, 0, &amqp.ConnectionClose{ReplyCode: 200}))
	return b, ends
}

// A client's frames are recognized however the stream is divided, and fewer bytes than a head are held back.
func TestClientFrames(t *testing.T) {
	b, ends := someFrames()
	for first := range len(b) + 1 {
		for second := first; second <= len(b); second++ {
			var f clientFrames
			n := f.pass(b[:first])
			n += f.pass(b[n:second])
			if n > second || second-n >= headSize+methodIDSize {
				t.Fatalf("%d of %d bytes are passed on, cut at %d", n, second, first)
			}
			next := n + int(f.rest)
			if n > 0 && next != 0 && !slices.Contains(ends, next) {
				t.Fatalf("cut at %d and %d, the next frame is expected at %d: frames end at %v", first, second, next, ends)
			}
			if want := n > ends[3]; f.closes != want {
				t.Fatalf("after %d bytes connection.close was seen: %v, want %v", n, f.closes, want)
			}
		}
	}
}

func TestOwnerFrames(t *testing.T) {
	b, ends := someFrames()
	for cut := range len(b) + 1 {
		f := ownerFrames{frameMax: 4096}
		n, err := f.whole(b[:cut])
		want := 0
		for _, end := range ends {
			if end <= cut {
				want = end
			}
		}
		if err != nil || n != want || f.closes != (want == len(b)) {
			t.Errorf("of %d bytes %d are whole frames, the last is among them: %v, %v; want %d", cut, n, f.closes, err, want)
		}
	}
}

// Frames that are not allowed for clients end the stream from the owner.
func TestOwnerFramesRefused(t *testing.T) {
	good := amqp.AppendHeartbeat(nil)
	tests := []struct{ name, bytes, want string }{
		{"too large", "\x03\x00\x01\x00\x00\x10\x01", "a frame from the owner has 4105 bytes, expected at most 4096"},
		{"as large as there can be", "\x03\x00\x01\xff\xff\xff\xff", "a frame from the owner has 4294967303 bytes, expected at most 4096"},
		{"another end", "\x08\x00\x00\x00\x00\x00\x00\xcf", errFrameEnd.Error()},
	}
	for _, tt := range tests {
		f := ownerFrames{frameMax: 4096}
		n, err := f.whole(append(slices.Clip(good), tt.bytes...))
		if n != len(good) || err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: %d bytes and %v, want %d and %q", tt.name, n, err, len(good), tt.want)
		}
	}
	// A client may be sent frames that exceed frame-max by their overhead, as without a relay.
	f := ownerFrames{frameMax: 4096}
	largest := amqp.AppendBodyHead(nil, 1, 4096)
	largest = append(append(largest, make([]byte, 4096)...), amqp.FrameEnd)
	if n, err := f.whole(largest); n != len(largest) || err != nil {
		t.Errorf("of a frame of %d bytes %d pass, %v", len(largest), n, err)
	}
}

// FuzzOwnerFrames compares ownerFrames with the codec: both find the same frames, as far as the codec reads them.
func FuzzOwnerFrames(f *testing.F) {
	b, _ := someFrames()
	f.Add(b, uint16(3))
	f.Add([]byte{3, 0, 1, 0xff, 0xff, 0xff, 0xff, 0}, uint16(1))
	f.Fuzz(func(t *testing.T, b []byte, cut uint16) {
		frames := ownerFrames{frameMax: amqp.FrameMinSize}
		n, _ := frames.whole(b)
		for at := 0; at < n; {
			_, k, err := amqp.NextFrame(b[at:n], amqp.FrameMinSize)
			if err != nil {
				return // what is wrong inside of a frame is the client's to see
			}
			if k == 0 {
				t.Fatalf("%d bytes pass as whole frames, and end in a part of one", n)
			}
			at += k
		}
		var up clientFrames
		first := up.pass(b[:min(int(cut), len(b))])
		if second := up.pass(b[first:]); first+second > len(b) {
			t.Fatalf("%d and %d bytes are passed on, of %d", first, second, len(b))
		}
	})
}
