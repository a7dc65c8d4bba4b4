package queue

import (
	"slices"

	"github.com/curfewmq/curfew/core/amqp"
	"github.com/curfewmq/curfew/sdk/hook"
)

// enqueue stores a batch, delivers to waiting consumers, drops messages beyond a limit or
// past their deadline, and confirms. The order is RabbitMQ's: a message that a consumer
// waits for is delivered before limits and deadlines apply.
func (q *Queue) enqueue(now hook.Instant, b *Batch) {
	n := &q.buf.ops
	n.arriving, n.entered, n.confirmed, n.keeps = nil, 0, false, b.kept != nil
	n.once = b.once()
	if b.awaited() {
		n.arriving = b
	}
	if b.kept != nil && b.kept.redrive != nil {
		q.takeInRedriven(now, b.Messages)
	} else {
		q.takeInTurn(now, b.Messages)
	}
	n.keeps, n.once = false, false
	q.afterChange(now)
	q.confirm(b)
}

// takeInTurn stores a batch. Hooks that watch messages decide about a message by those
// that are in the queue. So with such hooks, due messages leave first, and each message
// enters alone, after those have left that the one before pushed out.
func (q *Queue) takeInTurn(now hook.Instant, ms []Message) {
	if q.cfg.Schedule != nil {
		q.open()
		q.scheduling().schedule(q, now, ms)
		q.buf.ops.entered += len(ms)
		return
	}
	watching := q.hooks.WantsGone()
	if watching && q.contents != nil && len(q.departing.list) == 0 {
		q.expireReady(now)
	}
	for watching && len(ms) > 1 {
		q.takeIn(now, ms[:1])
		q.letLeave(now)
		ms = ms[1:]
	}
	q.takeIn(now, ms)
}

// letLeave removes messages that exceed a limit, that are delivered without
// acknowledgement, or that were due as they entered.
func (q *Queue) letLeave(now hook.Instant) {
	limited := q.hooks.Length.Set() || q.hooks.Bytes.Set()
	if !limited && !q.zeroTTL && !q.consumers.servesNoAck() {
		return
	}
	q.consumers.deliver(q, now)
	due := q.zeroTTL
	q.zeroTTL = false
	q.enforceLimits(now)
	if due {
		q.expireReady(now)
	}
}

// takeIn runs the enqueue hooks for messages, and stores those that the hooks keep.
func (q *Queue) takeIn(now hook.Instant, ms []Message) {
	q.open()
	q.count.Published += uint64(len(ms))
	if len(ms) > 0 && ms[0].Flags&HasDeathHistory != 0 { // then all messages of the batch are dead letters
		q.count.DeadLetters += uint64(len(ms))
	}
	for len(ms) > 0 {
		n := min(len(ms), maxBatch)
		q.runEnqueueHooks(now, ms[:n])
		q.buf.ops.entered += n
		ms = ms[n:]
	}
}

// afterChange follows every change: it delivers, enforces limits and expires due messages.
func (q *Queue) afterChange(now hook.Instant) {
	q.consumers.deliver(q, now)
	q.zeroTTL = false
	q.enforceLimits(now)
	q.expireDue(now)
	q.endTurn(now)
}

// runEnqueueHooks is takeIn for at most maxBatch messages.
func (q *Queue) runEnqueueHooks(now hook.Instant, ms []Message) {
	if ms[0].Released {
		q.holding.delayReleased(q, now, ms)
	}
	if !q.hooks.WantsEnqueue {
		q.admitWaiting(now, ms)
		return
	}
	views, vs := q.buf.batch(len(ms))
	if q.buf.fillViews(q, now, ms, views) {
		wait(now, ms, vs)
		q.hooks.EnqueueWaiting(now, views, vs)
	} else {
		q.hooks.Enqueue(now, views, vs)
	}
	q.buf.view = messageView{}
	if allKept(vs) {
		q.admit(now, ms, vs)
		return
	}
	q.applyEnqueueVerdicts(now, ms, vs)
}

// fillViews makes views of entering messages, and reports whether a publisher wants one of them held. It is a function of its own to keep
// its temporary values off the stack while consumers get the messages: that stack has to fit into 4 KiB, or every connection takes 8.
func (w *turnBuffers) fillViews(q *Queue, now hook.Instant, ms []Message, views []hook.Message) (waiting bool) {
	w.view = messageView{queue: q, now: now, incoming: ms}
	for i := range ms {
		m := &ms[i]
		waiting = waiting || m.Wait != 0
		views[i] = hook.Message{
			Enqueued: now, Expiration: m.Expiration, Size: len(m.Body), Priority: m.Priority,
			Redelivered: m.Flags&Redelivered != 0, Persistent: m.Flags&Persistent != 0, Traced: m.Flags&Traced != 0,
		}
		views[i].Bind(&w.view, i)
	}
	return waiting
}

// wait sets the Hold of verdicts to the instant until which publishers want their
// messages held.
func wait(now hook.Instant, ms []Message, vs []hook.Verdict) {
	for i := range ms {
		vs[i].Hold = max(vs[i].Hold, ms[i].Wait.until(now))
	}
}

// admitWaiting is admit for messages that no hook has seen.
func (q *Queue) admitWaiting(now hook.Instant, ms []Message) {
	if !slices.ContainsFunc(ms, func(m Message) bool { return m.Wait != 0 }) {
		q.admit(now, ms, nil)
		return
	}
	_, vs := q.buf.batch(len(ms))
	wait(now, ms, vs)
	q.admit(now, ms, vs)
}

func allKept(vs []hook.Verdict) bool {
	for i := range vs {
		if vs[i].Action != hook.Keep || vs[i].Nack {
			return false
		}
	}
	return true
}

// applyEnqueueVerdicts applies verdicts, of which some keep a message out.
func (q *Queue) applyEnqueueVerdicts(now hook.Instant, ms []Message, vs []hook.Verdict) {
	var held []inTransfer
	refused, r := 0, &q.buf.removals
	refusedWatched := false // a later duplicate may be one of the refused message: it is refused, too
	for i := range ms {
		v, m := &vs[i], &ms[i]
		if m.Released && v.Action == hook.Refuse {
			v.Action, v.Hold = hook.Keep, max(v.Hold, now.AddMillis(leastHoldMillis))
		}
		if v.Nack && !q.buf.ops.once || v.Action == hook.Refuse || v.Action == hook.Drop && v.Reason == hook.ReasonDuplicate && refusedWatched {
			m.Flags |= Refused
			if q.buf.ops.keeps { // it stays in its old queue, so it must not be dead-lettered here
				v.Action, v.Nack = hook.Refuse, false
			}
			refusedWatched = refusedWatched || v.Watch && !stored(v)
		}
		if v.Watch && !stored(v) {
			q.buf.gone.keptOut(q, ms[i:i+1])
		}
		switch v.Action {
		case hook.Keep:
			q.admit(now, ms[i:i+1], vs[i:i+1])
		case hook.Refuse:
			refused++
		case hook.Drop:
			if v.Reason == hook.ReasonDuplicate && m.Flags&Persistent != 0 {
				q.buf.ops.relies = true
			}
			q.count.Dropped[v.Reason]++
			r.all = append(r.all, refusedRemoval(now, m, v))
		case hook.Route:
			if v.Target.AtLeastOnce {
				held = append(held, inTransfer{ref: q.storeForDeadLettering(now, m, v), verdict: *v})
				continue
			}
			q.count.DeadLettered[v.Reason]++
			r.all = append(r.all, refusedRemoval(now, m, v))
			r.dead = append(r.dead, DeadLetter{
				Exchange: amqp.BytesOf(m.Routing.Exchange), Key: amqp.BytesOf(m.Routing.Key), BCC: m.Routing.BCC,
				Props: m.Props, Body: m.Body, Flags: m.Flags, Reason: v.Reason, Target: v.Target,
			})
		}
	}
	if refused > 0 {
		q.mailbox.mayRefuse.Store(true)
		q.count.Refused += uint64(refused)
		q.host.Refused(q.cfg, refused)
	}
	q.buf.removals.publish(q, now)
	q.startDiscards(now, held)
}

// stored reports whether a verdict puts the message in the queue, at least for a while.
func stored(v *hook.Verdict) bool {
	return v.Action == hook.Keep || v.Action == hook.Route && v.Target.AtLeastOnce
}

// storeForDeadLettering stores and takes a message that is dead-lettered, at least once,
// as it enters.
func (c *contents) storeForDeadLettering(now hook.Instant, m *Message, v *hook.Verdict) Ref {
	stored := *v
	stored.Deadline, stored.Hold, stored.AskHead, stored.Again = 0, 0, false, false
	h := c.storeMessage(now, m, &stored)
	c.take(h, len(m.Body))
	return h.ref
}

// admit delivers or stores messages, in order; vs is nil when no hook has seen them.
func (q *Queue) admit(now hook.Instant, ms []Message, vs []hook.Verdict) {
	for i := q.consumers.deliverDirect(q, now, ms, vs); i < len(ms); i++ {
		v := &hook.Verdict{}
		if vs != nil {
			v = &vs[i]
		}
		q.storeMessage(now, &ms[i], v)
	}
}

// storeMessage stores one message.
func (c *contents) storeMessage(now hook.Instant, m *Message, v *hook.Verdict) handle {
	l := c.level(m.Priority)
	f := &c.levels[l]
	data := strategyDataOf(v)
	s := c.store.add(now, m, data, slotFlagsOf(m, v, data))
	at, held := v.Deadline, v.Hold > now
	if held {
		at = c.deadlineBehindHold(now, v)
	}
	if at != 0 && at <= now && !held && !c.zeroTTL {
		c.startZeroTTL()
	}
	seq := f.push(s, at)
	h := handle{ref(l, seq), f, &f.chunks[len(f.chunks)-1], int(seq & positionMask)}
	c.journalEnqueued(now, h, at)
	if held {
		c.holdEntering(h, v.Hold)
	} else {
		c.ready++
		c.readyBytes += int64(len(m.Body))
	}
	c.indexDeadline(h, at, c.restamping == nil)
	if v.Again {
		c.askLater(now.AddMillis(askAgainMillis), h.ref)
	}
	return h
}

// startZeroTTL makes the messages that enter from now on deliverable in this turn
// although they are due: a message with a TTL of zero is delivered at once or not at all.
func (c *contents) startZeroTTL() {
	if c.rules.scan == hook.ScanLazy {
		return
	}
	c.zeroTTL = true
	for l := range c.levels {
		c.levels[l].firstOfTurn = c.levels[l].next
	}
}
