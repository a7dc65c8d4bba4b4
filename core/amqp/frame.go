package amqp

import (
	"encoding/binary"
	"fmt"
	"sync"
)

// Frame types [AMQP 4.2.3].
const (
	FrameMethod    = 1
	FrameHeader    = 2
	FrameBody      = 3
	FrameHeartbeat = 8

	// FrameEnd is the last octet of a frame.
	FrameEnd = 0xCE
)

const (
	// FrameOverhead is the size of a frame without its payload: type, channel, size and the end octet.
	FrameOverhead = frameHead + 1
	// FrameSlack is how far a frame may exceed the negotiated frame-max. RabbitMQ allows this too, because some clients do not
	// count the overhead. A read buffer must hold frame-max + FrameSlack.
	FrameSlack = FrameOverhead
	// FrameMinSize is the smallest frame-max that can be negotiated [AMQP 1.2].
	FrameMinSize = 4096

	frameHead    = 7
	contentHead  = 12
	methodIDSize = 4
)

// Frame is one frame. Payload aliases the buffer it was read from.
type Frame struct {
	Type    byte
	Channel uint16
	Payload []byte
}

// NextFrame parses the frame at the start of buf and returns its size n, which is 0 while the frame is incomplete.
//
//	0      1         3             7                  size+7 size+8
//	+------+---------+-------------+------------------+------+
//	| type | channel |    size     |     payload      | 0xCE |
//	+------+---------+-------------+------------------+------+
//
// frameMax is the negotiated size of a whole frame, at least FrameMinSize; no value means "no limit". A frame larger than frameMax plus
// FrameSlack is refused as soon as its size is known. After an error the start of the next frame is unknown, so the connection
// can only be closed.
func NextFrame(buf []byte, frameMax int) (f Frame, n int, err error) {
	if len(buf) < frameHead {
		return Frame{}, 0, nil
	}
	size := uint64(be32(buf[3:]))
	f = Frame{Type: buf[0], Channel: be16(buf[1:])}
	if limit := uint64(maxPayload(frameMax)); size > limit+FrameSlack {
		return Frame{}, 0, frameError(f, "{frame_too_large,%d,%d}", size, limit)
	}
	if uint64(len(buf)) < size+FrameOverhead {
		return Frame{}, 0, nil
	}
	end := frameHead + int(size)
	f.Payload = buf[frameHead:end:end]
	if buf[end] != FrameEnd {
		return Frame{}, 0, f.WrongEnd(buf[end])
	}
	if !f.wellFormed() {
		return Frame{}, 0, f.refuse()
	}
	return f, end + 1, nil
}

// WrongEnd returns the error for a frame that does not end in FrameEnd.
func (f Frame) WrongEnd(got byte) *Error {
	return frameError(f, "{invalid_frame_end_marker,%d}", got)
}

// BeginBody parses the start of a body frame that NextFrame found incomplete: channel,
// size, and the part of the payload that has arrived. ok is false if buf starts with
// anything else.
func BeginBody(buf []byte) (channel uint16, size int, payload []byte, ok bool) {
	if len(buf) < frameHead || buf[0] != FrameBody {
		return 0, 0, nil, false
	}
	size = int(be32(buf[3:]))
	payload = buf[frameHead:]
	return be16(buf[1:]), size, payload[:min(size, len(payload))], true
}

func maxPayload(frameMax int) int { return max(frameMax, FrameMinSize) - FrameOverhead }

func (f Frame) wellFormed() bool {
	switch f.Type {
	case FrameMethod:
		return len(f.Payload) >= methodIDSize
	case FrameHeader:
		return len(f.Payload) >= contentHead
	case FrameBody:
		return true
	case FrameHeartbeat:
		return len(f.Payload) == 0 && f.Channel == 0
	}
	return false
}

// Unexpected returns the error for a frame that is not allowed at this point.
func (f Frame) Unexpected() *Error { return Errorf(ReplyUnexpectedFrame, "%s", f.describe()) }

// refuse returns the error for a malformed frame. A heartbeat must be on channel 0 [AMQP 4.2.7].
func (f Frame) refuse() *Error {
	if f.Type == FrameHeartbeat && len(f.Payload) == 0 {
		return f.Unexpected()
	}
	return frameError(f, "unknown_frame")
}

func frameError(f Frame, layout string, args ...any) *Error {
	return Errorf(ReplyFrameError, "%s: "+layout, append([]any{f.describe()}, args...)...)
}

// describe returns RabbitMQ's description of a frame in reply texts.
func (f Frame) describe() string {
	if len(f.Payload) > 16 {
		return fmt.Sprintf("type %d, first 16 octets = %s", f.Type, erlangBinary(f.Payload[:16]))
	}
	return fmt.Sprintf("type %d, all octets = %s", f.Type, erlangBinary(f.Payload))
}

// AppendMethod appends m as a whole frame.
func AppendMethod(dst []byte, channel uint16, m Method) []byte {
	start := len(dst)
	class, method := m.ID()
	c := writing.Get().(*codec)
	c.dst = appendMethodHead(dst, channel, class, method)
	m.fields(c)
	dst, c.dst = c.dst, nil
	writing.Put(c)
	return endFrame(dst, start)
}

// writing has codecs to append with. A call through the interface would allocate one for each method, as for each basic.get-ok.
var writing = sync.Pool{New: func() any { return new(codec) }}

// AppendHeartbeat appends a heartbeat frame.
func AppendHeartbeat(dst []byte) []byte {
	return append(dst, FrameHeartbeat, 0, 0, 0, 0, 0, 0, FrameEnd)
}

// appendMethodHead leaves out the size, which endFrame fills in.
func appendMethodHead(dst []byte, channel, class, method uint16) []byte {
	return append(dst, FrameMethod, byte(channel>>8), byte(channel), 0, 0, 0, 0,
		byte(class>>8), byte(class), byte(method>>8), byte(method))
}

func endFrame(dst []byte, start int) []byte {
	binary.BigEndian.PutUint32(dst[start+3:], uint32(len(dst)-start-frameHead))
	return append(dst, FrameEnd)
}

// MaxBodySize is the largest body that a content header may announce, as in RabbitMQ. Sessions have a lower limit.
const MaxBodySize = 512 << 20

// ContentHeader begins the content of a message. Props, the property flags and values, aliases the payload and is not checked: see
// [ScanProps].
type ContentHeader struct {
	Class    uint16
	BodySize uint64
	Props    []byte
}

// ParseContentHeader decodes the payload of a header frame.
//
//	0       2        4            12
//	+-------+--------+------------+-----------------------+
//	| class | weight | body size  | property flags, values |
//	+-------+--------+------------+-----------------------+
func ParseContentHeader(payload []byte) (ContentHeader, error) {
	if len(payload) < contentHead {
		return ContentHeader{}, Errorf(ReplySyntaxError, "content header of %d octets: at least %d expected", len(payload), contentHead)
	}
	h := ContentHeader{Class: be16(payload), BodySize: be64(payload[4:]), Props: payload[contentHead:]}
	if be16(payload[2:]) != 0 {
		return ContentHeader{}, Errorf(ReplyUnexpectedFrame,
			"expected content header for class %d, got non content header frame instead", h.Class)
	}
	if h.BodySize > MaxBodySize {
		return ContentHeader{}, Errorf(ReplyFrameError,
			"content body size %d exceeds maximum allowed size %d", h.BodySize, MaxBodySize)
	}
	return h, nil
}

// AppendContentHeader appends the header frame of a message of class basic. props are those of a [ContentHeader], or made by
// [RewriteProps] or [Properties.Append].
func AppendContentHeader(dst []byte, channel uint16, bodySize uint64, props []byte) []byte {
	dst, b := frame(dst, FrameHeader, channel, contentHead+len(props))
	binary.BigEndian.PutUint32(b, uint32(ClassBasic)<<16) // and a weight of 0
	binary.BigEndian.PutUint64(b[4:], bodySize)
	copy(b[contentHead:], props)
	return dst
}

// AppendBody appends body in as few frames as possible; none for an empty body [AMQP 4.2.6]. frameMax, the size of a whole frame, is
// at least FrameMinSize.
func AppendBody(dst []byte, channel uint16, body []byte, frameMax int) []byte {
	limit := maxPayload(frameMax)
	for len(body) > limit {
		dst = appendBodyFrame(dst, channel, body[:limit])
		body = body[limit:]
	}
	if len(body) == 0 {
		return dst
	}
	return appendBodyFrame(dst, channel, body)
}

// MaxBodyPart returns how much of a body fits into one frame.
func MaxBodyPart(frameMax int) int { return maxPayload(frameMax) }

// AppendBodyHead appends the start of a body frame. The payload and FrameEnd follow it.
func AppendBodyHead(dst []byte, channel uint16, size int) []byte {
	dst = append(dst, FrameBody)
	dst = binary.BigEndian.AppendUint16(dst, channel)
	return binary.BigEndian.AppendUint32(dst, uint32(size))
}

// BodyFramesSize returns how many bytes AppendBody appends for a body of this size.
func BodyFramesSize(bodySize, frameMax int) int {
	limit := maxPayload(frameMax)
	return bodySize + (bodySize+limit-1)/limit*FrameOverhead
}

func appendBodyFrame(dst []byte, channel uint16, part []byte) []byte {
	dst, b := frame(dst, FrameBody, channel, len(part))
	copy(b, part)
	return dst
}
