package queue

import (
	"time"

	"github.com/curfewmq/curfew/sdk/hook"
)

// departure is a dead letter that waits for capacity, see traffic, or for the commit of
// the transaction that removed it. It is in its queue until then, out of reach of
// consumers; hooks take it for one that has left.
type departure struct {
	ref    Ref
	reason hook.Reason
	target *hook.Target
}

// spaceRetry is when dead letters for which there was no space, because they go to several
// queues, are sent again.
const spaceRetry = 100 * time.Millisecond

// departBytes is about how much leaves at a time.
const departBytes = 256 << 10

// departBytes returns how many bytes the messages before the last one have that leaves: the
// part has one message for a second after there was no space for a larger one.
func (q *Queue) departBytes(now hook.Instant) int {
	if q.departAt != 0 && now < q.departAt.Add(time.Second) {
		return 0
	}
	return departBytes
}

// wasUnsent reports whether there was no space for the dead letters that the host got.
func (q *Queue) wasUnsent(now hook.Instant) bool {
	if !q.buf.unsent {
		return false
	}
	q.buf.unsent, q.departAt = false, now.Add(spaceRetry)
	return true
}

// deferDepartures makes dead letters wait for which there is no capacity, and returns
// the other messages. All are taken. admitted reports that dead letters are among
// these, for which traffic has admitted the queue.
func (q *Queue) deferDepartures(ms []leaving) (_ []leaving, admitted bool) {
	kept, bytes := 0, 0
	for i := range ms {
		m := &ms[i]
		if m.verdict.Action == hook.Route {
			admitted = admitted || len(q.departing) == 0 && !q.buf.committing && q.mailbox.broker.underway.admit(q.mailbox)
			if !admitted || bytes > departBytes {
				q.deferDeparture(m)
				continue
			}
			bytes += int(q.at(m.ref).slot().length)
		}
		if kept < i {
			ms[kept] = *m
		}
		kept++
	}
	return ms[:kept], admitted
}

func (q *Queue) deferDeparture(m *leaving) {
	h := q.at(m.ref)
	if s := h.slot(); s.flags&watched != 0 {
		s.flags &^= watched
		q.tellGone(m.ref, s)
	}
	if q.buf.committing {
		q.promiseDeath(h, m.verdict.Reason)
	}
	q.departing = append(q.departing, departure{m.ref, m.verdict.Reason, m.verdict.Target})
	q.unacked--
}

// depart publishes waiting dead letters while there is capacity.
func (q *Queue) depart(now hook.Instant) {
	for len(q.departing) > 0 && now >= q.departAt && q.mailbox.broker.underway.admit(q.mailbox) {
		q.mailbox.broker.underway.during(func() { q.departSome(now) })
	}
}

// farewellBytes is how much of what waits is published when its queue is deleted, with
// or without capacity. No limit counts that memory then.
const farewellBytes = 64 << 20

// departNow publishes waiting dead letters of a queue that is about to be deleted: with
// capacity they would have left long ago. Beyond farewellBytes they go with the queue, and
// so do those for which a full disk has no space.
func (q *Queue) departNow(now hook.Instant) {
	for bytes := 0; len(q.departing) > 0 && bytes < farewellBytes && q.mailbox.broker.underway.space.Moves(departBytes); {
		if bytes += q.departSome(now); q.departAt > now {
			return
		}
	}
}

// departSome publishes the first waiting dead letters, and returns how many bytes they
// are.
func (q *Queue) departSome(now hook.Instant) (bytes int) {
	w, waiting := q.buf, q.departing
	_, vs := w.batch(min(len(waiting), maxBatch))
	ms := w.leaving[:0]
	for i := 0; i < len(vs) && bytes <= q.departBytes(now); i++ {
		l := waiting[i]
		s := q.at(l.ref).slot()
		bytes += int(s.length)
		vs[i] = hook.Verdict{Action: hook.Route, Reason: l.reason, Target: l.target}
		ms = append(ms, leaving{l.ref, q.store.read(*s), &vs[i]})
	}
	w.leaving = ms
	clear(waiting[:len(ms)])
	if q.departing = waiting[len(ms):]; len(q.departing) == 0 {
		q.departing = nil
	}
	q.unacked += len(ms)
	q.applyNow(now, ms, hook.WhyLeaving)
	return bytes
}
