package wire

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/curfewmq/curfew/core/amqp"
)

// frameHead is the decoded start of a frame: its size including head and end, and whether it is connection.close or connection.close-ok.
type frameHead struct {
	size            uint64
	closes, closeOK bool
}

const (
	headSize     = amqp.FrameOverhead - 1
	methodIDSize = 4
)

// parseFrameHead decodes the start of a frame. ok is false if b is too short.
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

// clientFrames tracks the frame boundaries in a client's bytes. When frames can no longer be passed on, the front needs to know where the
// next one begins. It validates nothing: the owner does.
type clientFrames struct {
	rest            uint64 // bytes of the current frame that have not come yet
	closes, closeOK bool   // connection.close, or connection.close-ok, has been seen
}

// pass returns how many bytes of b may be passed on: all except an incomplete frame head at the end.
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

// ownerFrames tracks the frames that an owner sends. Only whole frames are passed on, so that connection.close can follow at any time.
type ownerFrames struct {
	frameMax        int
	closes, closeOK bool // connection.close, or connection.close-ok, has been seen: the connection ends in good order
}

var errFrameEnd = errors.New("a frame from the owner has no frame end")

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
