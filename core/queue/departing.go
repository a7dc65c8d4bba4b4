package queue

import (
	"time"

	"github.com/curfewmq/curfew/sdk/hook"
)

// departure is a dead letter that waits in its queue, out of reach of consumers: for
// capacity (see traffic), for space, or for the commit of the transaction that removed
// it. For the hooks it has left.
type departure struct {
	ref    Ref
	reason hook.Reason
	target *hook.Target
}

// departures are the departures of a queue.
type departures struct {
	list []departure  // in the order in which they left
	at   hook.Instant // when the first ones are sent again, after there was no space for them
}

// spaceRetry is the pause before dead letters are sent again that go to several queues
// and found no space.
const spaceRetry = 100 * time.Millisecond

// departBytes is about how many bytes of dead letters leave at a time.
const departBytes = 256 << 10

// most returns the size at which a part of dead letters ends, with the message that
// exceeds it. For a second after a lack of space it is 0: then a part is one message.
func (d *departures) most(now hook.Instant) int {
	if d.at != 0 && now < d.at.Add(time.Second) {
		return 0
	}
	return departBytes
}

// wasUnsent reports whether there was no space for the dead letters that the host got.
// Then it also sets when they are sent again.
func (d *departures) wasUnsent(q *Queue, now hook.Instant) bool {
	if !q.buf.unsent {
		return false
	}
	q.buf.unsent, d.at = false, now.Add(spaceRetry)
	return true
}

// split puts dead letters that have to wait on the list, and returns the other messages.
// All of ms are taken. admitted reports whether traffic has admitted the queue: then
// there are dead letters among the returned messages.
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

// add puts a taken message on the list. Hooks that watch it learn that it has left.
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

// farewellBytes is how many bytes of waiting dead letters are published when their queue
// is deleted, with or without capacity. No limit bounds that memory.
const farewellBytes = 64 << 20

// sendAll publishes the waiting dead letters of a queue that is about to be deleted,
// without waiting for capacity. Dead letters beyond farewellBytes are dropped with the
// queue, and so are those for which a full disk has no space.
func (d *departures) sendAll(q *Queue, now hook.Instant) {
	for bytes := 0; len(d.list) > 0 && bytes < farewellBytes && q.mailbox.broker.underway.space.Moves(departBytes); {
		if bytes += d.sendSome(q, now); d.at > now {
			return
		}
	}
}

// sendSome publishes the first waiting dead letters, and returns their size in bytes.
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
