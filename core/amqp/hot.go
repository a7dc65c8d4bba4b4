package amqp

import (
	"encoding/binary"
	"slices"
)

// The functions in this file parse and append frequent methods without the generated types. args are the bytes after the class and method
// ids: payload[4:]. Results alias args.

// ParsePublish decodes the arguments of basic.publish.
//
//	| ticket 2 | exchange 1+n | routing key 1+n | bits: mandatory, immediate |
func ParsePublish(args []byte) (exchange, key []byte, mandatory, immediate bool, err error) {
	if len(args) < 5 {
		return nil, nil, false, false, malformed(MethodBasicPublish, args)
	}
	e := 3 + int(args[2]) // index after the exchange: the key's length
	if e+1 >= len(args) {
		return nil, nil, false, false, malformed(MethodBasicPublish, args)
	}
	k := e + 1 + int(args[e])
	if k+1 != len(args) {
		return nil, nil, false, false, malformed(MethodBasicPublish, args)
	}
	return args[3:e:e], args[e+1 : k : k], args[k]&1 != 0, args[k]&2 != 0, nil
}

// ParseAck decodes the arguments of basic.ack.
func ParseAck(args []byte) (tag uint64, multiple bool, err error) {
	if len(args) != 9 {
		return 0, false, malformed(MethodBasicAck, args)
	}
	return be64(args), args[8]&1 != 0, nil
}

// ParseNack decodes the arguments of basic.nack.
func ParseNack(args []byte) (tag uint64, multiple, requeue bool, err error) {
	if len(args) != 9 {
		return 0, false, false, malformed(MethodBasicNack, args)
	}
	return be64(args), args[8]&1 != 0, args[8]&2 != 0, nil
}

// ParseReject decodes the arguments of basic.reject.
func ParseReject(args []byte) (tag uint64, requeue bool, err error) {
	if len(args) != 9 {
		return 0, false, malformed(MethodBasicReject, args)
	}
	return be64(args), args[8]&1 != 0, nil
}

// malformed returns the error that the codec gives for the arguments of a basic method.
func malformed(method uint16, args []byte) error {
	m := newMethod(ClassBasic, method)
	c := codec{reading: true, buf: args}
	m.fields(&c)
	return c.finish().In(ClassBasic, method)
}

const (
	basicDeliver = uint32(ClassBasic)<<16 | uint32(MethodBasicDeliver)
	basicAck     = uint32(ClassBasic)<<16 | uint32(MethodBasicAck)
	basicNack    = uint32(ClassBasic)<<16 | uint32(MethodBasicNack)
)

// AppendDeliver appends the method frame of basic.deliver; a content header and the body must follow it. It cuts exchange, key and
// consumer tag to 255 bytes.
func AppendDeliver(dst []byte, channel uint16, ctag string, tag uint64, redelivered bool, exchange, key []byte) []byte {
	if len(ctag) > maxShortstr || len(exchange) > maxShortstr || len(key) > maxShortstr {
		return AppendMethod(dst, channel, &BasicDeliver{
			ConsumerTag: ctag, DeliveryTag: tag, Redelivered: redelivered, Exchange: string(exchange), RoutingKey: string(key),
		})
	}
	size := methodIDSize + 1 + len(ctag) + 8 + 1 + 1 + len(exchange) + 1 + len(key)
	dst, b := frame(dst, FrameMethod, channel, size)
	binary.BigEndian.PutUint32(b, basicDeliver)
	b[4] = byte(len(ctag))
	b = b[5+copy(b[5:], ctag):]
	binary.BigEndian.PutUint64(b, tag)
	b[8] = packBits(redelivered)
	b[9] = byte(len(exchange))
	b = b[10+copy(b[10:], exchange):]
	b[0] = byte(len(key))
	copy(b[1:], key)
	return dst
}

// AppendAck appends the frame of basic.ack.
func AppendAck(dst []byte, channel uint16, tag uint64, multiple bool) []byte {
	return appendSettle(dst, channel, basicAck, tag, packBits(multiple))
}

// AppendNack appends the frame of basic.nack.
func AppendNack(dst []byte, channel uint16, tag uint64, multiple, requeue bool) []byte {
	return appendSettle(dst, channel, basicNack, tag, packBits(multiple, requeue))
}

func appendSettle(dst []byte, channel uint16, id uint32, tag uint64, flags byte) []byte {
	dst, b := frame(dst, FrameMethod, channel, 13)
	binary.BigEndian.PutUint32(b, id)
	binary.BigEndian.PutUint64(b[4:], tag)
	b[12] = flags
	return dst
}

// frame appends a frame, and returns its payload of size bytes for the caller to fill in.
func frame(dst []byte, kind byte, channel uint16, size int) (grown, payload []byte) {
	n := len(dst)
	dst = slices.Grow(dst, size+FrameOverhead)[:n+size+FrameOverhead]
	b := dst[n:]
	b[0] = kind
	binary.BigEndian.PutUint16(b[1:], channel)
	binary.BigEndian.PutUint32(b[3:], uint32(size))
	b[frameHead+size] = FrameEnd
	return dst, b[frameHead : frameHead+size]
}
