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
func (p *publisher) keepContent() {
	t := &p.content
	if t.stage != awaitBody || t.held != nil {
		return
	}
	t.held = block.New(len(t.props))
	t.props = t.held.Buf[:copy(t.held.Buf, t.props)]
	p.round.buffer(len(t.held.Buf))
}

func (p *publisher) dropContent() {
	t := &p.content
	for _, k := range [...]*block.Block{t.held, t.parts} {
		if k != nil {
			p.round.buffer(-len(k.Buf))
			k.Release()
		}
	}
	*t = content{}
}

// awaitsMethod reports whether no message is incomplete.
func (p *publisher) awaitsMethod() bool { return p.content.stage == awaitMethod }

// received returns how many bytes of an incomplete body have been copied.
func (p *publisher) received() int { return p.content.received }

// frame handles a frame of the message's content.
func (p *publisher) frame(f amqp.Frame) error {
	switch {
	case f.Type == amqp.FrameHeader && p.content.stage == awaitContentHeader:
		return in(p.header(f.Payload), amqp.ClassBasic, amqp.MethodBasicPublish)
	case f.Type == amqp.FrameBody && p.content.stage == awaitBody:
		return in(p.body(f.Payload), amqp.ClassBasic, amqp.MethodBasicPublish)
	}
	return p.content.unexpected()
}

// header handles the content header.
func (p *publisher) header(payload []byte) error {
	h, err := amqp.ParseContentHeader(payload)
	if err != nil {
		return err
	}
	if h.Class != amqp.ClassBasic {
		return amqp.Errorf(amqp.ReplyUnexpectedFrame, "expected content header for class 60, got one for class %d instead", h.Class)
	}
	if limit := p.srv.MessageMax; h.BodySize > uint64(limit) {
		return precondition("message size %d is larger than configured max size %d", h.BodySize, limit)
	}
	if most := p.propsMax() + amqp.FrameSlack; len(h.Props) > most { // it came through a [Direct]
		return precondition("properties of %d bytes fit no frame, the limit is %d with frame_max = %d", len(h.Props), most, p.srv.FrameMax)
	}
	props, err := p.reader.check(&p.props, h.Props, p.reply)
	if err != nil {
		return p.routeErrorOr(err)
	}
	p.content.props, p.content.size, p.content.stage = props, int(h.BodySize), awaitBody
	if h.BodySize == 0 {
		return p.complete(nil, nil)
	}
	return nil
}

// routeErrorOr returns the error of an unusable exchange, if there is one, otherwise err.
// RabbitMQ reports it before an error in properties.
func (p *publisher) routeErrorOr(err error) error {
	if unusable := p.vhost.Publishable(p.content.route.info.Exchange); unusable != nil {
		return unusable
	}
	return err
}

// body handles a body frame. A body in a single frame is not copied.
func (p *publisher) body(part []byte) error {
	t := &p.content
	if len(part) > t.size-t.received {
		return amqp.Errorf(amqp.ReplyFrameError, "content body frame exceeds remaining content size")
	}
	if len(part) == t.size {
		return p.complete(part, p.round.body())
	}
	p.append(part)
	return p.completeParts()
}

// completeParts publishes the message if all of its body is in parts.
func (p *publisher) completeParts() error {
	t := &p.content
	if t.received < t.size {
		return nil
	}
	return p.complete(t.parts.Buf[:t.size], t.parts)
}

// append copies a part of the body. It allocates in proportion to the bytes received, not to the announced size.
func (p *publisher) append(part []byte) {
	t := &p.content
	need := t.received + len(part)
	if t.parts == nil || len(t.parts.Buf) < need {
		k := block.New(min(growth(need)*need, t.size)) // growing copies
		p.round.buffer(len(k.Buf))
		if t.parts != nil {
			copy(k.Buf, t.parts.Buf[:t.received])
			p.round.buffer(-len(t.parts.Buf))
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

// awaitsBody reports whether a body is being received.
func (p *publisher) awaitsBody() bool { return p.content.stage == awaitBody }

// beginPart takes the first bytes of a body frame of the given size, if the rest of it is worth reading directly into the body. It returns
// the position of the frame's payload in the body.
func (p *publisher) beginPart(size int, payload []byte) (offset int, ok bool) {
	t := &p.content
	if t.stage != awaitBody || t.received+len(payload) < minPartialRead || size < minPartialRead {
		return 0, false
	}
	if size > t.size-t.received || size == t.size { // an error, or a body in a single frame, which is not copied
		return 0, false
	}
	offset = t.received
	p.append(payload)
	return offset, true
}

// part returns bytes of the body that were received.
func (p *publisher) part(offset, size int) []byte { return p.content.parts.Buf[offset:][:size] }

// space returns the memory for the next bytes of the body.
func (p *publisher) space() []byte { return p.content.parts.Buf[p.content.received:] }

// bodyRead records that n bytes were read into space.
func (p *publisher) bodyRead(n int) { p.content.received += n }
