package session

import (
	"github.com/curfewmq/curfew/core/amqp"
)

// partialFrame is a partly read body frame of a body in several frames. Its payload is read directly into the memory where
// the body is collected: see [Conn.BodySpace].
type partialFrame struct {
	channel   *channel // nil: there is none
	size      int      // of the payload
	remaining int      // payload bytes to come; at 0 only the frame end is missing
	offset    int      // of the payload in the body
}

// minPartialRead is the smallest read, in bytes, that is worth a system call of its own.
const minPartialRead = 16 << 10

// open reports whether a frame is partly read.
func (p *partialFrame) open() bool { return p.channel != nil }

// begin consumes data, the start of an incomplete frame, if that is a sufficiently large body frame.
func (p *partialFrame) begin(all *channels, data []byte) (consumed int) {
	id, size, payload, ok := amqp.BeginBody(data)
	if !ok {
		return 0
	}
	ch := all.at(id)
	if ch == nil || ch.closing {
		return 0
	}
	offset, ok := ch.publisher.beginPart(size, payload)
	if !ok {
		return 0
	}
	*p = partialFrame{channel: ch, size: size, remaining: size - len(payload), offset: offset}
	return len(data)
}

// add consumes the part of data that belongs to the frame's payload.
func (p *partialFrame) add(data []byte) (consumed int) {
	n := min(p.remaining, len(data))
	p.remaining -= n
	if p.wanted() {
		p.channel.publisher.append(data[:n])
	}
	return n
}

// wanted reports whether the channel is still receiving a body: it, or the connection, may have been closed since.
func (p *partialFrame) wanted() bool { return !p.channel.closing && p.channel.publisher.awaitsBody() }

// end ends the frame with the byte that should be the frame end. malformed is the error if it is not; otherwise err is the error of the channel.
func (p *partialFrame) end(end byte) (ch *channel, malformed, err error) {
	wanted, was := p.wanted(), *p
	*p = partialFrame{}
	ch = was.channel
	switch {
	case end != amqp.FrameEnd:
		f := amqp.Frame{Type: amqp.FrameBody, Channel: ch.outlet.id}
		if wanted {
			f.Payload = ch.publisher.part(was.offset, was.size)
		}
		return ch, f.WrongEnd(end), nil
	case wanted:
		return ch, nil, in(ch.publisher.completeParts(), amqp.ClassBasic, amqp.MethodBasicPublish)
	}
	return ch, nil, nil
}

// space returns the memory into which the next bytes may be read; nil if they must go through Feed.
func (p *partialFrame) space() []byte {
	if p.remaining < minPartialRead || !p.wanted() {
		return nil
	}
	space := p.channel.publisher.space()
	if len(space) < minPartialRead {
		return nil
	}
	return space[:min(len(space), p.remaining)]
}

// added records that n bytes were read into space.
func (p *partialFrame) added(n int) {
	p.remaining -= n
	p.channel.publisher.bodyRead(n)
}

// continuePartial consumes the part of data that belongs to the partial frame.
func (c *Conn) continuePartial(data []byte) (consumed int) {
	if c.partial.remaining > 0 || len(data) == 0 {
		return c.partial.add(data)
	}
	ch, malformed, err := c.partial.end(data[0])
	switch {
	case malformed != nil:
		c.failFraming(malformed)
	case err != nil:
		c.failIn(ch, err)
	}
	return 1
}

// BodySpace returns the memory into which the caller may read the next bytes, if no bytes wait to be fed. nil means that they must go
// through Feed. The caller reports the bytes it read with BodyRead, and then calls Feed without bytes.
func (c *Conn) BodySpace() []byte { return c.partial.space() }

// BodyRead records that n bytes were read into BodySpace.
func (c *Conn) BodyRead(n int) { c.partial.added(n) }

// InsideBody reports that a body frame is partly read. The caller should then read little more than the rest of it, because the following
// bytes may belong into BodySpace.
func (c *Conn) InsideBody() bool { return c.partial.open() }
