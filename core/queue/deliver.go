package queue

import (
	"math"

	"github.com/curfewmq/curfew/core/amqp"
	"github.com/curfewmq/curfew/sdk/hook"
)

// deliver hands ready messages to consumers, in order. Each round delivers a message,
// asks the hooks about one, or finds a stalled consumer. So when deliver ends, no
// consumer would take the next message.
func (cs *consumers) deliver(q *Queue, now hook.Instant) {
	q.buf.asked = q.buf.asked[:0] // of a turn that broke off
	for q.ready > 0 {
		g := cs.serve()
		if g == nil {
			break
		}
		if c := g.next(); !cs.deliverBatch(q, now, g, c) && !cs.passOn(q, now, c) {
			break
		}
	}
	q.buf.markAsked(q)
}

// deliverBatch delivers the next messages to the consumer c, or runs their hooks. It
// reports whether the message that is next afterwards fits c's frames.
func (cs *consumers) deliverBatch(q *Queue, now hook.Instant, g *priorityGroup, c *Consumer) (fits bool) {
	ds, why, ask := q.assign(now, g.share(c))
	switch {
	case len(ds) > 0: // if c takes fewer, the message that the hooks must see is not next
		return cs.deliverTo(q, now, g, c, ds)
	case ask && why == hook.WhyHead:
		most, bytes := c.Sink.Capacity(c)
		if most == 0 {
			cs.stall(c)
			return true
		}
		q.askNext(now, why, min(most, g.share(c)), bytes)
	default:
		q.askNext(now, why, maxBatch, math.MaxInt)
	}
	return true
}

// nextMessage returns the next message; one must be ready. ask reports whether its hooks
// must be asked before it is delivered, because it is due (why is WhyDue) or because they
// want to see it at the head (WhyHead).
func (c *contents) nextMessage(now hook.Instant) (h handle, why hook.Why, ask bool) {
	h = c.at(c.nextRef())
	s := h.slot()
	c.store.load(s.segment)
	at := h.deadline()
	if at != 0 && now >= at && !(c.zeroTTL && h.ref.seq() >= h.list.firstOfTurn) {
		return h, hook.WhyDue, true
	}
	return h, hook.WhyHead, s.flags&askHead != 0
}

// assign takes up to n of the next messages. It stops at a message that its hooks must
// see first: then ask is true and why gives the reason. Once it has taken as many bytes
// as a segment holds, it also stops at a message in a spilled segment: the connection may
// take only some of the messages, and loading the segment would be in vain.
func (c *contents) assign(now hook.Instant, n int) (ds []Delivery, why hook.Why, ask bool) {
	ds = c.buf.deliveries[:0]
	for size := 0; len(ds) < n && c.ready > 0; {
		if size >= segmentSize && !c.nextInMemory() {
			break
		}
		var h handle
		if h, why, ask = c.nextMessage(now); ask {
			break
		}
		r := c.store.read(*h.slot())
		size += int(h.slot().length)
		ds = append(ds, c.delivery(h, &r))
		c.take(h, len(r.body))
	}
	c.buf.deliveries = ds
	return ds, why, ask
}

// askNext runs the head hooks for the next messages whose hooks must be asked for the
// same reason: for most messages at most, and for no more than a connection takes in so
// many bytes.
func (q *Queue) askNext(now hook.Instant, why hook.Why, most, bytes int) {
	refs := q.buf.due[:0]
	for len(refs) < most && bytes > 0 && q.ready > 0 {
		h, reason, ask := q.nextMessage(now)
		if !ask || reason != why {
			break
		}
		r := q.store.read(*h.slot())
		q.take(h, len(r.body))
		refs = append(refs, h.ref)
		bytes -= r.deliverySize()
	}
	q.buf.due = refs
	q.runHeadHooks(now, refs, why, hook.ReasonNone)
}

// deliverySize returns how many bytes a delivery of the record takes on a connection, at
// most.
func (r *record) deliverySize() int {
	const frames, perBody = 1024, 256 // the method with its strings and the header; the first and last bytes of each body frame
	return frames + len(r.props) + len(r.body) + len(r.body)/perBody
}

// markAsked sets askHead for the messages that hooks kept at the head in this turn. So
// their hooks are asked again when such a message is next in a later turn.
func (w *turnBuffers) markAsked(q *Queue) {
	for _, r := range w.asked {
		if h, ok := q.locate(r); ok && !h.slot().is(stateFree) {
			h.slot().flags |= askHead
		}
	}
	w.asked = w.asked[:0]
}

// deliverTo gives a consumer as many of ds as its sink has capacity for, and passes the
// turn on. The other messages are next again. It reports whether the first of these, if
// there is one, fits the consumer's frames.
func (cs *consumers) deliverTo(q *Queue, now hook.Instant, g *priorityGroup, c *Consumer, ds []Delivery) (fits bool) {
	n := c.Sink.Deliver(now, c, ds)
	for i := range ds[:n] {
		q.countDelivery(q.at(ds[i].Ref), c)
	}
	c.useCredit(n)
	fits = true
	if n < len(ds) {
		fits = c.takes(&ds[n])
		c.stalled = fits
		q.unassign(ds[n:])
	}
	g.turn++
	cs.refresh(c)
	return fits
}

// stall stops serving a consumer until its sink has capacity again.
func (cs *consumers) stall(c *Consumer) {
	c.stalled = true
	cs.refresh(c)
}

// unassign makes messages ready again that were assigned and not delivered.
func (c *contents) unassign(ds []Delivery) {
	for i := range ds {
		h := c.at(ds[i].Ref)
		if !ds[i].requeued {
			h.list.rewind(h.ref.seq())
		}
		c.untake(h, len(ds[i].Body))
	}
}

// countDelivery counts a delivered message. If the consumer does not acknowledge, it
// drops the message.
func (q *Queue) countDelivery(h handle, c *Consumer) {
	if h.slot().flags&redelivered != 0 {
		q.count.Redelivered++
	}
	if c.NoAck {
		q.count.DeliveredNoAck++
		q.drop(h)
		return
	}
	h.list.deliveredUpTo = max(h.list.deliveredUpTo, h.ref.seq()+1)
	q.count.Delivered++
}

func (c *contents) delivery(h handle, r *record) Delivery {
	s := h.slot()
	d := Delivery{
		Ref: h.ref, Exchange: r.exchange, Key: r.key,
		Props: r.props, Body: r.body, Enqueued: r.enqueued,
		Redelivered: s.flags&redelivered != 0, Traced: s.flags&traced != 0, requeued: h.ref.seq() < h.list.head,
	}
	if len(d.Body) >= WorthHolding {
		d.Block = c.store.block(s.segment)
	}
	if n := s.returns(); n > 0 && c.cfg.Kind == Quorum {
		d.Props = withDeliveryCount(r.props, int64(n))
	}
	return d
}

// withDeliveryCount returns the properties with x-delivery-count set, as a
// quorum queue's redeliveries carry it.
func withDeliveryCount(props []byte, n int64) []byte {
	x, err := amqp.ScanProps(props)
	if err != nil {
		return props
	}
	t, err := x.Headers(props).Decode()
	if err != nil {
		return props
	}
	const name = "x-delivery-count"
	kept := make(amqp.Table, 0, len(t)+1)
	for _, f := range t {
		if f.Key != name {
			kept = append(kept, f)
		}
	}
	kept = append(kept, amqp.Field{Key: name, Value: n})
	return amqp.RewriteProps(nil, props, x, amqp.PropEdit{Headers: amqp.RawTable(amqp.AppendTable(nil, kept)[4:])})
}

// deliverDirect hands entering messages to a consumer without storing them. It does so in
// a queue without priorities and without ready messages, if exactly one consumer is to be
// served and does not acknowledge. It returns how many messages the consumer took. vs is
// nil when no hook has seen the messages.
func (cs *consumers) deliverDirect(q *Queue, now hook.Instant, ms []Message, vs []hook.Verdict) int {
	if q.ready > 0 || len(q.levels) > 1 {
		return 0
	}
	g := cs.serve()
	if g == nil || len(g.active) != 1 || !g.active[0].NoAck {
		return 0
	}
	c := g.active[0]
	ds := q.directDeliveries(now, ms, vs)
	if len(ds) == 0 {
		return 0
	}
	n := c.Sink.Deliver(now, c, ds)
	q.count.DeliveredNoAck += uint64(n)
	if n < len(ds) && c.takes(&ds[n]) {
		cs.stall(c)
	}
	return n
}

// directDeliveries returns the deliveries of the first of the messages that may be delivered at once. The turn's buffer has them. For why
// it is a function of its own, see fillViews.
func (c *contents) directDeliveries(now hook.Instant, ms []Message, vs []hook.Verdict) []Delivery {
	ds := c.buf.deliveries[:0]
	for i := range ms {
		if vs != nil && !c.deliverable(now, &vs[i]) {
			break
		}
		m := &ms[i]
		ds = append(ds, Delivery{
			Exchange: amqp.BytesOf(m.Routing.Exchange), Key: amqp.BytesOf(m.Routing.Key),
			Props: m.Props, Body: m.Body, Block: m.Block, Enqueued: now,
			Redelivered: m.Flags&Redelivered != 0, Traced: m.Flags&Traced != 0,
		})
	}
	c.buf.deliveries = ds
	return ds
}

// deliverable reports whether a message that entered with a verdict may be delivered
// without asking its hooks: see nextMessage.
func (c *contents) deliverable(now hook.Instant, v *hook.Verdict) bool {
	late := c.rules.scan == hook.ScanLazy && v.Deadline != 0 && v.Deadline <= now
	return !late && !v.AskHead && !v.Watch && v.Hold <= now
}

// Get hands the next message to fn, with the number of ready messages that remain; ok is
// false when there is none. It renews the lease.
func (q *Queue) Get(now hook.Instant, c *Consumer, fn func(d Delivery, remaining int)) (ok bool) {
	q.Touch(now)
	q.buf.asked = q.buf.asked[:0] // of a turn that broke off
	defer q.buf.markAsked(q)
	for q.ready > 0 {
		h, why, ask := q.nextMessage(now)
		if !ask && c.Fit != nil && int(h.slot().length) > everyFrame {
			if fits, goOn := q.fitOrGiveUp(now, c, h); !fits && goOn {
				continue
			} else if !fits {
				return false
			}
		}
		q.takeForHooks(h)
		if ask {
			q.runHeadHooks(now, []Ref{h.ref}, why, hook.ReasonNone)
			continue
		}
		q.expireReady(now) // they do not count as remaining
		h = q.at(h.ref)
		r := q.store.read(*h.slot())
		fn(q.delivery(h, &r), q.ready)
		q.countDelivery(h, c)
		q.endTurn(now)
		return true
	}
	return false
}
