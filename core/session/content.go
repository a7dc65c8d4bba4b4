package session

import (
	"github.com/curfewmq/curfew/core/amqp"
	"github.com/curfewmq/curfew/core/block"
	"github.com/curfewmq/curfew/sdk/hook"
)

// content is the message that a channel is receiving: a method, a header, and body frames [AMQP 4.2.6].
type content struct {
	stage     stage
	mandatory bool
	cancels   bool         // an exchange takes the message as a cancellation
	passes    bool         // the queues include the schedules of exchanges that route the message at once: see queue.Message
	planned   bool         // passes is set, and no exchange holds the message
	hold      hook.Instant // when the exchange that alone gets the message releases it; 0 means not at all, or that the exchange must be asked again
	route     *cachedRoute
	props     []byte       // as they are stored
	size      int          // of the whole body
	held      *block.Block // block that props lie in, if they came in an earlier Feed; otherwise nil
	parts     *block.Block // block that the body is copied to, if it comes in several frames; otherwise nil
	received  int          // bytes of the body in parts
	body      []byte       // the whole body, while the message is published
}

type stage uint8

const (
	awaitMethod stage = iota
	awaitContentHeader
	awaitBody
)

// unexpected returns the error for a frame that is not allowed at this stage.
func (t *content) unexpected() error {
	var text string
	switch t.stage {
	case awaitContentHeader:
		text = "expected content header for class 60, got non content header frame instead"
	case awaitBody:
		text = "expected content body, got non content body frame instead"
	default:
		return amqp.Errorf(amqp.ReplyUnexpectedFrame, "expected method frame, got non method frame instead")
	}
	return amqp.Errorf(amqp.ReplyUnexpectedFrame, "%s", text).In(amqp.ClassBasic, amqp.MethodBasicPublish)
}

// keepContent copies the properties of an incomplete message, because the next read reuses the block they lie in. Retaining that block
// instead would cost each channel much more memory.
func (ch *channel) keepContent() {
	t := &ch.content
	if t.stage != awaitBody || t.held != nil {
		return
	}
	t.held = block.New(len(t.props))
	t.props = t.held.Buf[:copy(t.held.Buf, t.props)]
	ch.conn.trackBuffered(len(t.held.Buf))
}

func (ch *channel) dropContent() {
	t := &ch.content
	for _, k := range [...]*block.Block{t.held, t.parts} {
		if k != nil {
			ch.conn.trackBuffered(-len(k.Buf))
			k.Release()
		}
	}
	*t = content{}
}

// header handles the content header.
func (ch *channel) header(payload []byte) error {
	h, err := amqp.ParseContentHeader(payload)
	if err != nil {
		return err
	}
	if h.Class != amqp.ClassBasic {
		return amqp.Errorf(amqp.ReplyUnexpectedFrame, "expected content header for class 60, got one for class %d instead", h.Class)
	}
	if limit := ch.conn.srv.MessageMax; h.BodySize > uint64(limit) {
		return precondition("message size %d is larger than configured max size %d", h.BodySize, limit)
	}
	if most := ch.conn.propsMax() + amqp.FrameSlack; len(h.Props) > most { // it came through a [Direct]
		return precondition("properties of %d bytes fit no frame, the limit is %d with frame_max = %d", len(h.Props), most, ch.conn.srv.FrameMax)
	}
	props, err := ch.checkProps(h.Props)
	if err != nil {
		return ch.routeErrorOr(err)
	}
	ch.content.props, ch.content.size, ch.content.stage = props, int(h.BodySize), awaitBody
	if h.BodySize == 0 {
		return ch.complete(nil, nil)
	}
	return nil
}

// routeErrorOr returns the error of an unusable exchange, if there is one, otherwise err. RabbitMQ reports it before an error in properties.
func (ch *channel) routeErrorOr(err error) error {
	if unusable := ch.conn.vhost.Publishable(ch.content.route.info.Exchange); unusable != nil {
		return unusable
	}
	return err
}

// body handles a body frame. A body in a single frame is not copied.
func (ch *channel) body(part []byte) error {
	t := &ch.content
	if len(part) > t.size-t.received {
		return amqp.Errorf(amqp.ReplyFrameError, "content body frame exceeds remaining content size")
	}
	if len(part) == t.size {
		return ch.complete(part, ch.conn.block)
	}
	ch.append(part)
	return ch.completeParts()
}

// completeParts publishes the message if all of its body is in parts.
func (ch *channel) completeParts() error {
	t := &ch.content
	if t.received < t.size {
		return nil
	}
	return ch.complete(t.parts.Buf[:t.size], t.parts)
}

// append copies a part of the body. It allocates in proportion to the bytes received, not to the announced size.
func (ch *channel) append(part []byte) {
	t := &ch.content
	need := t.received + len(part)
	if t.parts == nil || len(t.parts.Buf) < need {
		k := block.New(min(growth(need)*need, t.size)) // growing copies
		ch.conn.trackBuffered(len(k.Buf))
		if t.parts != nil {
			copy(k.Buf, t.parts.Buf[:t.received])
			ch.conn.trackBuffered(-len(t.parts.Buf))
			t.parts.Release()
		}
		t.parts = k
	}
	copy(t.parts.Buf[t.received:], part)
	t.received = need
}

// growth returns by which factor an allocation exceeds the needed memory. If a body is already large, the rest of it will probably come.
func growth(need int) int {
	const large = 64 << 10
	if need >= large {
		return 8
	}
	return 4
}

// trackBuffered adds n bytes of incomplete content to the server's buffered total; n may be negative.
func (c *Conn) trackBuffered(n int) {
	c.srv.pendingBytes.Add(int64(n))
	c.published = c.published || n > 0
}

// IncompleteBytes returns how many bytes of incomplete messages have been received.
func (c *Conn) IncompleteBytes() (bytes int) {
	for _, ch := range c.dirty { // after a Feed, exactly the channels with incomplete content are dirty
		bytes += ch.content.received
	}
	return bytes
}

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

// beginPartial consumes the start of an incomplete frame, if that is a sufficiently large body frame.
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
	if size > t.size-t.received || size == t.size { // an error, or a body in a single frame, which is not copied
		return 0
	}
	c.partial = partialFrame{channel: ch, size: size, remaining: size - len(payload), offset: t.received}
	ch.append(payload)
	return len(data)
}

// continuePartial consumes the part of data that belongs to the partial frame.
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

// wantsPartial reports whether the partial frame's channel is still receiving a body.
func (c *Conn) wantsPartial() bool {
	return c.phase == running && !c.partial.channel.closing && c.partial.channel.content.stage == awaitBody
}

// endPartial checks the frame end and completes the frame.
func (c *Conn) endPartial(end byte) {
	wanted, p := c.wantsPartial(), c.partial
	c.partial = partialFrame{}
	switch {
	case end != amqp.FrameEnd:
		f := amqp.Frame{Type: amqp.FrameBody, Channel: p.channel.id}
		if wanted {
			f.Payload = p.channel.content.parts.Buf[p.offset:][:p.size]
		}
		c.failFraming(f.WrongEnd(end))
	case wanted:
		if err := in(p.channel.completeParts(), amqp.ClassBasic, amqp.MethodBasicPublish); err != nil {
			c.failIn(p.channel, err)
		}
	}
}

// BodySpace returns the memory into which the caller may read the next bytes, if no bytes wait to be fed. nil means that they must go
// through Feed. The caller reports the bytes it read with BodyRead, and then calls Feed without bytes.
func (c *Conn) BodySpace() []byte {
	p := &c.partial
	if p.remaining < minPartialRead || !c.wantsPartial() {
		return nil
	}
	t := &p.channel.content
	space := t.parts.Buf[t.received:]
	if len(space) < minPartialRead {
		return nil
	}
	return space[:min(len(space), p.remaining)]
}

// BodyRead records that n bytes were read into BodySpace.
func (c *Conn) BodyRead(n int) {
	c.partial.remaining -= n
	c.partial.channel.content.received += n
}

// InsideBody reports that a body frame is partly read. The caller should then read little more than the rest of it, because the following
// bytes may belong into BodySpace.
func (c *Conn) InsideBody() bool { return c.partial.channel != nil }
