package session

import (
	"cmp"
	"iter"
	"math"
	"slices"
	"time"

	"github.com/curfewmq/curfew/core/amqp"
	"github.com/curfewmq/curfew/core/queue"
	"github.com/curfewmq/curfew/sdk/hook"
)

// unsettled is a channel's part with the deliveries that the client has not settled: their tags, leases and timeouts.
type unsettled struct {
	*shared
	out       *outlet
	tx        *transaction
	credit    *credit
	consumers *consumers
	ended     endedTags // tags of deliveries that came back at the end of their lease; belongs to the reader

	// Guarded by out's lock.
	tags     unacked
	times    tagTimes // when deliveries were made, roughly
	leases   *leases  // nil before the first delivery that has one
	counters Counters
}

func (d *deliveries) ack(args []byte) error {
	tag, multiple, err := amqp.ParseAck(args)
	if err != nil {
		return err
	}
	return d.unsettled.settle(queue.Ack, tag, multiple)
}

// nack requeues messages, or rejects them so that they may be dead-lettered [RabbitMQ: nack.html].
func (d *deliveries) nack(args []byte) error {
	tag, multiple, requeue, err := amqp.ParseNack(args)
	if err != nil {
		return err
	}
	if requeue {
		return d.unsettled.settle(queue.Requeue, tag, multiple)
	}
	return d.unsettled.settle(queue.Reject, tag, multiple)
}

// reject is nack for one message. Unlike nack, it counts a requeued message as a failed delivery.
func (d *deliveries) reject(args []byte) error {
	tag, requeue, err := amqp.ParseReject(args)
	if err != nil {
		return err
	}
	if requeue {
		return d.unsettled.settle(queue.Return, tag, false)
	}
	return d.unsettled.settle(queue.Reject, tag, false)
}

// add returns the tag of a delivery to a consumer, and adds the delivery if it awaits
// settlement. The caller holds out's lock.
func (u *unsettled) add(cs *consumer, d *queue.Delivery) uint64 {
	u.counters.countDelivery(cs, d.Redelivered)
	if cs.NoAck {
		return u.tags.skip()
	}
	u.credit.take(&cs.Consumer)
	return u.tags.push(queue.PendingAck{Ref: d.Ref, Consumer: &cs.Consumer})
}

// countEmptyGet counts a basic.get that found no message. The caller holds out's lock.
func (u *unsettled) countEmptyGet(cs *consumer) { u.counters.Deliveries[cs.Type][GetEmpty]++ }

// counted returns the counters. The caller holds out's lock.
func (u *unsettled) counted() Counters { return u.counters }

// count returns the number of unsettled deliveries. The caller holds out's lock.
func (u *unsettled) count() int { return u.tags.count() }

// all yields the unsettled deliveries in order. The caller holds out's lock.
func (u *unsettled) all() iter.Seq[taggedAck] { return u.tags.between(0, u.tags.next+1) }

// settle settles one delivery or, if multiple is set, every delivery up to tag; tag 0 then means all of them.
func (u *unsettled) settle(kind queue.SettleKind, tag uint64, multiple bool) error {
	if multiple {
		return u.settleUpTo(kind, tag)
	}
	ack, ok := u.takeOne(kind, tag)
	if !ok {
		return u.settleEnded(tag)
	}
	if u.tx.isOn() {
		u.tx.settle(kind, taggedAck{tag, ack})
		return nil
	}
	u.round.settle(kind, ack)
	return nil
}

// settleEnded ignores the settlement of a delivery whose lease has ended, and returns an
// error for any other. In a transaction the tag is kept, because the settlement may come
// again after a rollback.
func (u *unsettled) settleEnded(tag uint64) error {
	if u.tx.isOn() && u.ended.has(tag) || u.ended.take(tag) {
		return nil
	}
	return unknownTag(tag)
}

func unknownTag(tag uint64) error { return precondition("unknown delivery tag %d", tag) }

func (u *unsettled) takeOne(kind queue.SettleKind, tag uint64) (ack queue.PendingAck, ok bool) {
	o := u.out.lock()
	defer o.mu.Unlock()
	if ack, ok = u.tags.take(tag); ok {
		u.countSettled(kind, ack)
	}
	return ack, ok
}

func (u *unsettled) settleUpTo(kind queue.SettleKind, tag uint64) error {
	acks, ok := u.takeUpTo(kind, tag, u.round.tags())
	if !ok {
		return unknownTag(tag)
	}
	transactional := u.tx.isOn()
	if transactional {
		u.tx.settle(kind, acks...)
	} else {
		u.round.settleAll(kind, acks)
	}
	u.round.retain(acks)
	if !transactional {
		u.ended.takeThrough(cmp.Or(tag, math.MaxUint64))
	}
	return nil
}

func (u *unsettled) takeUpTo(kind queue.SettleKind, tag uint64, dst []taggedAck) (acks []taggedAck, ok bool) {
	o := u.out.lock()
	defer o.mu.Unlock()
	switch {
	case tag == 0:
		acks, ok = u.tags.takeAll(dst), true
	case u.ended.has(tag):
		acks, ok = u.tags.takeThrough(tag, dst), true
	default:
		acks, ok = u.tags.takeUpTo(tag, dst)
	}
	for i := range acks {
		u.countSettled(kind, acks[i].PendingAck)
	}
	return acks, ok
}

// countSettled counts a delivery that the client has settled. In a transaction its credit
// returns with the commit. The caller holds out's lock.
func (u *unsettled) countSettled(kind queue.SettleKind, ack queue.PendingAck) {
	if !u.tx.isOn() {
		u.credit.giveBack(ack)
	}
	u.counters.countSettled(kind, ack)
}

// committed returns the credit of deliveries that a transaction has settled.
func (u *unsettled) committed(settles []pendingSettle) {
	o := u.out.lock()
	defer o.mu.Unlock()
	for i := range settles {
		u.credit.giveBack(settles[i].PendingAck)
	}
}

// restore makes deliveries of a transaction unsettled again.
func (u *unsettled) restore(acks []taggedAck) {
	o := u.out.lock()
	defer o.mu.Unlock()
	u.tags.restore(acks)
}

// takeAll takes every unsettled delivery, except deliveries that are settled in an open transaction.
func (u *unsettled) takeAll() []taggedAck {
	o := u.out.lock()
	defer o.mu.Unlock()
	acks := u.tags.takeAll(nil)
	for i := range acks {
		u.credit.giveBack(acks[i].PendingAck)
	}
	return acks
}

// takeOf takes the unsettled deliveries of a consumer.
func (u *unsettled) takeOf(c *queue.Consumer) (acks []taggedAck) {
	o := u.out.lock()
	defer o.mu.Unlock()
	for t := range u.all() {
		if t.Consumer == c {
			acks = append(acks, t)
		}
	}
	for _, t := range acks {
		u.tags.take(t.tag)
		u.credit.giveBack(t.PendingAck)
	}
	return acks
}

// stop takes every unsettled delivery for good. The caller holds out's lock.
func (u *unsettled) stop() []taggedAck {
	acks := u.tags.takeAll(nil)
	u.tags, u.times, u.leases = unacked{}, nil, nil
	return acks
}

// requeueAll implements basic.recover: it requeues every unacknowledged message of the
// channel [AMQP 1.8.3.16]. If answer is nil, it sends no answer.
func (d *deliveries) requeueAll(requeue bool, answer amqp.Method) error {
	if !requeue {
		return amqp.Errorf(amqp.ReplyNotImplemented, "requeue=false")
	}
	acks := d.unsettled.takeAll()
	if answer != nil {
		d.out.send(answer)
	}
	d.round.settleAll(queue.Requeue, acks)
	d.round.flush()
	return nil
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

// any reports whether there are settlements.
func (b *ackBatches) any() bool { return len(b.index.keys) > 0 }

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

// precede reports whether one of the queues has collected settlements that its plugins must
// see before a message enters.
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

// tagTimes are the approximate times of deliveries, by tag.
type tagTimes []tagTime

// tagTime records that deliveries with lower tags were made before a certain time.
type tagTime struct {
	tag uint64
	at  hook.Instant
}

// maxTagTimes bounds the tag times of a channel.
const maxTagTimes = 128

// checkTimeouts handles deliveries that have been unacknowledged for too long
// [RabbitMQ: consumers.html#acknowledgement-timeout]. Deliveries with a lease have no other timeout.
func (d *deliveries) checkTimeouts(now hook.Instant) error {
	for {
		late, timeout := d.unsettled.overdue(now, d.srv.ConsumerTimeout)
		if late == nil {
			return nil
		}
		if late.Queue.Config().Kind != queue.Quorum || late.Sink == nil || !d.consumers.understandCancel() {
			return precondition("delivery acknowledgement on channel %d timed out. Timeout value used: %d ms. "+
				"This timeout value can be configured, see consumers doc guide to learn more", d.out.id, timeout.Milliseconds())
		}
		d.cancelLate(late)
	}
}

// cancelLate cancels a consumer and requeues its deliveries.
func (d *deliveries) cancelLate(late *queue.Consumer) {
	if cs, ok := d.consumers.lookUp(late.Tag); ok && &cs.Consumer == late {
		d.remove(cs)
		d.out.send(&amqp.BasicCancel{ConsumerTag: cs.Tag, NoWait: true})
	}
	d.round.settleAll(queue.Requeue, d.unsettled.takeOf(late))
	d.round.flush()
}

// overdue returns a consumer that has not acknowledged within its timeout, and the timeout.
// Consumers without a timeout of their own have the broker's.
func (u *unsettled) overdue(now hook.Instant, brokers time.Duration) (late *queue.Consumer, timeout time.Duration) {
	o := u.out.lock()
	defer o.mu.Unlock()
	shortest := u.consumers.shortestTimeout(brokers)
	if shortest == 0 {
		u.times = nil
		return nil, 0
	}
	u.times.add(now, u.tags.lowest(), u.tags.next+1)
	from := uint64(0)
	for _, m := range u.times {
		if now.Sub(m.at) < shortest {
			return nil, 0
		}
		for t := range u.tags.between(from, m.tag) {
			if limit := ackTimeout(t.Consumer, brokers); limit > 0 && now.Sub(m.at) >= limit && !u.leased(t) {
				return t.Consumer, limit
			}
		}
		from = m.tag
	}
	return nil, 0
}

// ackTimeout returns how long a consumer may take to acknowledge a delivery; 0 means any time.
func ackTimeout(c *queue.Consumer, brokers time.Duration) time.Duration {
	if cs, ok := c.Sink.(*consumer); ok && cs.timeout >= 0 {
		return cs.timeout
	}
	return brokers
}

// add adds the time for the next tag, and removes times below the lowest unacknowledged
// tag. 0 means that there is none.
func (ts *tagTimes) add(now hook.Instant, lowest, next uint64) {
	if lowest == 0 {
		*ts = nil
		return
	}
	all := *ts
	retained := all[:0]
	for i, m := range all {
		thin := len(all) == maxTagTimes && i%2 == 0 // the next time is close enough to stand for this one
		if m.tag > lowest && !thin {
			retained = append(retained, m)
		}
	}
	if n := len(retained); n == 0 || retained[n-1].tag < next {
		retained = append(retained, tagTime{next, now})
	}
	*ts = retained
}
