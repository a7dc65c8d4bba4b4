package queue

import (
	"github.com/curfewmq/curfew/core/amqp"
	"github.com/curfewmq/curfew/sdk/hook"
)

// A content header cannot be divided, so a message with many properties does not fit the
// frames of a consumer that negotiated small ones. Another consumer of the queue gets it,
// when it can. If the message fits no consumer's frames, it would block all messages
// behind it as long as these consumers are there, so it leaves the queue.

// everyFrame is how many bytes of properties fit every consumer's frames.
const everyFrame = amqp.FrameMinSize - 64

// takes reports whether a delivery fits the consumer's frames.
func (c *Consumer) takes(d *Delivery) bool { return len(d.Props) <= everyFrame || c.Sink.Takes(c, d) }

// passOn finds another consumer for the next message, which does not fit the frames of
// the consumer unfit. It reports false if the message waits for a consumer.
func (cs *consumers) passOn(q *Queue, now hook.Instant, unfit *Consumer) (goOn bool) {
	h := q.at(q.nextRef())
	r := q.store.read(*h.slot())
	waits := false
	for _, c := range cs.others(unfit) {
		d := q.delivery(h, &r)
		if !c.takes(&d) {
			continue
		}
		if c.active && cs.sendOne(q, now, c, h, &r) {
			return true
		}
		waits = true
	}
	if waits {
		return false
	}
	return q.giveUp(now, h)
}

// sendOne gives a consumer the next message, and reports whether the consumer took it.
func (cs *consumers) sendOne(q *Queue, now hook.Instant, c *Consumer, h handle, r *record) (taken bool) {
	ds := append(q.buf.deliveries[:0], q.delivery(h, r))
	q.buf.deliveries = ds
	q.take(h, len(r.body))
	if c.Sink.Deliver(now, c, ds) == 0 {
		q.unassign(ds)
		cs.stall(c)
		return false
	}
	q.countDelivery(h, c)
	c.useCredit(1)
	cs.refresh(c)
	return true
}

// giveUp makes a ready message leave, and reports whether it did: hooks may keep it.
func (q *Queue) giveUp(now hook.Instant, h handle) (left bool) {
	before := q.ready
	q.takeForHooks(h)
	q.runHeadHooks(now, []Ref{h.ref}, hook.WhyLeaving, hook.ReasonTooLarge)
	return q.ready < before
}

// fitOrGiveUp reports whether the next message fits the frames of a client that gets it.
// If it fits those of no other client either, it is made to leave, and goOn reports
// whether it did.
func (q *Queue) fitOrGiveUp(now hook.Instant, c *Consumer, h handle) (fits, goOn bool) {
	r := q.store.read(*h.slot())
	d := q.delivery(h, &r)
	fits, others := c.Fit(&d)
	if fits || others {
		return fits, false
	}
	return false, q.giveUp(now, h)
}

// others returns the other consumers that may be served, the highest priority first.
func (cs *consumers) others(c *Consumer) (others []*Consumer) {
	if cs.single {
		return nil
	}
	for i := range cs.groups {
		for _, o := range cs.all {
			if o != c && o.Priority == cs.groups[i].priority {
				others = append(others, o)
			}
		}
	}
	return others
}
