package session

import (
	"time"

	"github.com/curfewmq/curfew/core/amqp"
	"github.com/curfewmq/curfew/core/queue"
	"github.com/curfewmq/curfew/sdk/hook"
)

// tagTimes are the approximate times of deliveries, by tag.
type tagTimes []tagTime

// tagTime records that deliveries with lower tags were made before a certain time.
type tagTime struct {
	tag uint64
	at  hook.Instant
}

// maxTagTimes bounds the tag times of a channel.
const maxTagTimes = 128

// checkTimeouts handles deliveries that have been unacknowledged for too long
// [RabbitMQ: consumers.html#acknowledgement-timeout]. Deliveries with a lease have no other timeout.
func (d *deliveries) checkTimeouts(now hook.Instant) error {
	for {
		late, timeout := d.unsettled.overdue(now, d.srv.ConsumerTimeout)
		if late == nil {
			return nil
		}
		if late.Queue.Config().Kind != queue.Quorum || late.Sink == nil || !d.consumers.understandCancel() {
			return precondition("delivery acknowledgement on channel %d timed out. Timeout value used: %d ms. "+
				"This timeout value can be configured, see consumers doc guide to learn more", d.out.id, timeout.Milliseconds())
		}
		d.cancelLate(late)
	}
}

// cancelLate cancels a consumer and requeues its deliveries.
func (d *deliveries) cancelLate(late *queue.Consumer) {
	if cs, ok := d.consumers.lookUp(late.Tag); ok && &cs.Consumer == late {
		d.remove(cs)
		d.out.send(&amqp.BasicCancel{ConsumerTag: cs.Tag, NoWait: true})
	}
	d.round.settleAll(queue.Requeue, d.unsettled.takeOf(late))
	d.round.flush()
}

// overdue returns a consumer that has not acknowledged within its timeout, and the timeout. Consumers without a timeout of their own have the
// broker's.
func (u *unsettled) overdue(now hook.Instant, brokers time.Duration) (late *queue.Consumer, timeout time.Duration) {
	o := u.out.lock()
	defer o.mu.Unlock()
	shortest := u.consumers.shortestTimeout(brokers)
	if shortest == 0 {
		u.times = nil
		return nil, 0
	}
	u.times.add(now, u.tags.lowest(), u.tags.next+1)
	from := uint64(0)
	for _, m := range u.times {
		if now.Sub(m.at) < shortest {
			return nil, 0
		}
		for t := range u.tags.between(from, m.tag) {
			if limit := ackTimeout(t.Consumer, brokers); limit > 0 && now.Sub(m.at) >= limit && !u.leased(t) {
				return t.Consumer, limit
			}
		}
		from = m.tag
	}
	return nil, 0
}

// ackTimeout returns how long a consumer may take to acknowledge a delivery; 0 means any time.
func ackTimeout(c *queue.Consumer, brokers time.Duration) time.Duration {
	if cs, ok := c.Sink.(*consumer); ok && cs.timeout >= 0 {
		return cs.timeout
	}
	return brokers
}

// add adds the time for the next tag, and removes times below the lowest unacknowledged tag. 0 means that there is none.
func (ts *tagTimes) add(now hook.Instant, lowest, next uint64) {
	if lowest == 0 {
		*ts = nil
		return
	}
	all := *ts
	retained := all[:0]
	for i, m := range all {
		thin := len(all) == maxTagTimes && i%2 == 0 // the next time is close enough to stand for this one
		if m.tag > lowest && !thin {
			retained = append(retained, m)
		}
	}
	if n := len(retained); n == 0 || retained[n-1].tag < next {
		retained = append(retained, tagTime{next, now})
	}
	*ts = retained
}
