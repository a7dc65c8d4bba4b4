package session

import (
	"cmp"
	"math"
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

// nack requeues messages, or rejects them so that they may be dead-lettered [RabbitMQ: nack.html].
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

// reject is nack for one message. Unlike nack, it counts a requeued message as a failed delivery.
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

// settle settles one delivery or, if multiple is set, every delivery up to tag; tag 0 then means all of them.
func (ch *channel) settle(kind queue.SettleKind, tag uint64, multiple bool) error {
	if multiple {
		return ch.settleUpTo(kind, tag)
	}
	ack, ok := ch.takeOne(kind, tag)
	if !ok {
		return ch.settleEnded(tag)
	}
	if ch.mode == transactional {
		ch.tx.settle(kind, taggedAck{tag, ack})
		return nil
	}
	ch.conn.acks.addOne(kind, ack)
	return nil
}

// settleEnded ignores the settlement of a delivery whose lease has ended, and returns an error for any other. In a transaction the tag is
// kept, because the settlement may come again after a rollback.
func (ch *channel) settleEnded(tag uint64) error {
	if ch.mode == transactional && ch.ended.has(tag) || ch.ended.take(tag) {
		return nil
	}
	return unknownTag(tag)
}

func unknownTag(tag uint64) error { return precondition("unknown delivery tag %d", tag) }

func (ch *channel) takeOne(kind queue.SettleKind, tag uint64) (ack queue.PendingAck, ok bool) {
	o := ch.lock()
	defer o.mu.Unlock()
	if ack, ok = ch.unacked.take(tag); ok {
		ch.countSettled(kind, ack)
	}
	return ack, ok
}

func (ch *channel) settleUpTo(kind queue.SettleKind, tag uint64) error {
	c := ch.conn
	acks, ok := ch.takeUpTo(kind, tag, c.tagBuf[:0])
	if !ok {
		return unknownTag(tag)
	}
	if ch.mode == transactional {
		ch.tx.settle(kind, acks...)
	} else {
		c.acks.add(kind, acks)
	}
	c.retain(acks)
	if ch.mode != transactional {
		ch.ended.takeThrough(cmp.Or(tag, math.MaxUint64))
	}
	return nil
}

// retain keeps a slice for reuse as tagBuf, unless it is large.
func (c *Conn) retain(acks []taggedAck) {
	clear(acks)
	if cap(acks) <= maxRetainedAcks {
		c.tagBuf = acks[:0]
	}
}

func (ch *channel) takeUpTo(kind queue.SettleKind, tag uint64, dst []taggedAck) (acks []taggedAck, ok bool) {
	o := ch.lock()
	defer o.mu.Unlock()
	switch {
	case tag == 0:
		acks, ok = ch.unacked.takeAll(dst), true
	case ch.ended.has(tag):
		acks, ok = ch.unacked.takeThrough(tag, dst), true
	default:
		acks, ok = ch.unacked.takeUpTo(tag, dst)
	}
	for i := range acks {
		ch.countSettled(kind, acks[i].PendingAck)
	}
	return acks, ok
}

// countSettled counts a delivery that the client has settled. In a transaction its credit returns with the commit. The caller
// holds out's lock.
func (ch *channel) countSettled(kind queue.SettleKind, ack queue.PendingAck) {
	if ch.mode != transactional {
		ch.returnCredit(ack)
	}
	ch.counters.countSettled(kind, ack)
}

// requeueAll implements basic.recover: it requeues every unacknowledged message of the channel [AMQP 1.8.3.16]. If answer is nil,
// it sends no answer.
func (ch *channel) requeueAll(requeue bool, answer amqp.Method) error {
	if !requeue {
		return amqp.Errorf(amqp.ReplyNotImplemented, "requeue=false")
	}
	acks := ch.takeUnacked()
	if answer != nil {
		ch.send(answer)
	}
	ch.conn.acks.add(queue.Requeue, acks)
	ch.conn.flush()
	return nil
}

// takeUnacked takes every unacknowledged delivery, except deliveries that are settled in an open transaction.
func (ch *channel) takeUnacked() []taggedAck {
	o := ch.lock()
	defer o.mu.Unlock()
	acks := ch.unacked.takeAll(nil)
	for i := range acks {
		ch.returnCredit(acks[i].PendingAck)
	}
	return acks
}

// ackBatches collects settlements by queue and kind, so that each queue gets its settlements at once.
type ackBatches struct {
	index   keyIndex[ackKey]
	batches [][]queue.PendingAck // by position in index; further ones are empty, and kept to reuse their memory
}

type ackKey struct {
	queue *queue.Mailbox
	kind  queue.SettleKind
}

func (b *ackBatches) add(kind queue.SettleKind, acks []taggedAck) {
	for i := range acks {
		b.addOne(kind, acks[i].PendingAck)
	}
}

func (b *ackBatches) addOne(kind queue.SettleKind, ack queue.PendingAck) {
	i, _ := b.index.find(ackKey{ack.Consumer.Queue, kind})
	if i == len(b.batches) {
		b.batches = append(b.batches, nil)
	}
	b.batches[i] = append(b.batches[i], ack)
}

// precede reports whether one of the queues has collected settlements that its plugins must see before a message enters.
func (b *ackBatches) precede(queues []*queue.Mailbox) bool {
	for _, q := range queues {
		if q.SettlesFirst() && slices.ContainsFunc(b.index.keys, func(k ackKey) bool { return k.queue == q }) {
			return true
		}
	}
	return false
}

const (
	maxRetainedAcks    = 4096 // of one batch
	maxRetainedBatches = 64
)

// flush hands every queue its settlements.
func (b *ackBatches) flush() {
	for i, key := range b.index.keys {
		batch := b.batches[i]
		key.queue.Settle(key.kind, batch)
		clear(batch)
		if cap(batch) > maxRetainedAcks {
			batch = nil
		}
		b.batches[i] = batch[:0]
	}
	b.index.reset()
	if len(b.batches) > maxRetainedBatches {
		b.batches = nil
	}
}
