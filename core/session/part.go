package session

import "github.com/curfewmq/curfew/core/amqp"

// part is a body frame that comes in pieces, of a body that comes in several frames. Its payload is put where it belongs as it
// comes: who reads the connection does that on the spot, see [Conn.Intake].
type part struct {
	channel *channel // nil = there is none
	size    int      // of the payload
	left    int      // what of it is to come; 0 = only the frame's end
	begins  int      // where it does in the body
}

// worthPlacing is how many bytes are worth a read of their own.
const worthPlacing = 16 << 10

// beginPart looks whether the frame that data starts with, and that is incomplete, is worth it, and takes what is there of it.
func (c *Conn) beginPart(data []byte) (consumed int) {
	id, size, payload, ok := amqp.BeginBody(data)
	if !ok || c.phase != running {
		return 0
	}
	ch := c.channel(id)
	if ch == nil || ch.closing || ch.content.stage != awaitBody {
		return 0
	}
	t := &ch.content
	if t.received+len(payload) < worthPlacing || size < worthPlacing {
		return 0
	}
	if size > t.size-t.received || size == t.size { // too much, or all: one frame's body is left where it is read
		return 0
	}
	c.part = part{channel: ch, size: size, left: size - len(payload), begins: t.received}
	ch.append(payload)
	return len(data)
}

// goOn takes what data has of a frame that began to come.
func (c *Conn) goOn(data []byte) (consumed int) {
	p := &c.part
	if p.left == 0 && len(data) > 0 {
		c.endPart(data[0])
		return 1
	}
	n := min(p.left, len(data))
	p.left -= n
	if c.placing() {
		p.channel.append(data[:n])
	}
	return n
}

// placing reports whether anybody wants the frame that comes.
func (c *Conn) placing() bool {
	return c.phase == running && !c.part.channel.closing && c.part.channel.content.stage == awaitBody
}

// endPart ends the frame if that is what comes behind it.
func (c *Conn) endPart(end byte) {
	placing, p := c.placing(), c.part
	c.part = part{}
	switch {
	case end != amqp.FrameEnd:
		f := amqp.Frame{Type: amqp.FrameBody, Channel: p.channel.id}
		if placing {
			f.Payload = p.channel.content.parts.Buf[p.begins:][:p.size]
		}
		c.fail(f.WrongEnd(end))
		c.lose()
	case placing:
		if err := in(p.channel.received(), amqp.ClassBasic, amqp.MethodBasicPublish); err != nil {
			c.failIn(p.channel, err)
		}
	}
}

// Intake returns where the next bytes that the peer sends belong if nothing waits to be fed; nil if they are to be fed. After
// Took, which says how many were put there, Feed is called all the same.
func (c *Conn) Intake() []byte {
	p := &c.part
	if p.left < worthPlacing || !c.placing() {
		return nil
	}
	t := &p.channel.content
	room := t.parts.Buf[t.received:]
	if len(room) < worthPlacing {
		return nil
	}
	return room[:min(len(room), p.left)]
}

// Took notes that n bytes were put into what Intake returned.
func (c *Conn) Took(n int) {
	c.part.left -= n
	c.part.channel.content.received += n
}

// Halfway reports that a body frame has come in part, and that no more should be read than belongs to it, and a little: what
// follows may belong elsewhere than where it would be read to.
func (c *Conn) Halfway() bool { return c.part.channel != nil }
