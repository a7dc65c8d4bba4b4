package queue

import (
	"cmp"
	"slices"
	"sync/atomic"
	"time"

	"github.com/curfewmq/curfew/core/telemetry"
	"github.com/curfewmq/curfew/sdk/hook"
)

// At-least-once dead-lettering: a message that a plugin routes with
// [hook.Target].AtLeastOnce stays in its queue, out of reach of consumers, until every
// queue that it was routed to has confirmed it. One that leads nowhere, or was refused,
// is sent again later.

// retryMillis is when a discard is sent again that was not confirmed.
const retryMillis = 180_000

// discards are at-least-once dead letters that their targets have not confirmed. Those
// that are in the journal are discards after a restart, too.
type discards struct {
	count    int             // of messages, without those that are being retried
	messages map[Ref]discard // by reference
	again    []retry         // those that are to be sent again, in the order of their times

	retrying bool // some are being sent again
	back     int  // of those, how many have been put back into again
}

// discard is what is remembered of a discarded message.
type discard struct {
	reason hook.Reason  // none while it is being retried
	since  hook.Instant // when it became a discard; 0 means before a restart
}

// retry is a discard that is to be sent again.
type retry struct {
	ref Ref
	at  hook.Instant
}

// due reports whether some are to be sent before any others.
func (d *discards) due(now hook.Instant) bool {
	return !d.retrying && len(d.again) > 0 && now >= d.again[0].at
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

// restoreDiscard makes a taken message a discard that is to be sent at once.
func (q *Queue) restoreDiscard(r Ref, reason hook.Reason) {
	q.addDiscard(0, r, reason)
	q.discards.again = append(q.discards.again, retry{r, atOnce})
}

// addDiscard makes a taken message a discard, and reports whether it was none before.
func (q *Queue) addDiscard(now hook.Instant, r Ref, reason hook.Reason) (first bool) {
	if q.discards == nil {
		q.discards = &discards{messages: map[Ref]discard{}}
	}
	d := q.discards
	m, known := d.messages[r]
	if !known {
		m.since = now
	}
	m.reason = reason
	d.messages[r] = m
	d.count++
	q.unacked--
	return !known
}

// removeDiscard makes a discard a taken message. It may become a discard again, until
// it is forgotten.
func (q *Queue) removeDiscard(r Ref) {
	d := q.discards
	d.count--
	d.messages[r] = discard{since: d.messages[r].since}
	q.unacked++
}

// forget forgets a message that was removed and did not become a discard again.
func (d *discards) forget(r Ref) {
	if d.messages[r].reason == hook.ReasonNone {
		delete(d.messages, r)
	}
}

// confirming is an at-least-once dead letter that awaits confirms.
type confirming struct {
	ref     Ref
	verdict hook.Verdict
	pending atomic.Int32 // targets that have not answered
	refused atomic.Bool  // a target refused it, or failed
}

// deadLetterConfirms collects the confirms of dead letters. It is their batches'
// publisher.
type deadLetterConfirms struct {
	mailbox  *Mailbox
	messages []confirming
}

var _ Publisher = (*deadLetterConfirms)(nil)

// Confirmed implements [Publisher].
func (f *deadLetterConfirms) Confirmed(b *Batch) { f.answer(b, false) }

// Failed implements [Publisher].
func (f *deadLetterConfirms) Failed(b *Batch, _ error) { f.answer(b, true) }

func (f *deadLetterConfirms) answer(b *Batch, failed bool) {
	var answered []int
	for i := range b.Messages {
		n := int(b.Messages[i].Seq - 1)
		m := &f.messages[n]
		if failed || b.Messages[i].Flags&Refused != 0 {
			m.refused.Store(true)
		}
		if m.pending.Add(-1) == 0 {
			answered = append(answered, n)
		}
	}
	if len(answered) > 0 {
		f.mailbox.postAsync(task{kind: taskConfirmed, confirms: f, confirmed: answered})
	}
}

// startDiscards makes discards of taken messages and publishes them.
func (q *Queue) startDiscards(now hook.Instant, ms []confirming) {
	if len(ms) == 0 {
		return
	}
	for i := range ms {
		m := &ms[i]
		if q.addDiscard(now, m.ref, m.verdict.Reason) {
			q.journalDeadLettering(q.at(m.ref), m.verdict.Reason)
		}
	}
	n := 0
	if !q.discards.due(now) && underway.admit(q.mailbox) {
		for bytes := 0; n < len(ms) && bytes <= departBytes; n++ {
			bytes += int(q.at(ms[n].ref).slot().length)
		}
		underway.during(func() { q.publishDiscards(now, ms[:n]) })
	}
	q.retrySoon(now, ms[n:])
}

// publishDiscards publishes discards. The dead letters' Seq are the indexes in ms,
// from 1.
func (q *Queue) publishDiscards(now hook.Instant, ms []confirming) {
	f := &deadLetterConfirms{mailbox: q.mailbox, messages: ms}
	ds := make([]DeadLetter, len(ms))
	for i := range ms {
		s := q.at(ms[i].ref).slot()
		r := q.store.read(*s)
		ds[i] = deadLetterOf(&r, s, &ms[i].verdict)
		ds[i].Seq = uint64(i + 1)
	}
	q.host.DeadLetter(q.cfg, now, ds, Tracking{Publisher: f})
	var answered []int
	for i := range ds {
		if ds[i].Sent == 0 {
			q.retryLater(now, ms[i].ref)
			continue
		}
		if ms[i].pending.Add(int32(ds[i].Sent)) == 0 { // all targets have answered meanwhile
			answered = append(answered, i)
		}
	}
	q.discardsAnswered(now, f, answered)
}

// discardsAnswered removes messages that all targets have confirmed, and sends others
// that all have answered again later.
func (q *Queue) discardsAnswered(now hook.Instant, f *deadLetterConfirms, answered []int) {
	for _, i := range answered {
		m := &f.messages[i]
		if m.refused.Load() {
			q.retryLater(now, m.ref)
			continue
		}
		rec := q.store.read(*q.at(m.ref).slot())
		removal := q.removalOf(now, m.ref, &rec, &m.verdict)
		removal.Outcome = telemetry.DeadLettered
		q.buf.removals.all = append(q.buf.removals.all, removal)
	}
	q.publishRemovals(now, nil)
	for _, i := range answered {
		if m := &f.messages[i]; !m.refused.Load() {
			q.removeDiscard(m.ref)
			q.count.DeadLettered[m.verdict.Reason]++
			q.drop(q.at(m.ref))
			q.discards.forget(m.ref)
		}
	}
}

// waiting returns how many messages wait to leave, or for confirms.
func (q *Queue) waiting() int {
	n := q.departing.count()
	if q.discards != nil {
		n += q.discards.count
	}
	return n
}

// retryAt returns when discards are sent again, 0 for never.
func (q *Queue) retryAt() hook.Instant {
	if q.discards == nil || len(q.discards.again) == 0 {
		return 0
	}
	return q.discards.again[0].at
}

// purgeDiscards drops the discards that are to be sent again, and returns how many
// there were.
func (q *Queue) purgeDiscards() (n int) {
	d := q.discards
	if d == nil {
		return 0
	}
	for _, a := range d.again {
		q.removeDiscard(a.ref)
		q.drop(q.at(a.ref))
		d.forget(a.ref)
	}
	n = len(d.again)
	d.again = nil
	return n
}

func (q *Queue) retryLater(now hook.Instant, r Ref) {
	d := q.discards
	d.again = append(d.again, retry{r, now.AddMillis(retryMillis)})
}

// retrySoon sends discards when there is capacity: after those that wait already,
// unless it was their turn.
func (q *Queue) retrySoon(now hook.Instant, ms []confirming) {
	if len(ms) == 0 {
		return
	}
	d := q.discards
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

// retryDiscards sends discards that are due again, as many as a turn may, and reports
// whether there are more. The hooks decide anew where to, because the settings may have
// changed.
func (q *Queue) retryDiscards(now hook.Instant) (more bool) {
	d := q.discards
	if d == nil || !d.due(now) {
		return false
	}
	if !underway.hasCapacity(q.mailbox) {
		return true
	}
	n, bytes := 0, 0
	for n < len(d.again) && n < maxBatch && bytes <= departBytes && now >= d.again[n].at {
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
			q.removeDiscard(due[0].ref)
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
