package session

import "github.com/curfewmq/curfew/core/amqp"

// partialFrame is a body frame that comes in pieces, of a body that comes in several frames. Its payload is put where it belongs as it
// comes: who reads the connection does that on the spot, see [Conn.Intake].
type partialFrame struct {
	channel   *channel // nil = there is none
	size      int      // of the payload
	remaining int      // what of it is to come; 0 = only the frame's end
	offset    int      // where it does in the body
}

// minPartialRead is how many bytes are worth a read of their own.
const minPartialRead = 16 << 10

// beginPartial looks whether the frame that data starts with, and that is incomplete, is worth it, and takes what is there of it.
func (c *Conn) beginPartial(data []byte) (consumed int) {
	id, size, payload, ok := amqp.BeginBody(data)
	if !ok || c.phase != running {
		return 0
	}
	ch := c.channel(id)
	if ch == nil || ch.closing || ch.content.stage != awaitBody {
		return 0
	}
	t := &ch.content
	if t.received+len(payload) < minPartialRead || size < minPartialRead {
		return 0
	}
	if size > t.size-t.received || size == t.size { // too much, or all: one frame's body is left where it is read
		return 0
	}
	c.partial = partialFrame{channel: ch, size: size, remaining: size - len(payload), offset: t.received}
	ch.append(payload)
	return len(data)
}

// continuePartial takes what data has of a frame that began to come.
func (c *Conn) continuePartial(data []byte) (consumed int) {
	p := &c.partial
	if p.remaining == 0 && len(data) > 0 {
		c.endPartial(data[0])
		return 1
	}
	n := min(p.remaining, len(data))
	p.remaining -= n
	if c.wantsPartial() {
		p.channel.append(data[:n])
	}
	return n
}

// wantsPartial reports whether anybody wants the frame that comes.
func (c *Conn) wantsPartial() bool {
	return c.phase == running && !c.partial.channel.closing && c.partial.channel.content.stage == awaitBody
}

// endPartial ends the frame if that is what comes behind it.
func (c *Conn) endPartial(end byte) {
	placing, p := c.wantsPartial(), c.partial
	c.partial = partialFrame{}
	switch {
	case end != amqp.FrameEnd:
		f := amqp.Frame{Type: amqp.FrameBody, Channel: p.channel.id}
		if placing {
			f.Payload = p.channel.content.parts.Buf[p.offset:][:p.size]
		}
		c.fail(f.WrongEnd(end))
		c.lose()
	case placing:
		if err := in(p.channel.received(), amqp.ClassBasic, amqp.MethodBasicPublish); err != nil {
			c.failIn(p.channel, err)
		}
	}
}

// BodySpace returns where the next bytes that the peer sends belong if nothing waits to be fed; nil if they are to be fed. After
// Took, which says how many were put there, Feed is called all the same.
func (c *Conn) BodySpace() []byte {
	p := &c.partial
	if p.remaining < minPartialRead || !c.wantsPartial() {
		return nil
	}
	t := &p.channel.content
	room := t.parts.Buf[t.received:]
	if len(room) < minPartialRead {
		return nil
	}
	return room[:min(len(room), p.remaining)]
}

// BodyRead notes that n bytes were put into what Intake returned.
func (c *Conn) BodyRead(n int) {
	c.partial.remaining -= n
	c.partial.channel.content.received += n
}

// InsideBody reports that a body frame has come in part, and that no more should be read than belongs to it, and a little: what
// follows may belong elsewhere than where it would be read to.
func (c *Conn) InsideBody() bool { return c.partial.channel != nil }
