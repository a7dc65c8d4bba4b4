package wire

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/curfewmq/curfew/core/amqp"
)

// frameHead is the start of a frame: its size with head and end, and whether it is connection.close or connection.close-ok.
type frameHead struct {
	size            uint64
	closes, closeOK bool
}

const (
	headSize     = amqp.FrameOverhead - 1
	methodIDSize = 4
)

// parseFrameHead reads the start of a frame. ok is false while b is too short to say.
func parseFrameHead(b []byte) (h frameHead, ok bool) {
	if len(b) < headSize {
		return h, false
	}
	payload := uint64(binary.BigEndian.Uint32(b[3:]))
	h.size = payload + amqp.FrameOverhead
	if b[0] != amqp.FrameMethod || b[1] != 0 || b[2] != 0 || payload < methodIDSize {
		return h, true
	}
	if len(b) < headSize+methodIDSize {
		return h, false
	}
	class, method := binary.BigEndian.Uint16(b[headSize:]), binary.BigEndian.Uint16(b[headSize+2:])
	h.closes = class == amqp.ClassConnection && method == amqp.MethodConnectionClose
	h.closeOK = class == amqp.ClassConnection && method == amqp.MethodConnectionCloseOK
	return h, true
}

// clientFrames follows the frames that a client sends, so that it is known where one begins when they cannot be passed on any more.
// It checks nothing: the owner does.
type clientFrames struct {
	rest            uint64 // bytes of the current frame that are to come
	closes, closeOK bool   // connection.close, or connection.close-ok, was among them
}

// pass returns how many bytes of b may be passed on: all but the start of a head.
func (f *clientFrames) pass(b []byte) int {
	n := min(f.rest, uint64(len(b)))
	f.rest -= n
	for f.rest == 0 {
		h, ok := parseFrameHead(b[n:])
		if !ok {
			break
		}
		f.closes, f.closeOK = f.closes || h.closes, f.closeOK || h.closeOK
		part := min(h.size, uint64(len(b))-n)
		f.rest = h.size - part
		n += part
	}
	return int(n)
}

// ownerFrames follows the frames that an owner sends. They are passed on whole, so that connection.close can follow at any time.
type ownerFrames struct {
	frameMax        int
	closes, closeOK bool // connection.close, or connection.close-ok, was among them: the connection ends in good order
}

var errFrameEnd = errors.New("a frame from the owner does not end as it should")

// whole returns the size of the whole frames at the start of b.
func (f *ownerFrames) whole(b []byte) (n int, err error) {
	for {
		h, ok := parseFrameHead(b[n:])
		if !ok {
			return n, nil
		}
		if h.size > uint64(f.frameMax)+amqp.FrameSlack {
			return n, fmt.Errorf("a frame from the owner has %d bytes, expected at most %d", h.size, f.frameMax)
		}
		if uint64(len(b)-n) < h.size {
			return n, nil
		}
		n += int(h.size)
		if b[n-1] != amqp.FrameEnd {
			return n - int(h.size), errFrameEnd
		}
		f.closes, f.closeOK = f.closes || h.closes, f.closeOK || h.closeOK
	}
}
