package queue

import (
	"slices"

	"github.com/curfewmq/curfew/core/amqp"
	"github.com/curfewmq/curfew/sdk/hook"
	"github.com/curfewmq/curfew/sdk/hook/guest"
)

// leaving is a taken message that the hooks look at, with their verdict.
type leaving struct {
	ref     Ref
	record  record
	verdict *hook.Verdict
}

// runHeadHooks runs the head hooks for taken messages and applies the verdicts. These
// begin as Keep or, with [hook.WhyLeaving], as Drop for the reason.
func (q *Queue) runHeadHooks(now hook.Instant, refs []Ref, why hook.Why, reason hook.Reason) {
	for len(refs) > 0 {
		n := min(len(refs), maxBatch)
		views, vs := q.present(now, refs[:n], why)
		if why == hook.WhyLeaving {
			for i := range vs {
				vs[i].Action, vs[i].Reason = hook.Drop, reason
			}
		}
		if q.hooks.WantsHead {
			q.hooks.Head(now, views, vs)
		}
		q.buf.view = messageView{}
		if why != hook.WhyLeaving && q.askBackoff.millis > 0 && slices.ContainsFunc(vs, leaves) {
			q.askBackoff = askBackoff{}
		}
		q.applyVerdicts(now, q.buf.leaving, why)
		refs = refs[n:]
	}
	q.endShow()
}

func leaves(v hook.Verdict) bool { return v.Action != hook.Keep }

// present prepares a hook call about at most maxBatch stored messages: it returns a view
// and a verdict for each. It sets buf.leaving to the messages.
func (q *Queue) present(now hook.Instant, refs []Ref, why hook.Why) ([]hook.Message, []hook.Verdict) {
	w := q.buf
	views, vs := w.batch(len(refs))
	w.leaving = w.leaving[:0]
	for i, ref := range refs {
		h := q.at(ref)
		s := h.slot()
		w.leaving = append(w.leaving, leaving{ref, q.store.read(*s), &vs[i]})
		r := &w.leaving[i].record
		views[i] = hook.Message{
			Enqueued: r.enqueued, Deadline: h.deadline(), State: r.state, Size: len(r.body),
			Deliveries: uint32(s.returns()), Priority: amqp.Priority(r.props), Why: why,
			Redelivered: s.flags&redelivered != 0, Persistent: s.flags&persistent != 0, Traced: s.flags&traced != 0,
		}
		guest.SetMessageDigest(&views[i], r.setBy())
		views[i].Bind(&w.view, i)
		vs[i].Hold = q.shownHold(ref).until
	}
	w.view = messageView{queue: q, now: now, stored: w.leaving}
	return views, vs
}

// applyVerdicts carries out the verdicts about taken messages. Dead letters for which
// there is no capacity wait: see departures.
func (q *Queue) applyVerdicts(now hook.Instant, ms []leaving, why hook.Why) {
	ms = q.splitAtLeastOnce(now, ms)
	ms, admitted := q.departing.split(q, ms)
	if !admitted {
		q.applyNow(now, ms, why)
		return
	}
	q.mailbox.broker.underway.during(func() { q.applyNow(now, ms, why) })
	q.departing.send(q, now)
}

// applyNow is applyVerdicts for messages that need not wait.
func (q *Queue) applyNow(now hook.Instant, ms []leaving, why hook.Why) {
	r := &q.buf.removals
	for i := range ms {
		switch m := &ms[i]; m.verdict.Action {
		case hook.Route:
			r.dead = append(r.dead, deadLetterOf(&m.record, q.at(m.ref).slot(), m.verdict))
			r.all = append(r.all, q.removalOf(now, m.ref, &m.record, m.verdict))
		case hook.Drop:
			r.all = append(r.all, q.removalOf(now, m.ref, &m.record, m.verdict))
		}
	}
	sent, waiting := q.buf.removals.publishKept(q, now, deferredRemoval(q, ms)), q.departing.list // before the records are freed
	if !sent {
		q.departing.list = nil
	}
	for i := range ms {
		if m := &ms[i]; !sent && m.verdict.Action == hook.Route {
			q.departing.add(q, m)
			continue
		}
		q.applyVerdict(now, &ms[i], why)
	}
	if !sent {
		q.departing.list = append(q.departing.list, waiting...)
	}
	q.buf.parting = nil
}

// applyVerdict frees a message or puts it back, as its verdict says.
func (q *Queue) applyVerdict(now hook.Instant, m *leaving, why hook.Why) {
	h := q.at(m.ref)
	switch m.verdict.Action {
	case hook.Route:
		q.count.DeadLettered[m.verdict.Reason]++
		q.free(h)
	case hook.Drop:
		q.count.Dropped[m.verdict.Reason]++
		q.drop(h)
	default:
		q.putBack(now, h, m, why)
	}
}

// splitAtLeastOnce makes discards of the messages that are dead-lettered at least once,
// and returns the others.
func (q *Queue) splitAtLeastOnce(now hook.Instant, ms []leaving) []leaving {
	var held []inTransfer
	others := ms[:0]
	for i := range ms {
		if v := ms[i].verdict; v.Action == hook.Route && v.Target.AtLeastOnce {
			held = append(held, inTransfer{ref: ms[i].ref, verdict: *v})
			continue
		}
		if len(held) > 0 {
			ms[len(others)] = ms[i]
		}
		others = others[:len(others)+1]
	}
	q.startDiscards(now, held)
	return others
}

// deadLetterOf returns the dead letter that a stored message becomes.
func deadLetterOf(r *record, s *slot, v *hook.Verdict) DeadLetter {
	return DeadLetter{
		Exchange: r.exchange, Key: r.key, BCC: blindKeys(r.bcc), Props: r.props, Body: r.body,
		Flags: s.flags.public(), Reason: v.Reason, Target: v.Target,
	}
}

// putBack makes a message ready or held again that its hooks kept. A deadline that only
// sets when the hooks are asked again is not journalled: the journal keeps the deadline
// that it has.
func (q *Queue) putBack(now hook.Instant, h handle, m *leaving, why hook.Why) {
	s, v := h.slot(), m.verdict
	if why == hook.WhyHead { // the hooks are not asked again in this turn
		s.flags &^= askHead
		q.buf.asked = append(q.buf.asked, m.ref)
	} else {
		q.setAskHead(h, v)
	}
	at := h.deadline()
	if q.hooks.WantsHead {
		journalled, changed := at, q.setStrategyData(h, m.record.after(v, at))
		if at = v.Deadline; !v.Again {
			journalled = at
		}
		q.journalDeadlineSet(h, journalled, changed)
	}
	if at != 0 && at <= now {
		at = q.askBackoff.askAgain(now)
	} else {
		q.forgetOverstay(m.ref)
	}
	if q.buf.late { // a consumer returned the message
		s.flags |= redelivered
		q.journalReturned(h)
	}
	q.untake(h, len(m.record.body))
	if v.Hold > now || q.shownHold(m.ref).until != 0 { // releaseDue ends a hold that is over, not this function
		q.holding.keep(q, now, h, v.Hold)
	}
	q.setDeadline(h, at)
}

// setAskHead sets the flag askHead of a message if its hooks want to see it at the head.
func (c *contents) setAskHead(h handle, v *hook.Verdict) {
	if s := h.slot(); v.AskHead && s.flags&askHead == 0 {
		s.flags |= askHead
		c.journalAsks(h)
	}
}
