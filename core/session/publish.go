package session

import (
	"github.com/curfewmq/curfew/core/amqp"
	"github.com/curfewmq/curfew/core/block"
	"github.com/curfewmq/curfew/core/queue"
)

// publish handles basic.publish, which begins a message.
func (ch *channel) publish(args []byte) error {
	exchange, key, mandatory, immediate, err := amqp.ParsePublish(args)
	if err != nil {
		return err
	}
	if immediate {
		return amqp.Errorf(amqp.ReplyNotImplemented, "immediate=true")
	}
	r, err := ch.route(exchange, key)
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

// complete publishes the current message, which has been received. Its body lies in block.
func (ch *channel) complete(body []byte, block *block.Block) error {
	c := ch.conn
	defer ch.dropContent()
	ch.content.body = body
	if ch.content.route.info == leaseInfo {
		return ch.extend()
	}
	to, err := ch.resolve(ch.content.route)
	if err != nil {
		return err
	}
	c.published = true
	ch.counts.published++
	m := queue.Message{
		Routing: to.info, Props: ch.content.props, Body: body,
		Expiration: ch.props.expiration, Wait: ch.props.wait, Priority: ch.props.priority, Flags: ch.props.flags,
		Passes: ch.content.passes, Planned: ch.content.planned,
	}
	queues := to.targets.queues
	if c.observed {
		ch.observe(&m, queues)
	}
	cancels := ch.content.cancels && ch.content.mandatory
	if cancels {
		m.Flags |= queue.Mandatory
	}
	if ch.mode == transactional {
		return ch.txPublish(&m, queues)
	}
	if m.Flags&queue.Traced != 0 {
		ch.tracePublished(&m, leads(&m, queues), ch.contextInjected())
	}
	routed := leads(&m, queues)
	ch.counts.routed += uint64(routed)
	if routed == 0 {
		ch.unroutable(&m, ch.content.mandatory)
	}
	var publisher *channel
	if ch.mode == confirming {
		publisher = ch
		ch.seq++
		m.Seq = ch.seq
		ch.untracked = append(ch.untracked, uint32(len(queues)))
	}
	m.Block = block
	if at := ch.content.hold; at != 0 && m.Wait == 0 {
		m.Wait, m.Planned = queue.WaitUntil(at), true
	}
	if cancels {
		ch.publishCancellation(&m, queues[0])
		return nil
	}
	if len(c.acks.index.keys) > 0 && c.acks.precede(queues) {
		c.flushBatches()
	}
	c.copies += len(queues)
	c.outbox.add(queues, to.slots, publisher, &m, ch.blockRefs())
	return nil
}

// leads returns how many of the queues that a message goes to will keep it.
func leads(m *queue.Message, queues []*queue.Mailbox) int {
	n := len(queues)
	if !m.Passes || !m.Planned {
		return n
	}
	for _, q := range queues {
		if q.Config().Schedule != nil {
			n--
		}
	}
	return n
}

// blockRefs returns the blocks that the current message lies in.
func (ch *channel) blockRefs() *blockRefs {
	return &blockRefs{ch.content.held, ch.content.parts, ch.conn.block}
}

// unroutable counts a message without queues, and returns it if it is mandatory [AMQP 1.8.3.10].
func (ch *channel) unroutable(m *queue.Message, mandatory bool) {
	if !mandatory {
		ch.counts.dropped++
		return
	}
	ch.counts.returned++
	o := ch.lock()
	defer o.mu.Unlock()
	o.pending = ch.appendReturn(o.pending, m)
	o.kick()
}

func (ch *channel) appendReturn(b []byte, m *queue.Message) []byte {
	b = amqp.AppendMethod(b, ch.id, &amqp.BasicReturn{
		ReplyCode: amqp.ReplyNoRoute, ReplyText: "NO_ROUTE", Exchange: m.Routing.Exchange, RoutingKey: m.Routing.Key,
	})
	b = amqp.AppendContentHeader(b, ch.id, uint64(len(m.Body)), m.Props)
	return amqp.AppendBody(b, ch.id, m.Body, ch.conn.frameMax)
}

// flushBatches passes the messages collected by Feed to their queues, because the next action must not overtake them.
func (c *Conn) flushBatches() {
	for _, ch := range c.dirty {
		ch.trackConfirms()
	}
	c.handOver()
}

// handOver passes queues their messages, and then their settlements. If a consumer publishes a result before it acknowledges the delivery, the
// result is in its queue first.
func (c *Conn) handOver() {
	consumers, log := c.outbox.flush()
	if consumers != nil {
		c.consumersCaughtUp = consumers
	}
	if log != nil {
		c.logCaughtUp = log
	}
	c.acks.flush()
}

// flush carries out everything that Feed collected. Queues get published messages before settlements.
func (c *Conn) flush() {
	incomplete := c.dirty[:0]
	for _, ch := range c.dirty {
		ch.trackConfirms()
		ch.counts.share(&ch.sharedCounts)
		ch.keepContent()
		if ch.dirty = ch.content.stage != awaitMethod; ch.dirty {
			incomplete = append(incomplete, ch)
		}
	}
	clear(c.dirty[len(incomplete):])
	c.dirty = incomplete
	c.handOver()
	c.wakeBelowLimit()
}
