package session

import (
	"sync/atomic"

	"github.com/curfewmq/curfew/core/block"
	"github.com/curfewmq/curfew/core/queue"
	"github.com/curfewmq/curfew/sdk/hook"
)

// round is the work of a connection in one Feed or Tick. It collects the channels' messages
// and settlements, so that each queue gets its share at once. It belongs to the
// connection's reader.
type round struct {
	buffered *atomic.Int64 // the server's sum of incomplete content

	now       hook.Instant // in the vhost's time, once the connection is open
	block     *block.Block // block that the bytes of the current Feed lie in; nil outside of Feed
	published bool         // a message was published since the last call of takePublished
	copies    int          // messages of the current Feed, counted once for each of their queues

	consumersCaughtUp, logCaughtUp <-chan struct{} // see the methods of Conn

	// Collected for flush.
	publishers []*publisher // publishers with a message; after a flush, exactly those with an incomplete one
	outbox     outbox
	acks       ackBatches
	belowLimit []*credit // credits that may let stalled consumers continue

	tagBuf []taggedAck // reused by settlements
}

// maxCopies is how many messages one Feed takes, counted once for each of their queues. One
// read may have 5,000 empty messages, of which a fanout exchange with a thousand queues
// makes five million. Between two Feeds an alarm can stop the publisher.
const maxCopies = 64 << 10

// begin begins a Feed whose bytes lie in block.
func (r *round) begin(now hook.Instant, block *block.Block) {
	r.now, r.block, r.consumersCaughtUp, r.logCaughtUp, r.copies = now, block, nil, nil, 0
}

func (r *round) tick(now hook.Instant) { r.now = now }

// end hands over everything that the Feed has collected.
func (r *round) end() {
	r.flush()
	r.block = nil
}

// full reports whether the Feed has taken as many messages as it may.
func (r *round) full() bool { return r.copies >= maxCopies }

func (r *round) instant() hook.Instant { return r.now }

// body returns the block that the bytes of the current Feed lie in.
func (r *round) body() *block.Block { return r.block }

// buffer counts n more bytes of incomplete content; n may be negative.
func (r *round) buffer(n int) {
	r.buffered.Add(int64(n))
	r.published = r.published || n > 0
}

// notePublished records that a message was published.
func (r *round) notePublished() { r.published = true }

// begun lists a publisher that has begun a message.
func (r *round) begun(p *publisher) { r.publishers = append(r.publishers, p) }

// publish adds a message for queues. If settlements were collected that one of the queues
// must see before the message, publish first hands over everything collected.
func (r *round) publish(queues []*queue.Mailbox, slots *batchSlots, publisher *confirms, m *queue.Message, refs *blockRefs) {
	if r.acks.any() && r.acks.precede(queues) {
		r.flushBatches()
	}
	r.copies += len(queues)
	r.outbox.add(queues, slots, publisher, m, refs)
}

// copied adds a copy of a message, which no publisher waits for.
func (r *round) copied(queues []*queue.Mailbox, m *queue.Message, refs *blockRefs) {
	r.outbox.add(queues, nil, nil, m, refs)
}

func (r *round) settle(kind queue.SettleKind, ack queue.PendingAck) { r.acks.addOne(kind, ack) }

func (r *round) settleAll(kind queue.SettleKind, acks []taggedAck) { r.acks.add(kind, acks) }

// raised lists a credit that may let stalled consumers continue.
func (r *round) raised(k *credit) { r.belowLimit = append(r.belowLimit, k) }

// tags returns an empty slice to append to. The caller gives it back with retain.
func (r *round) tags() []taggedAck { return r.tagBuf[:0] }

// retain keeps a slice for reuse, unless it is large.
func (r *round) retain(acks []taggedAck) {
	clear(acks)
	if cap(acks) <= maxRetainedAcks {
		r.tagBuf = acks[:0]
	}
}

// consumers returns the channel of [Conn.ConsumersCaughtUp].
func (r *round) consumers() <-chan struct{} { return r.consumersCaughtUp }

// log returns the channel of [Conn.LogCaughtUp].
func (r *round) log() <-chan struct{} { return r.logCaughtUp }

// takePublished reports whether a message was published since the previous call.
func (r *round) takePublished() bool {
	p := r.published
	r.published = false
	return p
}

// incompleteBytes returns how many bytes of incomplete messages have been received. It is valid after a flush.
func (r *round) incompleteBytes() (bytes int) {
	for _, p := range r.publishers {
		bytes += p.received()
	}
	return bytes
}

// flushBatches passes the messages collected so far to their queues, because the next action must not overtake them.
func (r *round) flushBatches() {
	for _, p := range r.publishers {
		p.track()
	}
	r.handOver()
}

// handOver passes queues their messages, and then their settlements. If a consumer
// publishes a result before it acknowledges the delivery, the result is in its queue first.
func (r *round) handOver() {
	consumers, log := r.outbox.flush()
	if consumers != nil {
		r.consumersCaughtUp = consumers
	}
	if log != nil {
		r.logCaughtUp = log
	}
	r.acks.flush()
}

// flush carries out everything that was collected. Queues get published messages before settlements.
func (r *round) flush() {
	incomplete := r.publishers[:0]
	for _, p := range r.publishers {
		if p.flush() {
			incomplete = append(incomplete, p)
		}
	}
	clear(r.publishers[len(incomplete):])
	r.publishers = incomplete
	r.handOver()
	r.wakeBelowLimit()
}

// wakeBelowLimit lets consumers continue that a global prefetch had stalled.
func (r *round) wakeBelowLimit() {
	for i, k := range r.belowLimit {
		k.wakeStalled()
		r.belowLimit[i] = nil
	}
	r.belowLimit = r.belowLimit[:0]
}
