package queue

import (
	"slices"

	"github.com/curfewmq/curfew/core/amqp"
	"github.com/curfewmq/curfew/core/telemetry"
	"github.com/curfewmq/curfew/sdk/hook"
	"github.com/curfewmq/curfew/sdk/hook/guest"
)

// removals collects messages that leave their queue for a reason.
type removals struct {
	all  []telemetry.Removal
	dead []DeadLetter // those of all that have a target, in the same order

	at    hook.Instant // when they are published
	later *lateReport  // of removals whose outcome depends on the targets' answers; nil means none
}

// publish sends the dead letters, reports the removals, and clears both. Its dead letters
// are not stored in the queue, so they are sent even if there is no space.
func (r *removals) publish(q *Queue, now hook.Instant) {
	r.send(q, now, Tracking{leaves: q})
}

// publishKept is publish for messages that the queue still has. deferred, which may be
// nil, goes with the dead letters. If publishKept reports false, there was no space and
// the dead letters stay.
func (r *removals) publishKept(q *Queue, now hook.Instant, deferred *DeferredRemoval) (sent bool) {
	if deferred != nil {
		defer deferred.endUnsent()
		q.commit(nil) // the messages may have entered in this turn: their enqueues come first
	}
	return r.send(q, now, Tracking{Removal: deferred, from: q, leaves: q})
}

func (r *removals) send(q *Queue, now hook.Instant, t Tracking) (sent bool) {
	sent = len(r.dead) == 0 || r.sendDead(q, now, t)
	if len(r.all) > 0 {
		q.host.Removed(q.cfg, now, r.all)
	}
	r.clear()
	return sent
}

func (r *removals) sendDead(q *Queue, now hook.Instant, t Tracking) (sent bool) {
	r.at = now
	for i := range r.dead {
		r.dead[i].Seq = uint64(i + 1)
	}
	q.host.DeadLetter(q.cfg, now, r.dead, t)
	if q.departing.wasUnsent(q, now) {
		r.all = slices.DeleteFunc(r.all, func(l telemetry.Removal) bool { return l.Target != nil })
		t.Removal.withdraw()
		return false
	}
	r.fillOutcomes()
	return true
}

func (r *removals) clear() {
	clear(r.all)
	clear(r.dead)
	r.all, r.dead, r.later = r.all[:0], r.dead[:0], nil
}

// fillOutcomes sets the outcome of each removal with a target, and the queues that the
// message entered. It takes out the removals that r.later will report.
func (r *removals) fillOutcomes() {
	dead, now := r.dead, r.all[:0]
	for i := range r.all {
		if r.all[i].Target != nil {
			d := &dead[0]
			dead = dead[1:]
			if r.later.reports(d) {
				continue
			}
			r.all[i].Outcome, r.all[i].Entered = d.Outcome, d.Entered
		}
		if len(now) < i {
			r.all[len(now)] = r.all[i]
		}
		now = now[:len(now)+1]
	}
	clear(r.all[len(now):])
	r.all = now
}

// removalOf describes a message of the queue that leaves. It must be called before the
// record is freed.
func (q *Queue) removalOf(now hook.Instant, r Ref, rec *record, v *hook.Verdict) telemetry.Removal {
	h := q.at(r)
	return telemetry.Removal{
		Exchange: rec.exchange, Key: rec.key, Props: rec.props, Size: len(rec.body),
		Enqueued: min(rec.enqueued, now), Deadline: h.deadline(), Held: h.hold(),
		Reason: v.Reason, Target: targetOf(v), Digest: rec.setBy(),
		Underway: q.discards.underway(now, r), Traced: h.slot().flags&traced != 0, Overstayed: q.overstayed(r),
	}
}

// refusedRemoval describes a message that leaves as it enters.
func refusedRemoval(now hook.Instant, m *Message, v *hook.Verdict) telemetry.Removal {
	return telemetry.Removal{
		Exchange: amqp.BytesOf(m.Routing.Exchange), Key: amqp.BytesOf(m.Routing.Key), Props: m.Props, Size: len(m.Body),
		Enqueued: now, Deadline: v.Deadline, Reason: v.Reason, Target: targetOf(v), Digest: guest.Digest(v),
		Traced: m.Flags&Traced != 0,
	}
}

// targetOf returns the target of a verdict; nil means that the message is dropped.
func targetOf(v *hook.Verdict) *hook.Target {
	if v.Action != hook.Route {
		return nil
	}
	return v.Target
}

// drop removes a taken message. The caller counts the reason.
func (q *Queue) drop(h handle) {
	q.journalSettled(h)
	q.free(h)
}

// free is drop for a message whose removal is journalled elsewhere.
func (q *Queue) free(h handle) {
	q.unacked--
	s := h.slot()
	if s.flags&watched != 0 {
		q.buf.gone.left(q, h.ref, s)
	}
	if q.partly != nil {
		delete(q.partly, h.ref)
	}
	if q.promised != nil {
		delete(q.promised, h.ref)
	}
	q.forgetOverstay(h.ref)
	if q.holding != nil {
		q.holding.forget(h.ref)
		if n := q.holding.scheduled; n != nil {
			n.forgetID(q, h)
		}
	}
	q.store.free(*s)
	h.list.remove(h.chunk, h.index)
}
