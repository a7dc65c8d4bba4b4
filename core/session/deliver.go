package session

import (
	"math"
	"slices"
	"time"

	"github.com/curfewmq/curfew/core/amqp"
	"github.com/curfewmq/curfew/core/death"
	"github.com/curfewmq/curfew/core/queue"
)

// consumer is a consumer of a channel, or what stands for one in basic.get. Its exported fields are the queue's.
type consumer struct {
	queue.Consumer
	channel       *channel
	timeout       time.Duration // to acknowledge a delivery; 0 = any time, negative = the broker's default
	arguments     amqp.Table    // as basic.consume gave them
	exempt        bool          // the channel's limit is none for it
	consumeOKDone bool          // consume-ok was sent, or is not wanted; guarded by the lock of the connection's out
	served        uint64        // when it was, in deliveries of the connection; guarded by that lock, too
}

var _ queue.Sink = (*consumer)(nil)

// Deliver implements [queue.Sink].
func (s *consumer) Deliver(_ *queue.Consumer, ds []queue.Delivery) int {
	n, fits := s.take(ds)
	if !fits {
		s.channel.failLater(s.errTooLarge(&ds[n]).In(amqp.ClassBasic, amqp.MethodBasicConsume))
	}
	if n > 0 && s.channel.conn.tracing() {
		s.copyDelivered(ds[:n]...)
	}
	return n
}

// take takes deliveries as long as there is room. It ends before one that does not fit the connection's frames.
func (s *consumer) take(ds []queue.Delivery) (n int, fits bool) {
	ch := s.channel
	o := &ch.conn.out
	o.mu.Lock()
	defer o.mu.Unlock()
	if ch.closed {
		return 0, true
	}
	s.sendConsumeOK()
	for n < len(ds) && !o.full() && ch.mayDeliver(s) {
		if fits = ch.fit(&ds[n]); !fits {
			o.kick()
			return n, false // it is not woken again: its channel is about to end
		}
		ch.deliver(s, &ds[n])
		n++
	}
	if n < len(ds) {
		ch.stall(s)
	}
	o.kick()
	return n, true
}

// fit sees to it that the headers of a message fit a frame, as far as it is the broker that made them large, and reports
// whether they do: a client takes a frame that is too large for an error of its connection, and hangs up.
func (ch *channel) fit(d *queue.Delivery) bool {
	limit := ch.conn.frameMax - contentOverhead
	if len(d.Props) <= limit {
		return true
	}
	d.Props = death.Fit(d.Props, limit)
	return len(d.Props) <= limit+amqp.FrameSlack // what its publisher was granted, too
}

// errTooLarge is what a channel is closed with that should get a message which does not fit its connection's frames: one from
// somebody with a larger frame-max.
func (s *consumer) errTooLarge(d *queue.Delivery) *amqp.Error {
	cfg, frameMax := s.Queue.Config(), s.channel.conn.frameMax
	return amqp.Errorf(amqp.ReplyPreconditionFailed, "the headers of a message in queue '%s' in vhost '%s' have %d bytes: too many for frame_max = %d",
		cfg.Name, cfg.VHost, len(d.Props), frameMax)
}

// Capacity implements [queue.Sink].
func (s *consumer) Capacity(*queue.Consumer) (messages, bytes int) {
	ch := s.channel
	o := &ch.conn.out
	o.mu.Lock()
	defer o.mu.Unlock()
	if ch.closed {
		return 0, 0
	}
	if o.full() || !ch.mayDeliver(s) {
		ch.stall(s)
		return 0, 0
	}
	return ch.creditFor(s), maxDeliveryBuffer - o.size()
}

// sendConsumeOK sends consume-ok, if that was not done: nothing is delivered before it. The caller holds out's lock.
func (s *consumer) sendConsumeOK() {
	if s.consumeOKDone {
		return
	}
	s.consumeOKDone = true
	o := &s.channel.conn.out
	o.pending = amqp.AppendMethod(o.pending, s.channel.id, &amqp.BasicConsumeOK{ConsumerTag: s.Tag})
	o.kick()
}

// mayDeliver reports whether a consumer may have another delivery, as far as the channel's limit goes. One that acknowledges
// nothing does not use room up, and yet gets nothing while there is none, as in RabbitMQ.
func (ch *channel) mayDeliver(s *consumer) bool { return ch.hasCredit() || s.exempt }

// counts reports whether what a consumer holds counts against the channel's limit: what was fetched does not, nor what
// comes from a quorum queue, which has no such limits.
func counts(c *queue.Consumer) bool { return c.Sink != nil && c.Type != queue.QuorumType }

// creditFor is how many deliveries mayHold would let a consumer have.
func (ch *channel) creditFor(s *consumer) int {
	if ch.globalPrefetch == 0 || s.NoAck || s.exempt {
		return math.MaxInt32
	}
	return int(ch.globalPrefetch - ch.inFlight)
}

// hasCredit reports whether the channel is below its limit.
func (ch *channel) hasCredit() bool { return ch.globalPrefetch == 0 || ch.inFlight < ch.globalPrefetch }

// stall remembers a consumer that did not take everything, to wake it when it can. The caller holds out's lock.
func (ch *channel) stall(s *consumer) {
	if ch.mayDeliver(s) {
		ch.conn.out.stalled = lineUp(ch.conn.out.stalled, s)
		return
	}
	ch.atLimit = lineUp(ch.atLimit, s)
}

// lineUp adds a consumer to others that wait for the same room: who was served the longest time ago is the first to have
// some, so that none keeps the others from it.
func lineUp(line []*consumer, s *consumer) []*consumer {
	i := len(line)
	for i > 0 && line[i-1].served > s.served {
		i--
	}
	return slices.Insert(line, i, s)
}

// deliverOverhead is the size of the method's frame without the names in it.
const deliverOverhead = amqp.FrameOverhead + 16

// deliver writes one delivery. The caller holds out's lock.
func (ch *channel) deliver(s *consumer, d *queue.Delivery) {
	o := &ch.conn.out
	size := deliverOverhead + len(s.Tag) + len(d.Exchange) + len(d.Key) + contentOverhead + len(d.Props)
	if whole := size + amqp.BodyFramesSize(len(d.Body), ch.conn.frameMax); whole <= largestChunk && !o.refersTo(d) {
		size = whole
	}
	o.reserve(size)
	o.served++
	s.served = o.served
	o.pending = amqp.AppendDeliver(o.pending, ch.id, s.Tag, ch.tag(s, d), d.Redelivered, d.Exchange, d.Key)
	o.appendContent(ch.id, d, ch.conn.frameMax)
	if d.Traced {
		ch.traceDelivered(s, d)
	}
}

// tag gives a delivery its tag and remembers what has to be acknowledged. The caller holds out's lock.
func (ch *channel) tag(s *consumer, d *queue.Delivery) uint64 {
	ch.counters.countDelivery(s, d.Redelivered)
	if s.NoAck {
		return ch.unacked.skip()
	}
	if counts(&s.Consumer) {
		ch.inFlight++
	}
	return ch.unacked.push(queue.PendingAck{Ref: d.Ref, Consumer: &s.Consumer})
}

// Stopped implements [queue.Sink].
func (s *consumer) Stopped(_ *queue.Consumer, why *queue.StoppedError) {
	s.channel.failLater(errStopped(why).In(amqp.ClassBasic, amqp.MethodBasicConsume))
}

// drop forgets a consumer, which waits for nothing any more. The caller holds out's lock.
func (ch *channel) drop(s *consumer) {
	delete(ch.consumers, s.Tag)
	is := func(o *consumer) bool { return o == s }
	ch.atLimit = slices.DeleteFunc(ch.atLimit, is)
	ch.conn.out.stalled = slices.DeleteFunc(ch.conn.out.stalled, is)
}

// Cancelled implements [queue.Sink].
func (s *consumer) Cancelled(*queue.Consumer) {
	ch := s.channel
	o := &ch.conn.out
	o.mu.Lock()
	defer o.mu.Unlock()
	if ch.closed || ch.consumers[s.Tag] != s {
		return
	}
	ch.drop(s)
	if !ch.conn.caps.cancelNotify {
		return
	}
	s.sendConsumeOK()
	if ch.holdingCancels {
		ch.heldCancels = append(ch.heldCancels, s.Tag)
		return
	}
	ch.sendCancel(s.Tag)
}

// sendCancel tells the client that a consumer is no more. The caller holds out's lock.
func (ch *channel) sendCancel(tag string) {
	o := &ch.conn.out
	o.pending = amqp.AppendMethod(o.pending, ch.id, &amqp.BasicCancel{ConsumerTag: tag, NoWait: true})
	o.kick()
}

// holdCancels keeps basic.cancel back until releaseCancels: the client hears what its own method did before it hears what followed
// from that.
func (ch *channel) holdCancels() {
	ch.conn.out.mu.Lock()
	defer ch.conn.out.mu.Unlock()
	ch.holdingCancels = true
}

func (ch *channel) releaseCancels() {
	ch.conn.out.mu.Lock()
	defer ch.conn.out.mu.Unlock()
	for _, tag := range ch.heldCancels {
		ch.sendCancel(tag)
	}
	ch.holdingCancels, ch.heldCancels = false, nil
}
