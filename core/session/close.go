package session

import (
	"errors"

	"github.com/curfewmq/curfew/core/amqp"
	"github.com/curfewmq/curfew/core/queue"
	"github.com/curfewmq/curfew/sdk/hook"
)

// closeByPeer answers connection.close, as often as it comes. The client's exclusive queues are deleted before it gets close-ok. The
// client closes the socket.
func (c *Conn) closeByPeer(m *amqp.ConnectionClose) {
	switch {
	case c.phase == closing:
	case m.ReplyCode != amqp.ReplySuccess:
		c.log().Warn("client closed the connection", "code", m.ReplyCode, "text", m.ReplyText)
	default:
		c.log().Info("connection closed", "user", c.user.Name)
	}
	c.round.flush()
	c.leave()
	c.out.postLast(&amqp.ConnectionCloseOK{})
	c.phase = closing
}

// fail ends the connection for err. A client that has not logged in gets no answer, unless its login was refused and it
// understands the answer.
func (c *Conn) fail(err error) {
	var e *amqp.Error
	if !errors.As(err, &e) {
		c.log().Error("internal error", "error", err)
		e = amqp.Errorf(amqp.ReplyInternalError, "see the broker logfile")
	}
	if c.phase >= closing {
		return
	}
	if c.phase < awaitLogin {
		c.warnOfStranger("connection error", "state", c.phase.String(), "error", e)
	} else {
		c.log().Warn("connection error", "state", c.phase.String(), "error", e)
	}
	answered := (e.Code == amqp.ReplyAccessRefused || e.Code == amqp.ReplyConnectionForced) && c.caps.authFailureClose
	if c.phase <= awaitLogin && !answered {
		c.phase = denied
		return
	}
	c.close(e)
}

// close gives back everything that the connection holds, and sends connection.close as the last frame.
func (c *Conn) close(e *amqp.Error) {
	c.round.flush()
	c.phase, c.closedFor = closing, e
	c.leave()
	c.out.postLast(&amqp.ConnectionClose{ReplyCode: e.Code, ReplyText: e.ReplyText(), ClassID: e.Class, MethodID: e.Method})
}

// finish ends the connection after the pending bytes are written.
func (c *Conn) finish() {
	c.phase = closed
	c.out.mu.Lock()
	defer c.out.mu.Unlock()
	c.out.end()
}

// End tells a closing connection that its peer has closed its side.
func (c *Conn) End() {
	if c.phase == closing {
		c.finish()
	}
}

// Shutdown closes the connection for a reason that lies in the broker.
func (c *Conn) Shutdown(now hook.Instant, reason string) {
	c.round.tick(now.Add(c.offset))
	switch {
	case c.phase >= closing:
	case c.phase <= awaitLogin:
		c.finish()
	default:
		c.close(amqp.Errorf(amqp.ReplyConnectionForced, "broker forced connection closure with reason '%s'", reason))
	}
}

// Evict makes Tick close the connection, because its vhost, its user or a permission is gone. The client gets the reason verbatim.
// Any goroutine may call Evict; it does not wait.
func (c *Conn) Evict(reason string) {
	if c.evicted.CompareAndSwap(nil, &reason) {
		c.wake()
	}
}

// Release ends the connection after its socket has been closed. Feed must not be called any more.
func (c *Conn) Release(now hook.Instant) {
	c.round.tick(now.Add(c.offset))
	c.phase = closed
	c.out.close()
	c.leave()
}

// leave gives back everything that the connection holds in the broker: unacknowledged messages, consumers, exclusive queues. It sends
// nothing.
func (c *Conn) leave() {
	c.ended.Store(true)
	closeChannels(&c.round, c.channels.all()...)
	c.channels.clear()
	c.membership.leave()
}

// Lost logs why the socket failed, if the connection did not end in good order.
func (c *Conn) Lost(why error) {
	switch {
	case c.phase == awaitHeader:
		c.log().Debug("closed before the handshake", "reason", why)
	case c.phase == relayed:
		c.log().Warn("connection lost", "user", c.user.Name, "vhost", c.wanted, "reason", why)
	case c.phase < awaitLogin:
		c.warnOfStranger("connection lost in the handshake", "state", c.phase.String(), "reason", why)
	case c.phase < running:
		c.log().Warn("connection lost in the handshake", "state", c.phase.String(), "reason", why)
	case c.phase == running:
		c.log().Warn("connection lost", "user", c.user.Name, "vhost", c.vhost.Name(), "reason", why)
	}
}

// endOfConsumers lists the consumers and unacknowledged messages of closing channels at one queue.
type endOfConsumers struct {
	queue     *queue.Mailbox
	consumers []*queue.Consumer
	unacked   []queue.PendingAck
}

// closeChannels closes channels together, so that none of them receives a message that
// another one gives back: such a message would move from channel to channel, and every
// delivery counts. A queue loses all these consumers and gets back their messages in one
// step, so that the messages stay in order for its other consumers.
func closeChannels(r *round, channels ...*channel) {
	var index keyIndex[*queue.Mailbox]
	var ends []endOfConsumers
	of := func(q *queue.Mailbox) *endOfConsumers {
		i, added := index.find(q)
		if added {
			ends = append(ends, endOfConsumers{queue: q})
		}
		return &ends[i]
	}
	for _, ch := range channels {
		if ch == nil || ch.outlet.closed {
			continue
		}
		consumers, unacked := ch.stopDeliveries()
		ch.publisher.dropContent()
		ch.reply.close()
		for _, cs := range consumers {
			e := of(cs.Queue)
			e.consumers = append(e.consumers, &cs.Consumer)
		}
		for _, t := range append(unacked, ch.abandon()...) {
			e := of(t.Consumer.Queue)
			e.unacked = append(e.unacked, t.PendingAck)
		}
	}
	r.flush() // earlier settlements
	for i := range ends {
		ends[i].carryOut()
	}
}

// carryOut returns after the last delivery to the consumers.
func (e *endOfConsumers) carryOut() {
	if len(e.consumers) == 0 {
		e.queue.Settle(queue.Return, e.unacked)
		return
	}
	// An error means that the queue was deleted, and everything in it.
	_ = e.queue.Do(func(q *queue.Queue, now hook.Instant) { q.RemoveConsumers(now, e.unacked, e.consumers...) })
}

// stopDeliveries ends deliveries and confirms, and returns the channel's consumers and unsettled deliveries.
func (ch *channel) stopDeliveries() (consumers map[string]*consumer, unsettled []taggedAck) {
	ch.publisher.share()
	o := ch.outlet.lock()
	defer o.mu.Unlock()
	own := ch.allCounters()
	consumers, unsettled = ch.deliveries.stop()
	ch.publisher.confirms.stop()
	ch.outlet.closed = true
	ch.conn.srv.channelClosed(ch.conn.vhost.Name(), &own)
	return consumers, unsettled
}
