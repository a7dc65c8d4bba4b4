package session

import (
	"github.com/curfewmq/curfew/core/amqp"
	"github.com/curfewmq/curfew/core/auth"
	"github.com/curfewmq/curfew/core/queue"
	"github.com/curfewmq/curfew/sdk/hook"
)

// get fetches one message.
func (ch *channel) get(m *amqp.BasicGet) error {
	name, err := ch.queueName(m.Queue)
	if err != nil {
		return err
	}
	if err := ch.conn.mayQueue(auth.Read, name); err != nil {
		return err
	}
	shell, err := ch.conn.vhost.Queue(name, ch.conn.id)
	if err != nil {
		return err
	}
	if cfg := shell.Config(); cfg.SingleActive && cfg.Kind == queue.Quorum {
		return amqp.Errorf(amqp.ReplyResourceLocked, "cannot obtain access to locked queue '%s' in vhost '%s'. "+
			"basic.get operations are not supported by quorum queues with single active consumer", cfg.Name, cfg.VHost)
	}
	s := ch.fetcher(shell, m.NoAck)
	got := false
	var halt *queue.StoppedError
	var large error
	var held []queue.PendingAck
	gone := shell.Do(func(q *queue.Queue, now hook.Instant) {
		halt = q.Stopped()
		got = q.Get(now, &s.Consumer, func(d queue.Delivery, remaining int) {
			if !ch.fit(&d) {
				large = s.errTooLarge(&d)
				s.NoAck = false // nobody has it: it comes back
				held = []queue.PendingAck{{Ref: d.Ref}}
				return
			}
			ch.fetched(s, &d, remaining)
			if ch.conn.tracing() {
				s.copyDelivered(d)
			}
		})
	})
	switch {
	case gone != nil:
		return ch.conn.vhost.NoQueue(name)
	case halt != nil:
		return errStopped(halt)
	case large != nil:
		shell.Settle(queue.Requeue, held)
		return large
	case !got:
		ch.sendEmpty(s)
	}
	return nil
}

func (ch *channel) sendEmpty(s *consumer) {
	o := &ch.conn.out
	o.mu.Lock()
	defer o.mu.Unlock()
	ch.counters.Deliveries[s.Type][GetEmpty]++
	o.pending = amqp.AppendMethod(o.pending, ch.id, &amqp.BasicGetEmpty{})
	o.kick()
}

// fetcher is what stands for the consumer of fetched messages. It is never added to the queue.
func (ch *channel) fetcher(shell *queue.Mailbox, noAck bool) *consumer {
	if s := ch.getter; s != nil && s.Queue == shell && s.NoAck == noAck {
		return s
	}
	ch.getter = &consumer{channel: ch, timeout: -1, Consumer: queue.Consumer{Queue: shell, NoAck: noAck, Type: queue.TypeOf(shell.Config().Kind)}}
	return ch.getter
}

// fetched answers with a message. It is called from the queue's turn.
func (ch *channel) fetched(s *consumer, d *queue.Delivery, remaining int) {
	o := &ch.conn.out
	o.mu.Lock()
	defer o.mu.Unlock()
	o.pending = amqp.AppendMethod(o.pending, ch.id, &amqp.BasicGetOK{
		DeliveryTag: ch.tag(s, d), Redelivered: d.Redelivered,
		Exchange: string(d.Exchange), RoutingKey: string(d.Key), MessageCount: count32(remaining),
	})
	o.appendContent(ch.id, d, ch.conn.frameMax)
	if d.Traced {
		ch.traceDelivered(s, d)
	}
	o.kick()
}

// count32 is a count as it fits a field of the protocol.
func count32(n int) uint32 { return uint32(min(uint64(n), 1<<32-1)) }
