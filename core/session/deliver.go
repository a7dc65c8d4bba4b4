package session

import (
	"time"

	"github.com/curfewmq/curfew/core/amqp"
	"github.com/curfewmq/curfew/core/auth"
	"github.com/curfewmq/curfew/core/queue"
	"github.com/curfewmq/curfew/sdk/hook"
)

// consumer is a consumer of a channel, or the consumer that stands for basic.get. Its exported fields are the queue's.
// It implements [queue.Sink].
type consumer struct {
	queue.Consumer
	channel   *deliveries
	timeout   time.Duration // time to acknowledge a delivery; 0 means any time, a negative value the broker's default
	lease     time.Duration // lease of its deliveries; 0 means any time, a negative value the queue's
	arguments amqp.Table    // of basic.consume
	exempt    bool          // does not count against the channel's global prefetch
	tooLarge  error         // of basic.get: the reason why it got no message; belongs to the queue's turn

	// Guarded by the lock of the connection's out.
	consumeOKDone bool     // consume-ok was sent, or the client does not want it
	served        uint64   // the connection's delivery number of the last delivery to this consumer
	leaseTags     []uint64 // tags at which its deliveries switched between with and without a lease, starting with "with": policies change that
}

var _ queue.Sink = (*consumer)(nil)

func (cs *consumer) Deliver(now hook.Instant, _ *queue.Consumer, ds []queue.Delivery) int {
	n := cs.take(now, ds)
	if o := &cs.channel.observer; n > 0 && o.copies() { // the reader writes to it: see observer
		o.copyDelivered(cs.channel.out.id, cs.Queue.Config().Name, ds[:n]...)
	}
	return n
}

// take writes deliveries while there is capacity. It stops before one that does not fit the connection's frames.
func (cs *consumer) take(now hook.Instant, ds []queue.Delivery) (n int) {
	d := cs.channel
	o := d.out.lock()
	defer o.mu.Unlock()
	if d.out.closed {
		return 0
	}
	cs.sendConsumeOK()
	n, fits := cs.write(ds)
	if n > 0 {
		d.unsettled.beginLeases(cs, now, n)
	}
	if n < len(ds) && fits {
		d.credit.stall(cs)
	}
	o.kick()
	return n
}

// Takes implements [queue.Sink]. A closed channel does not claim that a delivery is too large.
func (cs *consumer) Takes(_ *queue.Consumer, d *queue.Delivery) bool {
	out := cs.channel.out
	o := out.lock()
	defer o.mu.Unlock()
	return out.closed || out.fit(d)
}

// write writes deliveries and returns how many it has written. fits is false if the next one is too large for the connection's frames. The
// caller holds out's lock.
func (cs *consumer) write(ds []queue.Delivery) (n int, fits bool) {
	d := cs.channel
	for n < len(ds) && !d.out.buf.full() && d.credit.allows(cs) {
		if !d.out.fit(&ds[n]) {
			return n, false
		}
		d.deliver(cs, &ds[n])
		n++
	}
	return n, true
}

// errTooLarge returns the error for a channel whose frames are too small for a message: the message's publisher had a larger frame-max.
func (cs *consumer) errTooLarge(d *queue.Delivery) *amqp.Error {
	cfg, frameMax := cs.Queue.Config(), cs.channel.out.frameMax
	return amqp.Errorf(amqp.ReplyPreconditionFailed, "the headers of a message in queue '%s' in vhost '%s' have %d bytes: too many for frame_max = %d",
		cfg.Name, cfg.VHost, len(d.Props), frameMax)
}

func (cs *consumer) Capacity(*queue.Consumer) (messages, bytes int) {
	d := cs.channel
	o := d.out.lock()
	defer o.mu.Unlock()
	if d.out.closed {
		return 0, 0
	}
	if o.full() || !d.credit.allows(cs) {
		d.credit.stall(cs)
		return 0, 0
	}
	return d.credit.of(cs), maxDeliveryBuffer - o.size()
}

// sendConsumeOK sends consume-ok once, before the first delivery. The caller holds out's lock.
func (cs *consumer) sendConsumeOK() {
	if !cs.consumeOKDone {
		cs.consumeOKDone = true
		out := cs.channel.out
		out.buf.send(out.id, &amqp.BasicConsumeOK{ConsumerTag: cs.Tag})
	}
}

// deliverOverhead is the size of the method frame without names.
const deliverOverhead = amqp.FrameOverhead + 16

// deliver writes one delivery. The caller holds out's lock.
func (d *deliveries) deliver(cs *consumer, m *queue.Delivery) {
	o, id, frameMax := d.out.buf, d.out.id, d.out.frameMax
	before := o.size()
	size := deliverOverhead + len(cs.Tag) + len(m.Exchange) + len(m.Key) + contentOverhead + len(m.Props)
	if whole := size + amqp.BodyFramesSize(len(m.Body), frameMax); whole <= largestChunk && !o.refersTo(m) {
		size = whole
	}
	o.reserve(size)
	o.served++
	cs.served = o.served
	o.pending = amqp.AppendDeliver(o.pending, id, cs.Tag, d.unsettled.add(cs, m), m.Redelivered, m.Exchange, m.Key)
	o.appendContent(id, m, frameMax)
	o.delivered += o.size() - before
	if m.Traced {
		d.observer.delivered(cs.Queue.Config().Name, cs.Tag, m)
	}
}

func (cs *consumer) Stopped(_ *queue.Consumer, why *queue.StoppedError) {
	cs.channel.out.fail(errStopped(why).In(amqp.ClassBasic, amqp.MethodBasicConsume))
}

func (cs *consumer) Cancelled(*queue.Consumer) {
	d := cs.channel
	o := d.out.lock()
	defer o.mu.Unlock()
	if d.out.closed || !d.consumers.has(cs) {
		return
	}
	d.drop(cs)
	d.consumers.cancelled(cs)
}

func (d *deliveries) get(m *amqp.BasicGet) error {
	name, err := d.topology.permittedQueue(auth.Read, m.Queue)
	if err != nil {
		return err
	}
	mailbox, err := d.vhost.Queue(name, d.topology.connection())
	if err != nil {
		return err
	}
	if cfg := mailbox.Config(); cfg.SingleActive && cfg.Kind == queue.Quorum {
		return amqp.Errorf(amqp.ReplyResourceLocked, "cannot obtain access to locked queue '%s' in vhost '%s'. "+
			"basic.get operations are not supported by quorum queues with single active consumer", cfg.Name, cfg.VHost)
	}
	cs := d.consumers.forGet(d, mailbox, m.NoAck)
	got := false
	var stopped *queue.StoppedError
	cs.tooLarge = nil
	deleted := mailbox.Do(func(q *queue.Queue, now hook.Instant) {
		stopped = q.Stopped()
		got = q.Get(now, &cs.Consumer, func(m queue.Delivery, remaining int) {
			d.out.fit(&m)
			d.sendGetOK(now, cs, &m, remaining)
			if d.observer.copies() {
				d.observer.copyDelivered(d.out.id, mailbox.Config().Name, m)
			}
		})
	})
	switch {
	case deleted != nil:
		return d.vhost.NoQueue(name)
	case stopped != nil:
		return errStopped(stopped)
	case cs.tooLarge != nil:
		return cs.tooLarge
	case !got:
		o := d.out.lock()
		defer o.mu.Unlock()
		d.unsettled.countEmptyGet(cs)
		o.send(d.out.id, &amqp.BasicGetEmpty{})
	}
	return nil
}

// fitsGet implements Fit of [queue.Consumer]. A message that fits only the frames of other
// consumers stays in the queue, and closes the channel.
func (cs *consumer) fitsGet(d *queue.Delivery) (fits, others bool) {
	if cs.channel.out.fit(d) {
		return true, true
	}
	if others = len(d.Props) <= cs.channel.srv.propsMax(); others {
		cs.tooLarge = cs.errTooLarge(d)
	}
	return false, others
}

// sendGetOK answers with a message. The queue's turn calls it.
func (d *deliveries) sendGetOK(now hook.Instant, cs *consumer, m *queue.Delivery, remaining int) {
	o := d.out.lock()
	defer o.mu.Unlock()
	o.pending = amqp.AppendMethod(o.pending, d.out.id, &amqp.BasicGetOK{
		DeliveryTag: d.unsettled.add(cs, m), Redelivered: m.Redelivered,
		Exchange: string(m.Exchange), RoutingKey: string(m.Key), MessageCount: count32(remaining),
	})
	d.unsettled.beginLeases(cs, now, 1)
	o.appendContent(d.out.id, m, d.out.frameMax)
	if m.Traced {
		d.observer.delivered(cs.Queue.Config().Name, cs.Tag, m)
	}
	o.kick()
}

// count32 limits a count to the range of the protocol's 32-bit fields.
func count32(n int) uint32 { return uint32(min(uint64(n), 1<<32-1)) }
