package queue

import (
	"github.com/curfewmq/curfew/core/amqp"
	"github.com/curfewmq/curfew/core/deadline"
	"github.com/curfewmq/curfew/core/telemetry"
	"github.com/curfewmq/curfew/sdk/hook"
)

// enqueue takes a batch in, hands out what its consumers want, drops what is
// too much or too late, and tells the publisher. The order is RabbitMQ's: a
// message that a consumer waits for is handed over before any limit or deadline
// is looked at.
func (q *Queue) enqueue(now hook.Instant, b *Batch) {
	q.takeIn(now, b.Messages)
	q.afterChange(now)
	q.finish(b)
}

// takeIn takes messages in that are not refused.
func (q *Queue) takeIn(now hook.Instant, ms []Message) {
	q.open()
	q.count.Published += uint64(len(ms))
	if len(ms) > 0 && ms[0].Flags&HasDeathHistory != 0 { // then all of them are
		q.count.DeadLetters += uint64(len(ms))
	}
	for len(ms) > 0 {
		n := min(len(ms), maxBatch)
		q.runEnqueueHooks(now, ms[:n])
		ms = ms[n:]
	}
}

// afterChange is what follows every change: hand out, drop what exceeds the
// limits, reap what is due.
func (q *Queue) afterChange(now hook.Instant) {
	q.deliver(now)
	q.zeroTTL = false
	q.enforceLimits(now)
	q.expireDue(now)
	q.endTurn(now)
}

// runEnqueueHooks asks the hooks about at most maxBatch messages and takes in those that
// are kept.
func (q *Queue) runEnqueueHooks(now hook.Instant, ms []Message) {
	if !q.hooks.WantsEnqueue {
		q.admit(now, ms, nil)
		return
	}
	views, vs := q.buf.batch(len(ms))
	q.buf.entering = incomingView{ms: ms, queue: q, now: now}
	for i := range ms {
		m := &ms[i]
		views[i] = hook.Message{
			Enqueued: now, Expiration: m.Expiration, Size: len(m.Body), Priority: m.Priority,
			Redelivered: m.Flags&Redelivered != 0, Persistent: m.Flags&Persistent != 0, Traced: m.Flags&Traced != 0,
		}
		views[i].Bind(&q.buf.entering, i)
	}
	q.hooks.Enqueue(now, views, vs)
	q.buf.entering = incomingView{}
	if allKept(vs) {
		q.admit(now, ms, vs)
		return
	}
	q.applyEnqueueVerdicts(now, ms, vs)
}

func allKept(vs []hook.Verdict) bool {
	for i := range vs {
		if vs[i].Action != hook.Keep || vs[i].Nack {
			return false
		}
	}
	return true
}

// applyEnqueueVerdicts carries out verdicts of which some keep a message out.
func (q *Queue) applyEnqueueVerdicts(now hook.Instant, ms []Message, vs []hook.Verdict) {
	dead, left, refused := q.buf.dead[:0], q.buf.left[:0], 0
	var aside []pick
	var how []hook.Verdict
	for i := range ms {
		v, m := &vs[i], &ms[i]
		if v.Nack || v.Action == hook.Refuse {
			m.Flags |= Refused
		}
		switch v.Action {
		case hook.Keep:
			q.admit(now, ms[i:i+1], vs[i:i+1])
		case hook.Refuse:
			refused++
		case hook.Drop:
			q.count.Dropped[v.Reason]++
			left = append(left, refusedRemoval(now, m, v))
		case hook.Route:
			if v.Target.AtLeastOnce {
				aside, how = append(aside, q.storeForDeadLettering(now, m, v)), append(how, *v)
				continue
			}
			q.count.DeadLettered[v.Reason]++
			left = append(left, refusedRemoval(now, m, v))
			dead = append(dead, DeadLetter{
				Exchange: amqp.BytesOf(m.Routing.Exchange), Key: amqp.BytesOf(m.Routing.Key), BCC: m.Routing.BCC,
				Props: m.Props, Body: m.Body, Flags: m.Flags, Reason: v.Reason, Target: v.Target,
			})
		}
	}
	if refused > 0 {
		q.count.Refused += uint64(refused)
		q.host.Refused(q.cfg, refused)
	}
	q.publishDeadLetters(now, dead, left, nil)
	q.startDiscards(now, aside, how)
}

// storeForDeadLettering stores a message that is to leave at once, and takes it: it stays until it has arrived elsewhere.
func (q *Queue) storeForDeadLettering(now hook.Instant, m *Message, v *hook.Verdict) pick {
	kept := *v
	kept.Deadline, kept.AskHead = 0, false
	l := q.storeMessage(now, m, &kept)
	f := &q.levels[l]
	seq := f.next - 1
	q.take(f, f.slot(seq), len(m.Body))
	return pick{seq: seq, level: int32(l)}
}

// publishDeadLetters dead-letters messages, tells of all that leave, of which those are the ones
// with a target, and forgets the slices.
func (q *Queue) publishDeadLetters(now hook.Instant, dead []DeadLetter, left []telemetry.Removal, receipt *DeferredRemoval) {
	if receipt != nil {
		q.commit(nil) // what leaves may have come in this turn: that is to be read first
	}
	if len(dead) > 0 {
		q.host.DeadLetter(q.cfg, now, dead, Tracking{Removal: receipt})
		fillOutcomes(left, dead)
	}
	clear(dead)
	q.buf.dead = dead[:0]
	q.reportRemovals(now, left)
}

// admit takes messages in, in order; vs is nil when no hook had a say.
func (q *Queue) admit(now hook.Instant, ms []Message, vs []hook.Verdict) {
	n := q.deliverDirect(now, ms, vs)
	if n == len(ms) {
		return
	}
	for i := n; i < len(ms); i++ {
		if vs == nil {
			q.storeMessage(now, &ms[i], &hook.Verdict{})
			continue
		}
		q.storeMessage(now, &ms[i], &vs[i])
	}
}

// storeMessage stores one message, and returns its level.
func (q *Queue) storeMessage(now hook.Instant, m *Message, v *hook.Verdict) (level int) {
	l := q.level(m.Priority)
	f := &q.levels[l]
	s := q.store.add(now, m, strategyDataOf(v), slotFlagsOf(m, v))
	if v.Deadline != 0 && v.Deadline <= now && !q.zeroTTL {
		q.startZeroTTL()
	}
	seq := f.push(s, v.Deadline)
	q.journalEnqueued(now, l, f, seq, s, v.Deadline)
	q.ready++
	q.readyBytes += int64(len(m.Body))
	if v.Deadline != 0 {
		q.indexDeadline(l, f, seq, f.slot(seq), v.Deadline)
	}
	return l
}

// startZeroTTL begins a run of messages that may be handed out in this turn although
// their time is up: a TTL of zero means "now or not at all".
func (q *Queue) startZeroTTL() {
	if q.hooks.Scan == hook.ScanLazy {
		return
	}
	q.zeroTTL = true
	for l := range q.levels {
		q.levels[l].firstOfTurn = q.levels[l].next
	}
}

func slotFlagsOf(m *Message, v *hook.Verdict) slotFlags {
	var f slotFlags
	if m.Flags&Persistent != 0 {
		f |= persistent
	}
	if m.Flags&HasDeathHistory != 0 {
		f |= hasDeathHistory
	}
	if m.Flags&Redelivered != 0 {
		f |= redelivered
	}
	if m.Flags&Traced != 0 {
		f |= traced
	}
	f |= strategyDataOf(v).flags()
	if v.AskHead {
		f |= askHead
	}
	if len(m.Routing.BCC) > 0 {
		f |= hasBCC
	}
	return f
}

// indexDeadline makes a ready message's deadline known, if the strategy acts on it
// wherever the message stands. Deadlines that arrive in order extend the sorted
// run; the others go to the heap. A queue with priorities uses the heap only.
func (q *Queue) indexDeadline(l int, f *fifo, seq uint64, s *slot, at hook.Instant) {
	if q.hooks.Scan != hook.ScanAnywhere {
		return
	}
	if len(q.levels) == 1 && at >= f.runLast && seq == f.next-1 && q.restamping == nil {
		f.runLast = at
		s.flags |= inRun
		return
	}
	s.flags = s.flags&^inRun | inHeap
	q.heap.Push(deadline.Item{At: int64(at), Slot: uint64(ref(l, seq))})
}

// deliverDirect hands messages straight to the one consumer that waits for them and
// acknowledges nothing: they are never stored. It returns how many it took. vs is
// nil when no hook had a say.
func (q *Queue) deliverDirect(now hook.Instant, ms []Message, vs []hook.Verdict) int {
	if q.ready > 0 || len(q.levels) > 1 {
		return 0
	}
	g := q.consumers.serve()
	if g == nil || len(g.active) != 1 || !g.active[0].NoAck {
		return 0
	}
	c := g.active[0]
	ds := q.buf.delivery[:0]
	for i := range ms {
		if vs != nil && !q.passes(now, &vs[i]) {
			break
		}
		m := &ms[i]
		ds = append(ds, Delivery{
			Exchange: amqp.BytesOf(m.Routing.Exchange), Key: amqp.BytesOf(m.Routing.Key),
			Props: m.Props, Body: m.Body, Block: m.Block, Enqueued: now,
			Redelivered: m.Flags&Redelivered != 0, Traced: m.Flags&Traced != 0,
		})
	}
	q.buf.delivery = ds
	if len(ds) == 0 {
		return 0
	}
	n := c.Sink.Deliver(c, ds)
	q.count.DeliveredNoAck += uint64(n)
	if n < len(ds) {
		c.stalled = true
		q.consumers.refresh(c)
	}
	return n
}

// passes reports whether a message that is next may be handed out with the verdict
// that it entered with, without asking its hooks: see choose.
func (q *Queue) passes(now hook.Instant, v *hook.Verdict) bool {
	late := q.hooks.Scan == hook.ScanLazy && v.Deadline != 0 && v.Deadline <= now
	return !late && !v.AskHead
}
