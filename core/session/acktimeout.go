package session

import (
	"time"

	"github.com/curfewmq/curfew/core/amqp"
	"github.com/curfewmq/curfew/core/queue"
	"github.com/curfewmq/curfew/sdk/hook"
)

// tagTime records that deliveries with lower tags were made before a certain time.
type tagTime struct {
	tag uint64
	at  hook.Instant
}

// maxTagTimes bounds the tag times of a channel.
const maxTagTimes = 128

// checkTimeouts handles deliveries that have been unacknowledged for too long
// [RabbitMQ: consumers.html#acknowledgement-timeout]. Deliveries with a lease have no other timeout.
func (ch *channel) checkTimeouts(now hook.Instant) error {
	for {
		late, timeout := ch.overdue(now)
		if late == nil {
			return nil
		}
		if late.Queue.Config().Kind != queue.Quorum || late.Sink == nil || !ch.conn.caps.cancelNotify {
			return precondition("delivery acknowledgement on channel %d timed out. Timeout value used: %d ms. "+
				"This timeout value can be configured, see consumers doc guide to learn more", ch.id, timeout.Milliseconds())
		}
		ch.cancelLate(late)
	}
}

// overdue returns a consumer that has not acknowledged within its timeout, and the timeout.
func (ch *channel) overdue(now hook.Instant) (late *queue.Consumer, timeout time.Duration) {
	o := ch.lock()
	defer o.mu.Unlock()
	shortest := ch.shortestTimeout()
	if shortest == 0 {
		ch.tagTimes = nil
		return nil, 0
	}
	ch.addTagTime(now)
	from := uint64(0)
	for _, m := range ch.tagTimes {
		if now.Sub(m.at) < shortest {
			return nil, 0
		}
		for t := range ch.unacked.between(from, m.tag) {
			if limit := ch.timeout(t.Consumer); limit > 0 && now.Sub(m.at) >= limit && !ch.leased(t) {
				return t.Consumer, limit
			}
		}
		from = m.tag
	}
	return nil, 0
}

// timeout returns how long a consumer may take to acknowledge a delivery; 0 means any time.
func (ch *channel) timeout(c *queue.Consumer) time.Duration {
	if cs, ok := c.Sink.(*consumer); ok && cs.timeout >= 0 {
		return cs.timeout
	}
	return ch.conn.srv.ConsumerTimeout
}

// shortestTimeout returns the shortest timeout on the channel; 0 means none. The caller holds out's lock.
func (ch *channel) shortestTimeout() time.Duration {
	shortest := ch.conn.srv.ConsumerTimeout
	for _, cs := range ch.consumers {
		if t := ch.timeout(&cs.Consumer); t > 0 && (t < shortest || shortest == 0) {
			shortest = t
		}
	}
	return shortest
}

// addTagTime adds the time for the next tag, and removes times below the lowest unacknowledged tag. The caller holds out's lock.
func (ch *channel) addTagTime(now hook.Instant) {
	lowest := ch.unacked.lowest()
	if lowest == 0 {
		ch.tagTimes = nil
		return
	}
	retained := ch.tagTimes[:0]
	for i, m := range ch.tagTimes {
		thin := len(ch.tagTimes) == maxTagTimes && i%2 == 0 // the next time is close enough to stand for this one
		if m.tag > lowest && !thin {
			retained = append(retained, m)
		}
	}
	ch.tagTimes = retained
	next := ch.unacked.next + 1
	if n := len(retained); n == 0 || retained[n-1].tag < next {
		ch.tagTimes = append(retained, tagTime{next, now})
	}
}

// cancelLate cancels a consumer and requeues its deliveries.
func (ch *channel) cancelLate(late *queue.Consumer) {
	if cs, ok := ch.lookUp(late.Tag); ok && &cs.Consumer == late {
		ch.remove(cs)
		ch.send(&amqp.BasicCancel{ConsumerTag: cs.Tag, NoWait: true})
	}
	ch.conn.acks.add(queue.Requeue, ch.takeUnackedOf(late))
	ch.conn.flush()
}

// takeUnackedOf takes the unacknowledged deliveries of a consumer.
func (ch *channel) takeUnackedOf(c *queue.Consumer) (acks []taggedAck) {
	o := ch.lock()
	defer o.mu.Unlock()
	for t := range ch.unacked.between(0, ch.unacked.next+1) {
		if t.Consumer == c {
			acks = append(acks, t)
		}
	}
	for _, t := range acks {
		ch.unacked.take(t.tag)
		ch.returnCredit(t.PendingAck)
	}
	return acks
}
