package session

import (
	"github.com/curfewmq/curfew/core/amqp"
	"github.com/curfewmq/curfew/core/auth"
	"github.com/curfewmq/curfew/core/queue"
	"github.com/curfewmq/curfew/sdk/hook"
)

// get handles basic.get.
func (ch *channel) get(m *amqp.BasicGet) error {
	name, err := ch.permittedQueue(auth.Read, m.Queue)
	if err != nil {
		return err
	}
	mailbox, err := ch.conn.vhost.Queue(name, ch.conn.id)
	if err != nil {
		return err
	}
	if cfg := mailbox.Config(); cfg.SingleActive && cfg.Kind == queue.Quorum {
		return amqp.Errorf(amqp.ReplyResourceLocked, "cannot obtain access to locked queue '%s' in vhost '%s'. "+
			"basic.get operations are not supported by quorum queues with single active consumer", cfg.Name, cfg.VHost)
	}
	cs := ch.getConsumer(mailbox, m.NoAck)
	got := false
	var stopped *queue.StoppedError
	cs.tooLarge = nil
	deleted := mailbox.Do(func(q *queue.Queue, now hook.Instant) {
		stopped = q.Stopped()
		got = q.Get(now, &cs.Consumer, func(d queue.Delivery, remaining int) {
			ch.fit(&d)
			ch.sendGetOK(now, cs, &d, remaining)
			if ch.conn.tracing() {
				cs.copyDelivered(d)
			}
		})
	})
	switch {
	case deleted != nil:
		return ch.conn.vhost.NoQueue(name)
	case stopped != nil:
		return errStopped(stopped)
	case cs.tooLarge != nil:
		return cs.tooLarge
	case !got:
		o := ch.lock()
		defer o.mu.Unlock()
		ch.counters.Deliveries[cs.Type][GetEmpty]++
		o.send(ch.id, &amqp.BasicGetEmpty{})
	}
	return nil
}

// getConsumer returns the consumer that stands for basic.get at a queue. It is never added to the queue.
func (ch *channel) getConsumer(mailbox *queue.Mailbox, noAck bool) *consumer {
	if cs := ch.getter; cs != nil && cs.Queue == mailbox && cs.NoAck == noAck {
		return cs
	}
	cs := &consumer{channel: ch, timeout: -1, lease: -1, Consumer: queue.Consumer{Queue: mailbox, NoAck: noAck, Type: queue.TypeOf(mailbox.Config().Kind)}}
	cs.Fit = cs.fitsGet
	ch.getter = cs
	return cs
}

// fitsGet implements Fit of [queue.Consumer]. A message that fits only the frames of other consumers stays in the queue, and closes the channel.
func (cs *consumer) fitsGet(d *queue.Delivery) (fits, others bool) {
	if cs.channel.fit(d) {
		return true, true
	}
	if others = len(d.Props) <= cs.channel.conn.srv.propsMax(); others {
		cs.tooLarge = cs.errTooLarge(d)
	}
	return false, others
}

// sendGetOK answers with a message. The queue's turn calls it.
func (ch *channel) sendGetOK(now hook.Instant, cs *consumer, d *queue.Delivery, remaining int) {
	o := ch.lock()
	defer o.mu.Unlock()
	o.pending = amqp.AppendMethod(o.pending, ch.id, &amqp.BasicGetOK{
		DeliveryTag: ch.tag(cs, d), Redelivered: d.Redelivered,
		Exchange: string(d.Exchange), RoutingKey: string(d.Key), MessageCount: count32(remaining),
	})
	cs.beginLeases(now, 1)
	o.appendContent(ch.id, d, ch.conn.frameMax)
	if d.Traced {
		ch.traceDelivered(cs, d)
	}
	o.kick()
}

// count32 limits a count to the range of the protocol's 32-bit fields.
func count32(n int) uint32 { return uint32(min(uint64(n), 1<<32-1)) }
