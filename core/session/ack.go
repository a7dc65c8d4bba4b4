package session

import (
	"github.com/curfewmq/curfew/core/amqp"
	"github.com/curfewmq/curfew/core/queue"
)

func (ch *channel) ack(args []byte) error {
	tag, multiple, err := amqp.ParseAck(args)
	if err != nil {
		return err
	}
	return ch.settle(queue.Ack, tag, multiple)
}

// nack sends messages back to their queues, or lets them be dead-lettered [RabbitMQ: nack.html].
func (ch *channel) nack(args []byte) error {
	tag, multiple, requeue, err := amqp.ParseNack(args)
	if err != nil {
		return err
	}
	if requeue {
		return ch.settle(queue.Requeue, tag, multiple)
	}
	return ch.settle(queue.Reject, tag, multiple)
}

// reject is nack for one message; to be rejected and requeued counts as a failed delivery.
func (ch *channel) reject(args []byte) error {
	tag, requeue, err := amqp.ParseReject(args)
	if err != nil {
		return err
	}
	if requeue {
		return ch.settle(queue.Return, tag, false)
	}
	return ch.settle(queue.Reject, tag, false)
}

// settle settles a delivery, or all up to it; 0 is all there are.
func (ch *channel) settle(kind queue.SettleKind, tag uint64, multiple bool) error {
	if multiple {
		return ch.settleUpTo(kind, tag)
	}
	s, ok := ch.takeOne(kind, tag)
	if !ok {
		return unknownTag(tag)
	}
	if ch.mode == transactional {
		ch.tx.settle(kind, tagged{tag, s})
		return nil
	}
	ch.conn.settling.addOne(kind, s)
	return nil
}

func unknownTag(tag uint64) error { return precondition("unknown delivery tag %d", tag) }

func (ch *channel) takeOne(kind queue.SettleKind, tag uint64) (s queue.Settled, ok bool) {
	o := &ch.conn.out
	o.mu.Lock()
	defer o.mu.Unlock()
	if s, ok = ch.unacked.take(tag); ok {
		ch.discharge(s)
		ch.tally.settled(kind, s)
	}
	return s, ok
}

func (ch *channel) settleUpTo(kind queue.SettleKind, tag uint64) error {
	c := ch.conn
	ts, ok := ch.takeUpTo(kind, tag, c.taken[:0])
	if !ok {
		return unknownTag(tag)
	}
	if ch.mode == transactional {
		ch.tx.settle(kind, ts...)
	} else {
		c.settling.add(kind, ts)
	}
	clear(ts)
	if cap(ts) <= keepSettled {
		c.taken = ts[:0]
	}
	return nil
}

func (ch *channel) takeUpTo(kind queue.SettleKind, tag uint64, dst []tagged) (ts []tagged, ok bool) {
	o := &ch.conn.out
	o.mu.Lock()
	defer o.mu.Unlock()
	if tag == 0 {
		ts, ok = ch.unacked.takeAll(dst), true
	} else {
		ts, ok = ch.unacked.takeUpTo(tag, dst)
	}
	for i := range ts {
		ch.discharge(ts[i].Settled)
		ch.tally.settled(kind, ts[i].Settled)
	}
	return ts, ok
}

// discharge makes room below the channel's limit. The caller holds out's lock.
func (ch *channel) discharge(s queue.Settled) {
	if s.Consumer.Sink == nil {
		return // it was fetched
	}
	ch.charged--
	if len(ch.blocked) > 0 {
		ch.unblock()
	}
}

// unblock lets the consumers that the channel's limit stalled be woken. The caller holds out's lock.
func (ch *channel) unblock() {
	ch.conn.awake = append(ch.conn.awake, ch.blocked...)
	clear(ch.blocked)
	ch.blocked = ch.blocked[:0]
}

// wakeBlocked wakes consumers that a channel's limit had stalled.
func (c *Conn) wakeBlocked() {
	for i, s := range c.awake {
		s.Wake()
		c.awake[i] = nil
	}
	c.awake = c.awake[:0]
}
