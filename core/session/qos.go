package session

import (
	"github.com/curfewmq/curfew/core/amqp"
	"github.com/curfewmq/curfew/core/queue"
)

// qos limits unacknowledged deliveries: those of each consumer to come or, with global, of the channel
// [RabbitMQ: consumer-prefetch.html].
func (ch *channel) qos(m *amqp.BasicQos) error {
	if m.PrefetchSize != 0 {
		return amqp.Errorf(amqp.ReplyNotImplemented, "prefetch_size!=0 (%d)", m.PrefetchSize)
	}
	ch.setPrefetch(m.Global, uint32(m.PrefetchCount))
	ch.send(&amqp.BasicQosOK{})
	ch.conn.wakeBelowLimit()
	return nil
}

// setPrefetch sets the limit of the whole channel, or of each consumer to come.
func (ch *channel) setPrefetch(global bool, n uint32) {
	o := &ch.conn.out
	o.mu.Lock()
	defer o.mu.Unlock()
	if !global {
		ch.prefetch = n
		return
	}
	ch.globalPrefetch = n
	ch.limitRaised()
}

// recover sends every unacknowledged message of the channel back to its queue [AMQP 1.8.3.16].
func (ch *channel) recover(m *amqp.BasicRecover) error {
	return ch.requeueAll(m.Requeue, &amqp.BasicRecoverOK{})
}

// recoverAsync is recover without an answer.
func (ch *channel) recoverAsync(m *amqp.BasicRecoverAsync) error {
	return ch.requeueAll(m.Requeue, nil)
}

func (ch *channel) requeueAll(requeue bool, answer amqp.Method) error {
	if !requeue {
		return amqp.Errorf(amqp.ReplyNotImplemented, "requeue=false")
	}
	ts := ch.takeUnacked()
	if answer != nil {
		ch.send(answer)
	}
	ch.conn.acks.add(queue.Requeue, ts)
	ch.conn.flush()
	return nil
}

// takeUnacked takes all deliveries that are unsettled, whether there is a transaction or not: it is not about them.
func (ch *channel) takeUnacked() (ts []tagged) {
	o := &ch.conn.out
	o.mu.Lock()
	defer o.mu.Unlock()
	ts = ch.unacked.takeAll(nil)
	for i := range ts {
		ch.returnCredit(ts[i].PendingAck)
		ch.counters.countSettled(queue.Requeue, ts[i].PendingAck)
	}
	return ts
}
