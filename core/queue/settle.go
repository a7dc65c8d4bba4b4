package queue

import (
	"math"

	"github.com/curfewmq/curfew/sdk/hook"
)

// SettleKind is how a client, or the end of its channel, settles deliveries.
type SettleKind uint8

// The ways to settle.
const (
	Ack      SettleKind = iota
	Reject              // basic.reject or basic.nack with requeue=false
	Requeue             // make it ready again; not a failed delivery
	Return              // as Requeue, and it counts towards the delivery limit
	LeaseEnd            // as Return, because the lease of the delivery has ended
)

// PendingAck is a delivery that awaits settlement.
type PendingAck struct {
	Ref      Ref
	Consumer *Consumer
}

// settleAll settles deliveries. It skips those that are settled already.
func (q *Queue) settleAll(now hook.Instant, kind SettleKind, items []PendingAck) {
	leaving, late := q.settle(now, kind, items)
	q.runHeadHooks(now, leaving, hook.WhyLeaving, kind.reason())
	q.runLateHooks(now, late)
	q.afterChange(now)
}

// runLateHooks runs the head hooks for messages that consumers returned after their
// deadline.
func (q *Queue) runLateHooks(now hook.Instant, refs []Ref) {
	q.buf.late = true
	q.runHeadHooks(now, refs, hook.WhyDue, hook.ReasonNone)
	q.buf.late = false
}

// settle settles deliveries, except those whose hooks must be asked. It returns these:
// leaving has the messages that leave because of kind, and late those past their
// deadline. The slices are valid until the queue does anything else.
func (q *Queue) settle(now hook.Instant, kind SettleKind, items []PendingAck) (leaving, late []Ref) {
	leaving, late = q.buf.settled[:0], q.buf.due[:0]
	leaseEnded := kind == LeaseEnd
	if leaseEnded {
		kind = Return
	}
	for _, it := range items {
		h, ok := q.locate(it.Ref)
		if !ok || !h.slot().is(stateUnacked) {
			continue
		}
		if leaseEnded {
			q.count.LeasesEnded++
		}
		if c := it.Consumer; c != nil && c.returnCredit() && !c.active && !c.removed {
			q.consumers.refresh(c)
		}
		switch {
		case kind == Ack:
			q.count.Acked++
			q.drop(h)
		case kind == Reject || kind == Return && q.countReturn(h.slot()):
			leaving = append(leaving, it.Ref)
		case q.isLate(now, h.deadline()):
			q.noteReturn(now, it.Ref, h.deadline())
			late = append(late, it.Ref)
		default:
			q.requeue(now, h, kind)
		}
	}
	q.buf.settled, q.buf.due = leaving, late
	return leaving, late
}

// isLate reports whether a requeued message is past its deadline in a queue that acts on
// deadlines only before deliveries and when messages are requeued.
func (c *contents) isLate(now, at hook.Instant) bool {
	return c.rules.scan == hook.ScanLazy && at != 0 && now >= at
}

// reason returns why messages leave whose deliveries are settled with k.
func (k SettleKind) reason() hook.Reason {
	if k == Reject {
		return hook.ReasonRejected
	}
	return hook.ReasonDeliveryLimit
}

// countReturn counts a failed delivery and reports whether it exceeds the limit.
func (c *contents) countReturn(s *slot) (exceeded bool) {
	n := s.returns()
	if n < math.MaxUint16 {
		n++
		s.setReturns(n)
	}
	return c.cfg.DeliveryLimit >= 0 && c.cfg.Kind == Quorum && int64(n) > c.cfg.DeliveryLimit
}

// requeue makes a message ready again, or held if a plugin wants that. The message keeps
// its deadline unless the strategy renews it.
func (q *Queue) requeue(now hook.Instant, h handle, kind SettleKind) {
	q.count.Requeued++
	s := h.slot()
	body := len(q.store.read(*s).body)
	s.flags |= redelivered
	q.untake(h, body)
	at, until, nacked := h.deadline(), hook.Instant(0), false
	if wantsReturn := q.hooks.WantsReturn(); q.hooks.WantsRequeue || wantsReturn {
		views, vs := q.present(now, []Ref{h.ref}, hook.WhyRequeue)
		views[0].Return = kind.comeback()
		q.hooks.Requeue(now, views, vs)
		if wantsReturn {
			views[0].Returns = q.countComeback(h, kind)
			nacked = kind == Requeue
			q.hooks.Return(now, views, vs)
		}
		q.buf.view = messageView{}
		until = vs[0].Hold
		if q.hooks.WantsRequeue {
			q.setAskHead(h, &vs[0])
			at = vs[0].Deadline
			q.journalDeadlineSet(h, at, q.setStrategyData(h, q.buf.leaving[0].record.after(&vs[0], h.deadline())))
			if vs[0].Again {
				q.askAboutRequeue(now, h.ref, now)
			}
		}
	}
	q.noteReturn(now, h.ref, at)
	q.journalReturned(h)
	switch {
	case until > now:
		q.hold(h, until)
		q.journalHeld(h)
	case nacked:
		q.journalHeld(h)
	}
	q.setDeadline(h, at)
}

// comeback returns k as the hooks see it.
func (k SettleKind) comeback() hook.Return {
	if k == Return {
		return hook.ReturnFailed
	}
	return hook.ReturnNacked
}
