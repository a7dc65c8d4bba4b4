package session

import (
	"math"
	"slices"

	"github.com/curfewmq/curfew/core/queue"
)

// credit limits the unacknowledged deliveries of a whole channel, and holds the consumers that wait for the limit.
type credit struct {
	out   *outlet
	round *round

	// Guarded by out's lock; only the reader writes the first two, and listed.
	each     uint32      // prefetch of consumers added later
	limit    uint32      // unacknowledged deliveries that the channel may have: its global prefetch; 0 means any number
	inFlight uint32      // deliveries that count against limit
	listed   bool        // in the round
	stalled  []*consumer // consumers that wait for the limit, the least recently served first
}

// set sets the limit of the channel if global, otherwise of each consumer added later; 0 means none. As in RabbitMQ, a limit for consumers
// removes the channel's limit.
func (k *credit) set(global bool, n uint32) {
	o := k.out.lock()
	defer o.mu.Unlock()
	if !global {
		k.each = n
		n = 0
	}
	k.limit = n
	k.raise()
}

// limits returns the prefetch of new consumers and the channel's limit. The caller holds out's lock.
func (k *credit) limits() (each, channel uint32) { return k.each, k.limit }

// forConsumers returns the prefetch of a new consumer. The reader calls it.
func (k *credit) forConsumers() uint32 { return k.each }

// limited reports whether the channel has a limit.
func (k *credit) limited() bool {
	o := k.out.lock()
	defer o.mu.Unlock()
	return k.limit > 0
}

// left reports whether the channel is below its limit. The caller holds out's lock.
func (k *credit) left() bool { return k.limit == 0 || k.inFlight < k.limit }

// allows reports whether the limit allows another delivery to a consumer. A consumer without acknowledgements uses no credit, but as in
// RabbitMQ gets nothing while the channel has none. The caller holds out's lock.
func (k *credit) allows(cs *consumer) bool { return k.left() || cs.exempt }

// of returns how many deliveries the limit allows to a consumer. The caller holds out's lock, and allows has returned true.
func (k *credit) of(cs *consumer) int {
	if k.limit == 0 || cs.NoAck || cs.exempt {
		return math.MaxInt32
	}
	return int(k.limit - k.inFlight)
}

// usesCredit reports whether a consumer's deliveries count against the limit. Those of basic.get and of quorum queues, which do not support it, do
// not.
func usesCredit(c *queue.Consumer) bool { return c.Sink != nil && c.Type != queue.QuorumType }

// take counts a delivery to a consumer as in flight. The caller holds out's lock.
func (k *credit) take(c *queue.Consumer) {
	if usesCredit(c) {
		k.inFlight++
	}
}

// giveBack counts a delivery as no longer in flight. The caller holds out's lock.
func (k *credit) giveBack(ack queue.PendingAck) {
	if !usesCredit(ack.Consumer) {
		return
	}
	k.inFlight--
	if len(k.stalled) > 0 {
		k.raise()
	}
}

// raise makes the round look for stalled consumers that may continue. The caller, on the reader, holds out's lock.
func (k *credit) raise() {
	if !k.listed {
		k.listed = true
		k.round.raised(k)
	}
}

// stall registers a consumer that did not take everything, so that it is woken later. The caller holds out's lock.
func (k *credit) stall(cs *consumer) {
	line := &k.stalled
	if k.allows(cs) {
		line = &k.out.buf.stalled
	}
	// The least recently served consumer goes first, so that none starves.
	i := len(*line)
	for i > 0 && (*line)[i-1].served > cs.served {
		i--
	}
	*line = slices.Insert(*line, i, cs)
}

// forget removes a consumer from the stalled ones. The caller holds out's lock.
func (k *credit) forget(cs *consumer) {
	is := func(o *consumer) bool { return o == cs }
	k.stalled = slices.DeleteFunc(k.stalled, is)
	k.out.buf.stalled = slices.DeleteFunc(k.out.buf.stalled, is)
}

// wakeStalled wakes stalled consumers one by one while there is credit, so that each gets its share, also if they consume from different
// queues.
func (k *credit) wakeStalled() {
	for cs := k.next(); cs != nil; cs = k.next() {
		cs.Wake()
	}
	k.listed = false
}

// next removes and returns the stalled consumer that was served least recently; nil if there is none or no credit.
func (k *credit) next() *consumer {
	o := k.out.lock()
	defer o.mu.Unlock()
	if len(k.stalled) == 0 || !k.left() {
		return nil
	}
	cs := k.stalled[0]
	k.stalled = slices.Delete(k.stalled, 0, 1)
	return cs
}

// stop ends all waiting. The caller holds out's lock.
func (k *credit) stop() { k.stalled = nil }
