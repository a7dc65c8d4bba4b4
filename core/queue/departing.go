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

// departures are the departures of a queue.
type departures struct {
	list []departure  // in the order in which they left
	at   hook.Instant // when the first of them are sent again, for which there was no space
}

// spaceRetry is when dead letters for which there was no space, because they go to several
// queues, are sent again.
const spaceRetry = 100 * time.Millisecond

// departBytes is about how much leaves at a time.
const departBytes = 256 << 10

// most returns how many bytes the messages before the last one have that leaves: the
// part has one message for a second after there was no space for a larger one.
func (d *departures) most(now hook.Instant) int {
	if d.at != 0 && now < d.at.Add(time.Second) {
		return 0
	}
	return departBytes
}

// wasUnsent reports whether there was no space for the dead letters that the host got.
func (d *departures) wasUnsent(q *Queue, now hook.Instant) bool {
	if !q.buf.unsent {
		return false
	}
	q.buf.unsent, d.at = false, now.Add(spaceRetry)
	return true
}

// split makes dead letters wait for which there is no capacity, and returns
// the other messages. All are taken. admitted reports that dead letters are among
// these, for which traffic has admitted the queue.
func (d *departures) split(q *Queue, ms []leaving) (_ []leaving, admitted bool) {
	kept, bytes := 0, 0
	for i := range ms {
		m := &ms[i]
		if m.verdict.Action == hook.Route {
			admitted = admitted || len(d.list) == 0 && !q.buf.committing && q.mailbox.broker.underway.admit(q.mailbox)
			if !admitted || bytes > departBytes {
				d.add(q, m)
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

func (d *departures) add(q *Queue, m *leaving) {
	h := q.at(m.ref)
	if s := h.slot(); s.flags&watched != 0 {
		s.flags &^= watched
		q.buf.gone.left(q, m.ref, s)
	}
	if q.buf.committing {
		q.promiseDeath(h, m.verdict.Reason)
	}
	d.list = append(d.list, departure{m.ref, m.verdict.Reason, m.verdict.Target})
	q.unacked--
}

// send publishes waiting dead letters while there is capacity.
func (d *departures) send(q *Queue, now hook.Instant) {
	for len(d.list) > 0 && now >= d.at && q.mailbox.broker.underway.admit(q.mailbox) {
		q.mailbox.broker.underway.during(func() { d.sendSome(q, now) })
	}
}

// farewellBytes is how much of what waits is published when its queue is deleted, with
// or without capacity. No limit counts that memory then.
const farewellBytes = 64 << 20

// sendAll publishes waiting dead letters of a queue that is about to be deleted: with
// capacity they would have left long ago. Beyond farewellBytes they go with the queue, and
// so do those for which a full disk has no space.
func (d *departures) sendAll(q *Queue, now hook.Instant) {
	for bytes := 0; len(d.list) > 0 && bytes < farewellBytes && q.mailbox.broker.underway.space.Moves(departBytes); {
		if bytes += d.sendSome(q, now); d.at > now {
			return
		}
	}
}

// sendSome publishes the first waiting dead letters, and returns how many bytes they
// are.
func (d *departures) sendSome(q *Queue, now hook.Instant) (bytes int) {
	w, waiting := q.buf, d.list
	_, vs := w.batch(min(len(waiting), maxBatch))
	ms := w.leaving[:0]
	for i := 0; i < len(vs) && bytes <= d.most(now); i++ {
		l := waiting[i]
		s := q.at(l.ref).slot()
		bytes += int(s.length)
		vs[i] = hook.Verdict{Action: hook.Route, Reason: l.reason, Target: l.target}
		ms = append(ms, leaving{l.ref, q.store.read(*s), &vs[i]})
	}
	w.leaving = ms
	clear(waiting[:len(ms)])
	if d.list = waiting[len(ms):]; len(d.list) == 0 {
		d.list = nil
	}
	q.unacked += len(ms)
	q.applyNow(now, ms, hook.WhyLeaving)
	return bytes
}
