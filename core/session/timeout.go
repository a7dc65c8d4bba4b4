package session

import (
	"time"

	"github.com/curfewmq/curfew/core/amqp"
	"github.com/curfewmq/curfew/core/queue"
	"github.com/curfewmq/curfew/sdk/hook"
)

// tagTime says that all deliveries with lower tags were made before a time.
type tagTime struct {
	tag uint64
	at  hook.Instant
}

// maxTagTimes bounds how many marks a channel keeps.
const maxTagTimes = 128

// checkTimeouts acts on deliveries that are not acknowledged for too long
// [RabbitMQ: consumers.html#acknowledgement-timeout].
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

// overdue returns a consumer that has not acknowledged for too long, and how long it may take.
func (ch *channel) overdue(now hook.Instant) (late *queue.Consumer, timeout time.Duration) {
	o := &ch.conn.out
	o.mu.Lock()
	defer o.mu.Unlock()
	shortest := ch.shortestTimeout()
	if shortest == 0 {
		ch.tagTimes = nil
		return nil, 0
	}
	ch.mark(now)
	from := uint64(0)
	for _, m := range ch.tagTimes {
		if now.Sub(m.at) < shortest {
			return nil, 0
		}
		for t := range ch.unacked.between(from, m.tag) {
			if limit := ch.timeout(t.Consumer); limit > 0 && now.Sub(m.at) >= limit {
				return t.Consumer, limit
			}
		}
		from = m.tag
	}
	return nil, 0
}

// timeout is how long a consumer may take to acknowledge a delivery; 0 = any time.
func (ch *channel) timeout(c *queue.Consumer) time.Duration {
	if s, ok := c.Sink.(*consumer); ok && s.timeout >= 0 {
		return s.timeout
	}
	return ch.conn.srv.ConsumerTimeout
}

// shortestTimeout is the least of the channel's timeouts; 0 = none. The caller holds out's lock.
func (ch *channel) shortestTimeout() time.Duration {
	shortest := ch.conn.srv.ConsumerTimeout
	for _, s := range ch.consumers {
		if t := ch.timeout(&s.Consumer); t > 0 && (t < shortest || shortest == 0) {
			shortest = t
		}
	}
	return shortest
}

// mark notes how far deliveries have come, and forgets what was acknowledged. The caller holds out's lock.
func (ch *channel) mark(now hook.Instant) {
	lowest := ch.unacked.lowest()
	if lowest == 0 {
		ch.tagTimes = nil
		return
	}
	kept := ch.tagTimes[:0]
	for i, m := range ch.tagTimes {
		thin := len(ch.tagTimes) == maxTagTimes && i%2 == 0 // the next one will do
		if m.tag > lowest && !thin {
			kept = append(kept, m)
		}
	}
	ch.tagTimes = kept
	next := ch.unacked.next + 1
	if n := len(kept); n == 0 || kept[n-1].tag < next {
		ch.tagTimes = append(kept, tagTime{next, now})
	}
}

// cancelLate cancels a consumer and returns what it holds.
func (ch *channel) cancelLate(late *queue.Consumer) {
	if s, ok := ch.lookUp(late.Tag); ok && &s.Consumer == late {
		ch.remove(s)
		ch.send(&amqp.BasicCancel{ConsumerTag: s.Tag, NoWait: true})
	}
	ch.conn.acks.add(queue.Requeue, ch.takeUnackedOf(late))
	ch.conn.flush()
}

// takeUnackedOf settles everything a consumer holds.
func (ch *channel) takeUnackedOf(c *queue.Consumer) (ts []tagged) {
	o := &ch.conn.out
	o.mu.Lock()
	defer o.mu.Unlock()
	for t := range ch.unacked.between(0, ch.unacked.next+1) {
		if t.Consumer == c {
			ts = append(ts, t)
		}
	}
	for _, t := range ts {
		ch.unacked.take(t.tag)
		ch.returnCredit(t.PendingAck)
	}
	return ts
}
