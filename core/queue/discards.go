package queue

import (
	"cmp"
	"slices"
	"time"

	"github.com/curfewmq/curfew/core/telemetry"
	"github.com/curfewmq/curfew/sdk/hook"
)

// retryMillis is the pause before a discard that was not confirmed is sent again.
const retryMillis = 180_000

// At-least-once dead-lettering: a message that a plugin routes with
// [hook.Target].AtLeastOnce stays in its queue, out of reach of consumers, until every
// queue that it was routed to has confirmed it. A message that was routed to no queue, or
// was refused, is sent again later, but not to the queues that have it. A message that a
// filter keeps out is dropped, unless a filter admitted it on an earlier attempt: then
// filters are not asked again.

// discards are at-least-once dead letters that their targets have not confirmed. A
// restart restores those in the journal as discards. A nil pointer has none.
type discards struct {
	count    int             // without those that are being retried
	messages map[Ref]discard // includes those that are being retried
	again    []retry         // discards to be sent again, in the order of their times

	retrying bool // sendDue is sending some again
	back     int  // of those, how many were put back at the front of again
}

// discard describes a message that was discarded and not confirmed.
type discard struct {
	reason   hook.Reason  // none while it is being retried
	since    hook.Instant // when it became a discard; 0 means before a restart
	admitted bool         // a filter admitted it since the start
}

// retry is a discard that will be sent again.
type retry struct {
	ref Ref
	at  hook.Instant
}

// startDiscards makes discards of taken messages. It publishes as many of them as there
// is capacity for; the others follow soon.
func (q *Queue) startDiscards(now hook.Instant, ms []inTransfer) {
	if len(ms) == 0 {
		return
	}
	d := q.discarding()
	for i := range ms {
		m := &ms[i]
		if d.take(q, now, m.ref, m.verdict.Reason) {
			q.journalDeadLettering(q.at(m.ref), m.verdict.Reason)
			q.buf.gone.departs(q, m.ref)
		}
	}
	n, underway := 0, &q.mailbox.broker.underway
	if !q.buf.committing && !d.due(now) && underway.admit(q.mailbox) {
		for bytes := 0; n < len(ms) && bytes <= q.departing.most(now); n++ {
			bytes += int(q.at(ms[n].ref).slot().length)
		}
		underway.during(func() { d.publish(q, now, ms[:n]) })
	}
	d.retrySoon(now, ms[n:])
}

// discarding returns the queue's discards, which exist from the first one on.
func (q *Queue) discarding() *discards {
	if q.discards == nil {
		q.discards = &discards{messages: map[Ref]discard{}}
	}
	return q.discards
}

// publish sends discards to their targets.
func (d *discards) publish(q *Queue, now hook.Instant, ms []inTransfer) {
	t := &transfer{mailbox: q.mailbox, storage: q.cfg.Storage, messages: ms}
	ds := make([]DeadLetter, len(ms))
	for i := range ms {
		m := &ms[i]
		s := q.at(m.ref).slot()
		r := q.store.read(*s)
		ds[i] = deadLetterOf(&r, s, &m.verdict)
		ds[i].Seq, ds[i].Admitted = uint64(i+1), d.messages[m.ref].admitted
		ds[i].have = q.have(m.ref, m.verdict.Target)
	}
	if !t.publish(q, now, ds) {
		for i := range ms {
			d.retryLater(now, ms[i].ref)
		}
		return
	}
	var arrived, filtered []int
	for i := range ds {
		if ds[i].Outcome == telemetry.Filtered {
			filtered = append(filtered, i)
			continue
		}
		if ds[i].Admitted {
			d.noteAdmitted(ms[i].ref)
		}
		switch {
		case ds[i].Sent > 0:
		case ds[i].Partly() && ds[i].Outcome == telemetry.DeadLettered: // all targets have it
			arrived = append(arrived, i)
		default:
			d.retryLater(now, ms[i].ref)
		}
	}
	d.drop(q, now, t, filtered, telemetry.Filtered)
	d.drop(q, now, t, arrived, telemetry.DeadLettered)
}

// answered removes the messages that all targets have confirmed. It schedules a retry of
// the others.
func (d *discards) answered(q *Queue, now hook.Instant, t *transfer, answered []int) {
	confirmed := answered[:0]
	for _, i := range answered {
		if m := &t.messages[i]; m.failure() != NotChosen {
			q.noteHave(m.ref, m.verdict.Target, m.have)
			d.retryLater(now, m.ref)
			continue
		}
		confirmed = append(confirmed, i)
	}
	d.drop(q, now, t, confirmed, telemetry.DeadLettered)
}

// drop removes messages for good, with this outcome.
func (d *discards) drop(q *Queue, now hook.Instant, t *transfer, list []int, outcome telemetry.Outcome) {
	t.reportAll(q, now, list, outcome)
	for _, i := range list {
		m := &t.messages[i]
		d.giveBack(q, m.ref)
		q.count.DeadLettered[m.verdict.Reason]++
		q.drop(q.at(m.ref))
		d.forget(m.ref)
	}
}

// take makes a taken message a discard, and reports whether it was none before.
func (d *discards) take(q *Queue, now hook.Instant, r Ref, reason hook.Reason) (first bool) {
	q.unacked--
	return d.add(now, r, reason)
}

// giveBack makes a discard a taken message.
func (d *discards) giveBack(q *Queue, r Ref) {
	d.remove(r)
	q.unacked++
}

// restore makes a restored message a discard that is to be sent at once.
func (d *discards) restore(q *Queue, r Ref, reason hook.Reason) {
	d.take(q, 0, r, reason)
	d.again = append(d.again, retry{r, atOnce})
}

// purge drops the discards that are to be sent again, and returns how many there were.
func (d *discards) purge(q *Queue) (n int) {
	if d == nil {
		return 0
	}
	for _, a := range d.again {
		d.giveBack(q, a.ref)
		q.drop(q.at(a.ref))
		d.forget(a.ref)
	}
	n = len(d.again)
	d.again = nil
	return n
}

// sendDue sends discards again whose retry is due: as many as a turn may. It reports
// whether more are due. The hooks choose the targets anew, because settings may have
// changed.
func (d *discards) sendDue(q *Queue, now hook.Instant) (more bool) {
	if !d.due(now) {
		return false
	}
	if !q.mailbox.broker.underway.hasCapacity(q.mailbox) {
		return true
	}
	n, bytes := 0, 0
	for n < len(d.again) && n < maxBatch && bytes <= q.departing.most(now) && now >= d.again[n].at {
		bytes += int(q.at(d.again[n].ref).slot().length)
		n++
	}
	all := d.again[:n]
	if d.again = d.again[n:]; len(d.again) == 0 {
		d.again = nil
	}
	d.retrying, d.back = true, 0
	for due := all; len(due) > 0; {
		reason, refs := d.reason(due[0].ref), q.buf.due[:0]
		for len(due) > 0 && d.reason(due[0].ref) == reason {
			d.giveBack(q, due[0].ref)
			refs = append(refs, due[0].ref)
			due = due[1:]
		}
		q.buf.due = refs
		q.runHeadHooks(now, refs, hook.WhyLeaving, reason)
	}
	d.retrying = false
	for _, a := range all {
		d.forget(a.ref)
	}
	return d.due(now)
}

// due reports whether a discard is to be sent again now. New dead letters wait until it
// is sent.
func (d *discards) due(now hook.Instant) bool {
	return d != nil && !d.retrying && len(d.again) > 0 && now >= d.again[0].at
}

// reason returns why a message is a discard, none if it is not.
func (d *discards) reason(r Ref) hook.Reason {
	if d == nil {
		return hook.ReasonNone
	}
	return d.messages[r].reason
}

// underway returns how long a message has been a discard: 0 if it never was one, and a
// negative duration if it became one before a restart.
func (d *discards) underway(now hook.Instant, r Ref) time.Duration {
	if d == nil {
		return 0
	}
	m, ok := d.messages[r]
	switch {
	case !ok:
		return 0
	case m.since == 0:
		return -1
	}
	return now.Sub(m.since)
}

// add makes a message a discard, and reports whether it was none before.
func (d *discards) add(now hook.Instant, r Ref, reason hook.Reason) (first bool) {
	m, known := d.messages[r]
	if !known {
		m.since = now
	}
	m.reason = reason
	d.messages[r] = m
	d.count++
	return !known
}

// remove makes a message no discard. Its data stays until forget, because it may become a
// discard again.
func (d *discards) remove(r Ref) {
	d.count--
	m := d.messages[r]
	m.reason = hook.ReasonNone
	d.messages[r] = m
}

// noteAdmitted records that a filter admitted a discard.
func (d *discards) noteAdmitted(r Ref) {
	m := d.messages[r]
	m.admitted = true
	d.messages[r] = m
}

// forget deletes the data of a removed message, unless it has become a discard again.
func (d *discards) forget(r Ref) {
	if d.messages[r].reason == hook.ReasonNone {
		delete(d.messages, r)
	}
}

// retryAt returns when discards are sent again, 0 for never.
func (d *discards) retryAt() hook.Instant {
	if d == nil || len(d.again) == 0 {
		return 0
	}
	return d.again[0].at
}

// retryLater schedules the retry of a discard that was not confirmed.
func (d *discards) retryLater(now hook.Instant, r Ref) {
	d.again = append(d.again, retry{r, now.AddMillis(retryMillis)})
}

// retrySoon schedules discards to be sent as soon as there is capacity. They wait behind
// the discards that are due already; those that sendDue was just sending return to the
// front.
func (d *discards) retrySoon(now hook.Instant, ms []inTransfer) {
	if len(ms) == 0 {
		return
	}
	at, _ := slices.BinarySearchFunc(d.again, now+1, func(a retry, t hook.Instant) int { return cmp.Compare(a.at, t) })
	if d.retrying {
		if len(d.again) > 0 {
			now = min(now, d.again[0].at)
		}
		at = d.back
		d.back += len(ms)
	}
	soon := make([]retry, len(ms))
	for i := range ms {
		soon[i] = retry{ms[i].ref, now}
	}
	d.again = slices.Insert(d.again, at, soon...)
}
