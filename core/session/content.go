package session

import (
	"github.com/curfewmq/curfew/core/amqp"
	"github.com/curfewmq/curfew/core/block"
)

// content is a message on its way in: a method, a header, and body frames [AMQP 4.2.6].
type content struct {
	stage     stage
	mandatory bool
	route     *cachedRoute
	props     []byte       // as they will be stored
	size      int          // of the whole body
	held      *block.Block // props lie in it, if they came with an earlier Feed
	parts     *block.Block // a body that comes in several frames
	received  int          // bytes of it
}

type stage uint8

const (
	awaitMethod stage = iota
	awaitContentHeader
	awaitBody
)

// unexpected is the error for a frame that may not come now.
func (c *content) unexpected() error {
	var text string
	switch c.stage {
	case awaitContentHeader:
		text = "expected content header for class 60, got non content header frame instead"
	case awaitBody:
		text = "expected content body, got non content body frame instead"
	default:
		return amqp.Errorf(amqp.ReplyUnexpectedFrame, "expected method frame, got non method frame instead")
	}
	return amqp.Errorf(amqp.ReplyUnexpectedFrame, "%s", text).In(amqp.ClassBasic, amqp.MethodBasicPublish)
}

// keepContent copies the properties of a message that is not complete: the block they lie in will be read into again. To hold that
// would be to hold much more, in each channel.
func (ch *channel) keepContent() {
	c := &ch.content
	if c.stage != awaitBody || c.held != nil {
		return
	}
	c.held = block.New(len(c.props))
	c.props = c.held.Buf[:copy(c.held.Buf, c.props)]
	ch.conn.trackBuffered(len(c.held.Buf))
}

// dropContent forgets the message.
func (ch *channel) dropContent() {
	c := &ch.content
	if c.held != nil {
		ch.conn.trackBuffered(-len(c.held.Buf))
		c.held.Release()
	}
	if c.parts != nil {
		ch.conn.trackBuffered(-len(c.parts.Buf))
		c.parts.Release()
	}
	*c = content{}
}

// header takes the content header in.
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
	props, err := ch.examine(h.Props)
	if err != nil {
		return ch.routeErrorOr(err)
	}
	ch.content.props, ch.content.size, ch.content.stage = props, int(h.BodySize), awaitBody
	if h.BodySize == 0 {
		return ch.complete(nil, nil)
	}
	return nil
}

// routeErrorOr returns what RabbitMQ complains about first, if err is about the properties: an exchange that cannot be used.
func (ch *channel) routeErrorOr(err error) error {
	o := ch.content.route.origin
	if _, unusable := ch.conn.vhost.Route(o.Exchange, o.Key, nil, nil, nil); unusable != nil {
		return unusable
	}
	return err
}

// body takes a part of the body in. One that comes in a single frame is left where it was read.
func (ch *channel) body(part []byte) error {
	c := &ch.content
	if len(part) > c.size-c.received {
		return amqp.Errorf(amqp.ReplyFrameError, "content body frame exceeds remaining content size")
	}
	if len(part) == c.size {
		return ch.complete(part, ch.conn.block)
	}
	ch.append(part)
	return ch.received()
}

// received is called when a part of a body has been put where it belongs.
func (ch *channel) received() error {
	c := &ch.content
	if c.received < c.size {
		return nil
	}
	return ch.complete(c.parts.Buf[:c.size], c.parts)
}

// append copies a part of the body. Room is made as the bytes come, not as they are announced.
func (ch *channel) append(part []byte) {
	c := &ch.content
	need := c.received + len(part)
	if c.parts == nil || len(c.parts.Buf) < need {
		k := block.New(min(ahead(need)*need, c.size)) // growing copies: seldom is better
		ch.conn.trackBuffered(len(k.Buf))
		if c.parts != nil {
			copy(k.Buf, c.parts.Buf[:c.received])
			ch.conn.trackBuffered(-len(c.parts.Buf))
			c.parts.Release()
		}
		c.parts = k
	}
	copy(c.parts.Buf[c.received:], part)
	c.received = need
}

// ahead is how many times the memory that a part of a body needs is taken at once. One that is large already will probably come.
func ahead(need int) int {
	const large = 64 << 10
	if need >= large {
		return 8
	}
	return 4
}

// trackBuffered counts memory that a client makes the broker hold for what is not finished, or uncounts it.
func (c *Conn) trackBuffered(n int) {
	c.srv.pendingBytes.Add(int64(n))
	c.published = c.published || n > 0
}
