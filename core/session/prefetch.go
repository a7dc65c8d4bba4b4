package session

import (
	"math"
	"slices"

	"github.com/curfewmq/curfew/core/amqp"
	"github.com/curfewmq/curfew/core/queue"
)

// qos limits unacknowledged deliveries: of each consumer added later or, if global, of the whole channel
// [RabbitMQ: consumer-prefetch.html]. As in RabbitMQ, a limit for consumers removes the channel's limit.
func (ch *channel) qos(m *amqp.BasicQos) error {
	if m.PrefetchSize != 0 {
		return amqp.Errorf(amqp.ReplyNotImplemented, "prefetch_size!=0 (%d)", m.PrefetchSize)
	}
	ch.setPrefetch(m.Global, uint32(m.PrefetchCount))
	ch.send(&amqp.BasicQosOK{})
	ch.conn.wakeBelowLimit()
	return nil
}

func (ch *channel) setPrefetch(global bool, n uint32) {
	o := ch.lock()
	defer o.mu.Unlock()
	if !global {
		ch.prefetch = n
		n = 0
	}
	ch.globalPrefetch = n
	ch.limitRaised()
}

// limited reports whether the channel has a global prefetch.
func (ch *channel) limited() bool {
	o := ch.lock()
	defer o.mu.Unlock()
	return ch.globalPrefetch > 0
}

// hasCredit reports whether the channel is below its global prefetch. The caller holds out's lock.
func (ch *channel) hasCredit() bool { return ch.globalPrefetch == 0 || ch.inFlight < ch.globalPrefetch }

// mayDeliver reports whether the channel's global prefetch allows another delivery to a consumer. A consumer without
// acknowledgements uses no credit, but as in RabbitMQ gets nothing while the channel has none.
func (ch *channel) mayDeliver(cs *consumer) bool { return ch.hasCredit() || cs.exempt }

// creditFor returns how many deliveries mayDeliver would allow to a consumer.
func (ch *channel) creditFor(cs *consumer) int {
	if ch.globalPrefetch == 0 || cs.NoAck || cs.exempt {
		return math.MaxInt32
	}
	return int(ch.globalPrefetch - ch.inFlight)
}

// usesCredit reports whether a consumer's deliveries count against the global prefetch. Those of basic.get and of quorum queues, which do not
// support it, do not.
func usesCredit(c *queue.Consumer) bool { return c.Sink != nil && c.Type != queue.QuorumType }

// returnCredit counts a delivery as no longer in flight. The caller holds out's lock.
func (ch *channel) returnCredit(ack queue.PendingAck) {
	if !usesCredit(ack.Consumer) {
		return
	}
	ch.inFlight--
	if len(ch.atLimit) > 0 {
		ch.limitRaised()
	}
}

// limitRaised makes wakeBelowLimit look at the channel. The caller holds out's lock.
func (ch *channel) limitRaised() {
	if !ch.listedBelowLimit {
		ch.listedBelowLimit = true
		ch.conn.belowLimit = append(ch.conn.belowLimit, ch)
	}
}

// wakeBelowLimit wakes consumers that a global prefetch had stalled, one by one while there is credit, so that each gets its share, also if
// they consume from different queues.
func (c *Conn) wakeBelowLimit() {
	for i, ch := range c.belowLimit {
		for cs := ch.takeAtLimit(); cs != nil; cs = ch.takeAtLimit() {
			cs.Wake()
		}
		ch.listedBelowLimit = false
		c.belowLimit[i] = nil
	}
	c.belowLimit = c.belowLimit[:0]
}

// takeAtLimit removes and returns the stalled consumer that was served least recently; nil if there is none or no credit.
func (ch *channel) takeAtLimit() *consumer {
	o := ch.lock()
	defer o.mu.Unlock()
	if len(ch.atLimit) == 0 || !ch.hasCredit() {
		return nil
	}
	cs := ch.atLimit[0]
	ch.atLimit = slices.Delete(ch.atLimit, 0, 1)
	return cs
}
