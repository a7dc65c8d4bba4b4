package session

import (
	"github.com/curfewmq/curfew/core/amqp"
	"github.com/curfewmq/curfew/core/block"
	"github.com/curfewmq/curfew/core/queue"
)

// publish begins a message.
func (ch *channel) publish(args []byte) error {
	exchange, key, mandatory, immediate, err := amqp.ParsePublish(args)
	if err != nil {
		return err
	}
	if immediate {
		return amqp.Errorf(amqp.ReplyNotImplemented, "immediate=true")
	}
	r, err := ch.find(exchange, key)
	if err != nil {
		return err
	}
	ch.content.stage, ch.content.route, ch.content.mandatory = awaitContentHeader, r, mandatory
	if !ch.dirty {
		ch.dirty = true
		ch.conn.dirty = append(ch.conn.dirty, ch)
	}
	return nil
}

// complete sends a message on its way, the body of which lies in a block.
func (ch *channel) complete(body []byte, block *block.Block) error {
	c, r := ch.conn, ch.content.route
	defer ch.dropContent()
	origin, shells, own, err := ch.resolve(r)
	if err != nil {
		return err
	}
	c.published = true
	ch.counts.published++
	m := queue.Message{
		Routing: origin, Props: ch.content.props, Body: body,
		Expiration: ch.props.expiration, Priority: ch.props.priority, Flags: ch.props.flags,
	}
	if c.observed {
		ch.observe(&m, shells)
	}
	if ch.mode == transactional {
		return ch.txPublish(&m, shells)
	}
	if m.Flags&queue.Traced != 0 {
		ch.tracePublished(&m, len(shells), ch.contextInjected())
	}
	ch.counts.routed += uint64(len(shells))
	if len(shells) == 0 {
		ch.unroutable(&m, ch.content.mandatory)
	}
	if ch.mode == confirming {
		ch.seq++
		m.Seq = ch.seq
		ch.untracked = append(ch.untracked, uint32(len(shells)))
	}
	m.Block = block
	blocks := blockRefs{ch.content.held, ch.content.parts, c.block}
	if own {
		c.outbox.addCached(r, ch.source(), &m, &blocks)
		return nil
	}
	c.outbox.addTo(shells, ch.source(), &m, &blocks)
	return nil
}

// source is who is told what becomes of the channel's messages; nil if nobody is.
func (ch *channel) source() *channel {
	if ch.mode == confirming {
		return ch
	}
	return nil
}

// unroutable tells the publisher of a mandatory message that it leads nowhere [AMQP 1.8.3.10].
func (ch *channel) unroutable(m *queue.Message, mandatory bool) {
	ch.counts.unroutable(mandatory)
	if !mandatory {
		return
	}
	o := &ch.conn.out
	o.mu.Lock()
	defer o.mu.Unlock()
	o.pending = appendReturn(o.pending, ch, m)
	o.kick()
}

func appendReturn(dst []byte, ch *channel, m *queue.Message) []byte {
	dst = amqp.AppendMethod(dst, ch.id, &amqp.BasicReturn{
		ReplyCode: amqp.ReplyNoRoute, ReplyText: "NO_ROUTE", Exchange: m.Routing.Exchange, RoutingKey: m.Routing.Key,
	})
	dst = amqp.AppendContentHeader(dst, ch.id, uint64(len(m.Body)), m.Props)
	return amqp.AppendBody(dst, ch.id, m.Body, ch.conn.frameMax)
}

// flush lets happen what was asked for: first the messages go to their queues, then what was said about others.
func (c *Conn) flush() {
	unfinished := c.dirty[:0]
	for _, ch := range c.dirty {
		ch.track()
		ch.counts.show(&ch.sharedCounts)
		ch.keepContent()
		if ch.dirty = ch.content.stage != awaitMethod; ch.dirty {
			unfinished = append(unfinished, ch)
		}
	}
	clear(c.dirty[len(unfinished):])
	c.dirty = unfinished
	caughtUp, written := c.outbox.flush()
	if caughtUp != nil {
		c.consumersCaughtUp = caughtUp
	}
	if written != nil {
		c.logCaughtUp = written
	}
	c.acks.flush()
	c.wakeBelowLimit()
}
