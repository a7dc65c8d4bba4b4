package session

import (
	"slices"

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
	ch.conn.acks.addOne(kind, s)
	return nil
}

func unknownTag(tag uint64) error { return precondition("unknown delivery tag %d", tag) }

func (ch *channel) takeOne(kind queue.SettleKind, tag uint64) (s queue.PendingAck, ok bool) {
	o := &ch.conn.out
	o.mu.Lock()
	defer o.mu.Unlock()
	if s, ok = ch.unacked.take(tag); ok {
		ch.countSettled(kind, s)
	}
	return s, ok
}

func (ch *channel) settleUpTo(kind queue.SettleKind, tag uint64) error {
	c := ch.conn
	ts, ok := ch.takeUpTo(kind, tag, c.tagBuf[:0])
	if !ok {
		return unknownTag(tag)
	}
	if ch.mode == transactional {
		ch.tx.settle(kind, ts...)
	} else {
		c.acks.add(kind, ts)
	}
	clear(ts)
	if cap(ts) <= maxRetainedAcks {
		c.tagBuf = ts[:0]
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
		ch.countSettled(kind, ts[i].PendingAck)
	}
	return ts, ok
}

// countSettled counts a delivery that the client has settled. In a transaction that makes no room before it is committed. The
// caller holds out's lock.
func (ch *channel) countSettled(kind queue.SettleKind, s queue.PendingAck) {
	if ch.mode != transactional {
		ch.returnCredit(s)
	}
	ch.counters.countSettled(kind, s)
}

// returnCredit makes room below the channel's limit. The caller holds out's lock.
func (ch *channel) returnCredit(s queue.PendingAck) {
	if !counts(s.Consumer) {
		return
	}
	ch.inFlight--
	if len(ch.atLimit) > 0 {
		ch.limitRaised()
	}
}

// limitRaised lets the consumers that the channel's limit stalled be woken, as far as there is room. The caller holds out's
// lock.
func (ch *channel) limitRaised() {
	if !ch.listedBelowLimit {
		ch.listedBelowLimit = true
		ch.conn.belowLimit = append(ch.conn.belowLimit, ch)
	}
}

// wakeBelowLimit wakes consumers that the limits of channels had stalled, one after another until there is no room again: so
// each gets its share, whichever queue it is at.
func (c *Conn) wakeBelowLimit() {
	for i, ch := range c.belowLimit {
		for s := ch.takeAtLimit(); s != nil; s = ch.takeAtLimit() {
			s.Wake()
		}
		ch.listedBelowLimit = false
		c.belowLimit[i] = nil
	}
	c.belowLimit = c.belowLimit[:0]
}

// takeAtLimit takes the consumer out of the line that was served the longest time ago, if there is room for its delivery.
func (ch *channel) takeAtLimit() *consumer {
	o := &ch.conn.out
	o.mu.Lock()
	defer o.mu.Unlock()
	if len(ch.atLimit) == 0 || !ch.hasCredit() {
		return nil
	}
	s := ch.atLimit[0]
	ch.atLimit = slices.Delete(ch.atLimit, 0, 1)
	return s
}
