package amqp

import "encoding/binary"

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
