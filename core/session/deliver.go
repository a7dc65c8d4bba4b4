package session

import (
	"slices"
	"time"

	"github.com/curfewmq/curfew/core/amqp"
	"github.com/curfewmq/curfew/core/death"
	"github.com/curfewmq/curfew/core/queue"
	"github.com/curfewmq/curfew/sdk/hook"
)

// consumer is a consumer of a channel, or the consumer that stands for basic.get. Its exported fields are the queue's.
type consumer struct {
	queue.Consumer
	channel   *channel
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

// Deliver implements [queue.Sink].
func (cs *consumer) Deliver(now hook.Instant, _ *queue.Consumer, ds []queue.Delivery) int {
	n := cs.take(now, ds)
	if n > 0 && cs.channel.conn.tracing() {
		cs.copyDelivered(ds[:n]...)
	}
	return n
}

// take writes deliveries while there is capacity. It stops before one that does not fit the connection's frames.
func (cs *consumer) take(now hook.Instant, ds []queue.Delivery) (n int) {
	ch := cs.channel
	o := ch.lock()
	defer o.mu.Unlock()
	if ch.closed {
		return 0
	}
	cs.sendConsumeOK()
	n, fits := cs.write(ds)
	if n > 0 {
		cs.beginLeases(now, n)
	}
	if n < len(ds) && fits {
		ch.stall(cs)
	}
	o.kick()
	return n
}

// Takes implements [queue.Sink]. A closed channel does not claim that a delivery is too large.
func (cs *consumer) Takes(_ *queue.Consumer, d *queue.Delivery) bool {
	o := cs.channel.lock()
	defer o.mu.Unlock()
	return cs.channel.closed || cs.channel.fit(d)
}

// write writes deliveries and returns how many it has written. fits is false if the next one is too large for the connection's frames. The
// caller holds out's lock.
func (cs *consumer) write(ds []queue.Delivery) (n int, fits bool) {
	ch := cs.channel
	for n < len(ds) && !ch.conn.out.full() && ch.mayDeliver(cs) {
		if !ch.fit(&ds[n]) {
			return n, false
		}
		ch.deliver(cs, &ds[n])
		n++
	}
	return n, true
}

// fit shortens the headers that the broker added to a message, if they do not fit into a frame. It reports whether the message then fits:
// a client treats a frame that is too large as an error of the connection.
func (ch *channel) fit(d *queue.Delivery) bool {
	limit := ch.conn.frameMax - contentOverhead
	if len(d.Props) <= limit {
		return true
	}
	d.Props = death.Fit(d.Props, limit)
	return len(d.Props) <= limit+amqp.FrameSlack // the publisher was granted this slack, too
}

// errTooLarge returns the error for a channel whose frames are too small for a message: the message's publisher had a larger frame-max.
func (cs *consumer) errTooLarge(d *queue.Delivery) *amqp.Error {
	cfg, frameMax := cs.Queue.Config(), cs.channel.conn.frameMax
	return amqp.Errorf(amqp.ReplyPreconditionFailed, "the headers of a message in queue '%s' in vhost '%s' have %d bytes: too many for frame_max = %d",
		cfg.Name, cfg.VHost, len(d.Props), frameMax)
}

// Capacity implements [queue.Sink].
func (cs *consumer) Capacity(*queue.Consumer) (messages, bytes int) {
	ch := cs.channel
	o := ch.lock()
	defer o.mu.Unlock()
	if ch.closed {
		return 0, 0
	}
	if o.full() || !ch.mayDeliver(cs) {
		ch.stall(cs)
		return 0, 0
	}
	return ch.creditFor(cs), maxDeliveryBuffer - o.size()
}

// sendConsumeOK sends consume-ok once, before the first delivery. The caller holds out's lock.
func (cs *consumer) sendConsumeOK() {
	if !cs.consumeOKDone {
		cs.consumeOKDone = true
		cs.channel.conn.out.send(cs.channel.id, &amqp.BasicConsumeOK{ConsumerTag: cs.Tag})
	}
}

// stall registers a consumer that did not take everything, so that it is woken later. The caller holds out's lock.
func (ch *channel) stall(cs *consumer) {
	line := &ch.atLimit
	if ch.mayDeliver(cs) {
		line = &ch.conn.out.stalled
	}
	// The least recently served consumer goes first, so that none starves.
	i := len(*line)
	for i > 0 && (*line)[i-1].served > cs.served {
		i--
	}
	*line = slices.Insert(*line, i, cs)
}

// deliverOverhead is the size of the method frame without names.
const deliverOverhead = amqp.FrameOverhead + 16

// deliver writes one delivery. The caller holds out's lock.
func (ch *channel) deliver(cs *consumer, d *queue.Delivery) {
	o := &ch.conn.out
	before := o.size()
	size := deliverOverhead + len(cs.Tag) + len(d.Exchange) + len(d.Key) + contentOverhead + len(d.Props)
	if whole := size + amqp.BodyFramesSize(len(d.Body), ch.conn.frameMax); whole <= largestChunk && !o.refersTo(d) {
		size = whole
	}
	o.reserve(size)
	o.served++
	cs.served = o.served
	o.pending = amqp.AppendDeliver(o.pending, ch.id, cs.Tag, ch.tag(cs, d), d.Redelivered, d.Exchange, d.Key)
	o.appendContent(ch.id, d, ch.conn.frameMax)
	o.delivered += o.size() - before
	if d.Traced {
		ch.traceDelivered(cs, d)
	}
}

// tag returns the tag for a delivery, and adds it to unacked if it awaits settlement. The caller holds out's lock.
func (ch *channel) tag(cs *consumer, d *queue.Delivery) uint64 {
	ch.counters.countDelivery(cs, d.Redelivered)
	if cs.NoAck {
		return ch.unacked.skip()
	}
	if usesCredit(&cs.Consumer) {
		ch.inFlight++
	}
	return ch.unacked.push(queue.PendingAck{Ref: d.Ref, Consumer: &cs.Consumer})
}

// Stopped implements [queue.Sink].
func (cs *consumer) Stopped(_ *queue.Consumer, why *queue.StoppedError) {
	cs.channel.failLater(errStopped(why).In(amqp.ClassBasic, amqp.MethodBasicConsume))
}

// drop removes a consumer from the channel. The caller holds out's lock.
func (ch *channel) drop(cs *consumer) {
	delete(ch.consumers, cs.Tag)
	is := func(o *consumer) bool { return o == cs }
	ch.atLimit = slices.DeleteFunc(ch.atLimit, is)
	ch.conn.out.stalled = slices.DeleteFunc(ch.conn.out.stalled, is)
}

// Cancelled implements [queue.Sink].
func (cs *consumer) Cancelled(*queue.Consumer) {
	ch := cs.channel
	o := ch.lock()
	defer o.mu.Unlock()
	if ch.closed || ch.consumers[cs.Tag] != cs {
		return
	}
	ch.drop(cs)
	if !ch.conn.caps.cancelNotify {
		return
	}
	cs.sendConsumeOK()
	if ch.holdingCancels {
		ch.heldCancels = append(ch.heldCancels, cs.Tag)
		return
	}
	ch.sendCancel(cs.Tag)
}

// sendCancel notifies the client that a consumer has ended. The caller holds out's lock.
func (ch *channel) sendCancel(tag string) {
	ch.conn.out.send(ch.id, &amqp.BasicCancel{ConsumerTag: tag, NoWait: true})
}

// holdCancels delays basic.cancel until releaseCancels, so that the client gets the answer to its own method first.
func (ch *channel) holdCancels() {
	o := ch.lock()
	defer o.mu.Unlock()
	ch.holdingCancels = true
}

func (ch *channel) releaseCancels() {
	o := ch.lock()
	defer o.mu.Unlock()
	for _, tag := range ch.heldCancels {
		ch.sendCancel(tag)
	}
	ch.holdingCancels, ch.heldCancels = false, nil
}
