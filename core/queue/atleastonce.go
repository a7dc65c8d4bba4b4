package queue

import (
	"sync"
	"sync/atomic"

	"github.com/curfewmq/curfew/core/telemetry"
	"github.com/curfewmq/curfew/sdk/hook"
)

// At-least-once dead-lettering: a message that a plugin routes with
// [hook.Target].AtLeastOnce stays in its queue, out of reach of consumers, until every
// queue that it was routed to has confirmed it. One that leads nowhere, or was refused,
// is sent again later, but not to the queues that have it; one that a filter keeps out is dropped, unless one admitted it
// before: then filters are not asked again.

// confirming is an at-least-once dead letter that awaits confirms.
type confirming struct {
	ref     Ref
	verdict hook.Verdict
	entered *telemetry.Entered // the queues that it was routed to; belongs to the queue's turn
	pending atomic.Int32       // targets that have not answered
	refused atomic.Bool        // a target refused it, or failed
	alone   bool               // it has one target
	have    []uint64           // targets that took it, unless it is alone; guarded by the mutex
}

// deadLetterConfirms collects the confirms of dead letters. It is their batches'
// publisher.
type deadLetterConfirms struct {
	mailbox  *Mailbox
	messages []confirming
	mu       sync.Mutex // guards the messages' have until all targets have answered
}

var _ Publisher = (*deadLetterConfirms)(nil)

// Confirmed implements [Publisher].
func (f *deadLetterConfirms) Confirmed(b *Batch) { f.answer(b, false) }

// Failed implements [Publisher].
func (f *deadLetterConfirms) Failed(b *Batch, _ error) { f.answer(b, true) }

// expect is [Tracking.Expect].
func (f *deadLetterConfirms) expect(ds []DeadLetter) {
	for i := range ds {
		m := &f.messages[ds[i].Seq-1]
		m.alone = ds[i].Sent == 1
		m.pending.Store(int32(ds[i].Sent))
	}
}

func (f *deadLetterConfirms) answer(b *Batch, failed bool) {
	var answered []int
	for i := range b.Messages {
		n := int(b.Messages[i].Seq - 1)
		m := &f.messages[n]
		switch {
		case failed || b.Messages[i].Flags&Refused != 0:
			m.refused.Store(true)
		case !m.alone:
			f.mu.Lock()
			m.have = append(m.have, b.to.order)
			f.mu.Unlock()
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
			q.tellDeparts(m.ref)
		}
	}
	n := 0
	if !q.buf.committing && !q.discards.due(now) && q.mailbox.broker.underway.admit(q.mailbox) {
		for bytes := 0; n < len(ms) && bytes <= q.departBytes(now); n++ {
			bytes += int(q.at(ms[n].ref).slot().length)
		}
		q.mailbox.broker.underway.during(func() { q.publishDiscards(now, ms[:n]) })
	}
	q.discards.retrySoon(now, ms[n:])
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
		ds[i].Seq, ds[i].Admitted = uint64(i+1), q.discards.messages[ms[i].ref].admitted
		ds[i].have = q.have(ms[i].ref, ms[i].verdict.Target)
	}
	q.host.DeadLetter(q.cfg, now, ds, Tracking{Publisher: f, from: q})
	if q.wasUnsent(now) {
		for i := range ms {
			q.discards.retryLater(now, ms[i].ref)
		}
		return
	}
	var arrived, filtered []int
	for i := range ds {
		if ds[i].Outcome == telemetry.Filtered {
			filtered = append(filtered, i)
			continue
		}
		ms[i].entered = ds[i].Entered
		if ds[i].Admitted {
			q.discards.noteAdmitted(ms[i].ref)
		}
		switch {
		case ds[i].Sent > 0:
		case ds[i].Partly() && ds[i].Outcome == telemetry.DeadLettered: // all targets have it
			arrived = append(arrived, i)
		default:
			q.discards.retryLater(now, ms[i].ref)
		}
	}
	q.removeDiscards(now, f, filtered, telemetry.Filtered)
	q.removeDiscards(now, f, arrived, telemetry.DeadLettered)
}

// discardsAnswered removes messages that all targets have confirmed, and sends others
// that all have answered again later.
func (q *Queue) discardsAnswered(now hook.Instant, f *deadLetterConfirms, answered []int) {
	confirmed := answered[:0]
	for _, i := range answered {
		if m := &f.messages[i]; m.refused.Load() {
			q.noteHave(m.ref, m.verdict.Target, m.have)
			q.discards.retryLater(now, m.ref)
			continue
		}
		confirmed = append(confirmed, i)
	}
	q.removeDiscards(now, f, confirmed, telemetry.DeadLettered)
}

// removeDiscards removes messages for good, with this outcome.
func (q *Queue) removeDiscards(now hook.Instant, f *deadLetterConfirms, list []int, outcome telemetry.Outcome) {
	for _, i := range list {
		m := &f.messages[i]
		rec := q.store.read(*q.at(m.ref).slot())
		removal := q.removalOf(now, m.ref, &rec, &m.verdict)
		removal.Outcome, removal.Entered = outcome, m.entered
		q.buf.removals.all = append(q.buf.removals.all, removal)
	}
	q.publishRemovals(now)
	for _, i := range list {
		m := &f.messages[i]
		q.removeDiscard(m.ref)
		q.count.DeadLettered[m.verdict.Reason]++
		q.drop(q.at(m.ref))
		q.discards.forget(m.ref)
	}
}

// addDiscard makes a taken message a discard, and reports whether it was none before.
func (q *Queue) addDiscard(now hook.Instant, r Ref, reason hook.Reason) (first bool) {
	if q.discards == nil {
		q.discards = &discards{messages: map[Ref]discard{}}
	}
	q.unacked--
	return q.discards.add(now, r, reason)
}

// removeDiscard makes a discard a taken message.
func (q *Queue) removeDiscard(r Ref) {
	q.discards.remove(r)
	q.unacked++
}

// restoreDiscard makes a taken message a discard that is to be sent at once.
func (q *Queue) restoreDiscard(r Ref, reason hook.Reason) {
	q.addDiscard(0, r, reason)
	q.discards.again = append(q.discards.again, retry{r, atOnce})
}

// waiting returns how many messages wait to leave, or for confirms, or are redriven.
func (q *Queue) waiting() int {
	n := len(q.departing) + q.moving
	if q.discards != nil {
		n += q.discards.count
	}
	return n
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

// retryDiscards sends discards that are due again, as many as a turn may, and reports
// whether there are more. The hooks decide anew where to, because the settings may have
// changed.
func (q *Queue) retryDiscards(now hook.Instant) (more bool) {
	d := q.discards
	if !d.due(now) {
		return false
	}
	if !q.mailbox.broker.underway.hasCapacity(q.mailbox) {
		return true
	}
	n, bytes := 0, 0
	for n < len(d.again) && n < maxBatch && bytes <= q.departBytes(now) && now >= d.again[n].at {
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
