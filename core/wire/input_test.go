package wire

import (
	"bytes"
	"math/rand/v2"
	"testing"

	"github.com/curfewmq/curfew/core/block"
)

// fillFrom copies b to where the reader would read, as far as there is space, and returns the rest.
func (in *input) fillFrom(b []byte) []byte {
	n := copy(in.space(), b)
	in.added(n)
	return b[n:]
}

func TestInputGrowsWhileItIsFilled(t *testing.T) {
	in := newInput()
	defer func() { in.release() }()
	stream := make([]byte, 4<<20)
	for range 20 {
		stream = in.fillFrom(stream)
		in.consumed(len(in.unread()))
	}
	if got := len(in.block.Buf); got != largest {
		t.Errorf("got a buffer of %d, want %d", got, largest)
	}
	for range 1000 {
		in.fillFrom([]byte("little"))
		in.consumed(len(in.unread()))
	}
	if got := len(in.block.Buf); got != smallest {
		t.Errorf("got a buffer of %d after little traffic, want %d", got, smallest)
	}
}

func TestInputShrinksWhenIdle(t *testing.T) {
	in := newInput()
	defer func() { in.release() }()
	for range 20 {
		in.fillFrom(make([]byte, largest))
		in.consumed(len(in.unread()))
	}
	in.shrinkIdle()
	if got := len(in.block.Buf); got != largest {
		t.Errorf("got a buffer of %d in the middle of traffic, want %d", got, largest)
	}
	in.fillFrom([]byte("a heartbeat, or so"))
	in.consumed(0)
	in.shrinkIdle()
	if len(in.block.Buf) != smallest || string(in.unread()) != "a heartbeat, or so" {
		t.Errorf("got a buffer of %d holding %q", len(in.block.Buf), in.unread())
	}
}

// A frame larger than the buffer gets a larger one, for as long as it is needed.
func TestInputFrameLargerThanBuffer(t *testing.T) {
	in := newInput()
	defer func() { in.release() }()
	frame := bytes.Repeat([]byte("frame"), 1<<20)
	for rest := frame; len(rest) > 0; {
		if rest = in.fillFrom(rest); len(rest) > 0 {
			in.consumed(0)
		}
	}
	if !bytes.Equal(in.unread(), frame) {
		t.Error("the frame is garbled")
	}
	in.consumed(len(frame))
	if got := len(in.block.Buf); got > largest {
		t.Errorf("got a buffer of %d after the frame", got)
	}
}

// With any sizes of reads and frames, and any retained blocks, the bytes come in order, and those in retained blocks do not change.
func TestInputKeepsBytes(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	in := newInput()
	defer func() { in.release() }()
	type piece struct {
		block *block.Block
		data  []byte
		want  []byte
	}
	var held []piece
	var next, expected byte
	for range 20000 {
		n := 1 + r.IntN(min(len(in.space()), 1+r.IntN(20000)))
		for i := range in.space()[:n] {
			in.space()[i] = next
			next++
		}
		in.added(n)
		w := in.unread()
		used := r.IntN(len(w) + 1)
		for _, b := range w[:used] {
			if b != expected {
				t.Fatalf("got byte %d, want %d", b, expected)
			}
			expected++
		}
		if r.IntN(3) == 0 {
			in.block.Retain()
			held = append(held, piece{in.block, w[:used], bytes.Clone(w[:used])})
		}
		in.consumed(used)
		if len(in.space()) == 0 {
			t.Fatal("no space to read to")
		}
		if len(held) > 5 {
			p := held[0]
			held = held[1:]
			if !bytes.Equal(p.data, p.want) {
				t.Fatal("bytes that are held were changed")
			}
			p.block.Release()
		}
	}
	for _, p := range held {
		p.block.Release()
	}
}

// A connection that waits for input has no buffer, unless the buffer holds part of a frame or is a large one.
func TestInputParks(t *testing.T) {
	in := newInput()
	defer func() { in.release() }()
	if in.unread() != nil || in.block != nil {
		t.Error("there is a buffer before anything is read")
	}
	in.consumed(0)
	in.fillFrom([]byte("frame, part"))
	in.consumed(len("frame, "))
	if in.park(); string(in.unread()) != "part" {
		t.Errorf("%q is left", in.unread())
	}
	in.consumed(len("part"))
	if in.park(); in.block != nil {
		t.Error("the buffer is kept")
	}
	in.shrinkIdle()
	for range 5 {
		in.fillFrom(make([]byte, largest))
		in.consumed(len(in.unread()))
	}
	if in.park(); in.block == nil {
		t.Error("a busy connection has lost its buffer")
	}
}
