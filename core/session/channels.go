package session

import (
	"slices"

	"github.com/curfewmq/curfew/core/amqp"
)

// channels are the open channels of a connection, also those that wait for close-ok. They
// belong to the connection's reader.
type channels struct {
	out      *writeBuffer
	byNumber []*channel // nil if closed; written under out's lock
	open     int
	last     *channel // channel of the previous frame
}

// at returns the channel with a number, or nil.
func (t *channels) at(id uint16) *channel {
	if ch := t.last; ch != nil && ch.outlet.id == id {
		return ch
	}
	if int(id) >= len(t.byNumber) || t.byNumber[id] == nil {
		return nil
	}
	t.last = t.byNumber[id]
	return t.last
}

// all returns the channels by number, with nil for closed ones. Other goroutines hold out's
// lock while they use the result.
func (t *channels) all() []*channel { return t.byNumber }

// check refuses channel numbers above channel-max [AMQP 1.4.2.6, channel-max]. RabbitMQ limits the number of open
// channels instead; where both would refuse, the text is RabbitMQ's.
func (t *channels) check(id uint16, most int) error {
	if int(id) <= most {
		return nil
	}
	if t.open >= most {
		return amqp.Errorf(amqp.ReplyNotAllowed,
			"number of channels opened (%d) has reached the negotiated channel_max (%d)", t.open, most)
	}
	return amqp.Errorf(amqp.ReplyNotAllowed, "channel %d is higher than the negotiated channel_max (%d)", id, most)
}

func (t *channels) add(ch *channel) {
	t.open++
	t.out.mu.Lock()
	defer t.out.mu.Unlock()
	id := int(ch.outlet.id)
	if grow := id + 1 - len(t.byNumber); grow > 0 {
		t.byNumber = append(t.byNumber, make([]*channel, grow)...)
	}
	t.byNumber[id] = ch
}

func (t *channels) remove(id uint16) {
	t.last = nil
	t.open--
	t.out.mu.Lock()
	defer t.out.mu.Unlock()
	t.byNumber[id] = nil
}

// clear removes all channels.
func (t *channels) clear() {
	t.last, t.open = nil, 0
	t.out.mu.Lock()
	defer t.out.mu.Unlock()
	clear(t.byNumber)
}

// forgetQueues drops references to queues that may have been deleted: routes of topologies
// before a generation, and basic.get.
func (t *channels) forgetQueues(generation uint64) {
	for _, ch := range t.byNumber {
		if ch != nil {
			ch.publisher.forgetRoutes(generation)
			ch.deliveries.consumers.forgetGetter()
		}
	}
}

// infos describes the channels that are open on both sides. The caller holds out's lock, as for the methods below.
func (t *channels) infos() (all []ChannelInfo) {
	for _, ch := range t.byNumber {
		if ch != nil && !ch.outlet.closed {
			all = append(all, ch.info())
		}
	}
	return all
}

// count returns the number of channels.
func (t *channels) count() (n int) {
	for _, ch := range t.byNumber {
		if ch != nil {
			n++
		}
	}
	return n
}

// hasUnsettled reports whether a channel has unsettled deliveries. The reader calls it.
func (t *channels) hasUnsettled() bool {
	return slices.ContainsFunc(t.byNumber, func(ch *channel) bool {
		return ch != nil && !ch.outlet.closed && (ch.deliveries.unsettled.count() > 0 || ch.tx.holds())
	})
}

// counters returns the sum of the channels' counters.
func (t *channels) counters() (sum Counters) {
	for _, ch := range t.byNumber {
		if ch != nil && !ch.outlet.closed {
			own := ch.allCounters()
			sum.Add(&own)
		}
	}
	return sum
}

// partialFrame is a partly read body frame of a body in several frames. Its payload is read
// directly into the memory where the body is collected: see [Conn.BodySpace].
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
	if ch == nil || ch.outlet.closing {
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
func (p *partialFrame) wanted() bool {
	return !p.channel.outlet.closing && p.channel.publisher.awaitsBody()
}

// end ends the frame with the byte that should be the frame end. malformed is the error if
// it is not; otherwise err is the error of the channel.
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

// BodySpace returns the memory into which the caller may read the next bytes, if no bytes
// wait to be fed. nil means that they must go through Feed. The caller reports the bytes it
// read with BodyRead, and then calls Feed without bytes.
func (c *Conn) BodySpace() []byte { return c.partial.space() }

// BodyRead records that n bytes were read into BodySpace.
func (c *Conn) BodyRead(n int) { c.partial.added(n) }

// InsideBody reports that a body frame is partly read. The caller should then read little
// more than the rest of it, because the following bytes may belong into BodySpace.
func (c *Conn) InsideBody() bool { return c.partial.open() }
