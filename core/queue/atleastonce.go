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
// [hook.Target].AtLeastOnce stays, out of reach of consumers, until every queue
// it was routed to has taken it. One that leads nowhere, or was refused, is sent
// again later.

// retryMillis is when a discarded message is sent again that did not arrive.
const retryMillis = 180_000

// discards are messages on their way out of a queue that waits for their arrival.
// Those that are in the journal are discards after a restart, too.
type discards struct {
	count   int // all of them
	reasons map[Ref]hook.Reason
	since   map[Ref]hook.Instant // when that was decided; 0 = before a restart
	again   []discard            // those that did not arrive, in the order of their times

	retrying bool // some are sent again
	back     int  // meanwhile: how many of those have been put back
}

// due reports whether some are to be sent before any others.
func (d *discards) due(now hook.Instant) bool {
	return !d.retrying && len(d.again) > 0 && now >= d.again[0].at
}

// discard is a message that is to be sent again.
type discard struct {
	ref Ref
	why hook.Reason
	at  hook.Instant // when
}

// why returns for what reason a message is a discard, none if it is not.
func (d *discards) why(r Ref) hook.Reason {
	if d == nil {
		return hook.ReasonNone
	}
	return d.reasons[r]
}

// known reports whether a message was a discard before, which is written down.
func (d *discards) known(r Ref) bool {
	if d == nil {
		return false
	}
	_, known := d.since[r]
	return known
}

// underway returns how long a message has been a discard, 0 if it never was one
// and less if that was before a restart.
func (d *discards) underway(now hook.Instant, r Ref) time.Duration {
	if d == nil {
		return 0
	}
	began, ok := d.since[r]
	switch {
	case !ok:
		return 0
	case began == 0:
		return -1
	}
	return now.Sub(began)
}

// restoreDiscard makes a taken message a discard that is to be sent at once.
func (q *Queue) restoreDiscard(r Ref, why hook.Reason) {
	q.addDiscard(0, r, why)
	d := q.discards
	d.again = append(d.again, discard{r, why, atOnce})
}

// addDiscard makes a taken message a discard, for the first time or again.
func (q *Queue) addDiscard(now hook.Instant, r Ref, why hook.Reason) {
	if q.discards == nil {
		q.discards = &discards{reasons: map[Ref]hook.Reason{}, since: map[Ref]hook.Instant{}}
	}
	d := q.discards
	d.count++
	d.reasons[r] = why
	if _, again := d.since[r]; !again {
		d.since[r] = now
	}
	q.unacked--
}

// removeDiscard makes a discard a taken message. It may become a discard again,
// unless it is forgotten.
func (q *Queue) removeDiscard(r Ref) {
	q.discards.count--
	delete(q.discards.reasons, r)
	q.unacked++
}

// forget forgets messages that were discards and are not any more.
func (d *discards) forget(r Ref) {
	if d.reasons[r] == hook.ReasonNone {
		delete(d.since, r)
	}
}

// deadLetterConfirms follows messages to their queues. It is their batches' source.
type deadLetterConfirms struct {
	mailbox *Mailbox
	picks   []pick
	vs      []hook.Verdict
	left    []atomic.Int32 // queues that have not answered, for each
	lost    []atomic.Bool  // one of them refused
}

var _ Publisher = (*deadLetterConfirms)(nil)

// Confirmed implements [Source].
func (f *deadLetterConfirms) Confirmed(b *Batch) { f.answer(b, false) }

// Failed implements [Source].
func (f *deadLetterConfirms) Failed(b *Batch, _ error) { f.answer(b, true) }

func (f *deadLetterConfirms) answer(b *Batch, failed bool) {
	var done []int
	for i := range b.Messages {
		m := &b.Messages[i]
		n := int(m.Seq - 1)
		if failed || m.Flags&Refused != 0 {
			f.lost[n].Store(true)
		}
		if f.left[n].Add(-1) == 0 {
			done = append(done, n)
		}
	}
	if len(done) > 0 {
		f.mailbox.postAsync(task{kind: taskConfirmed, confirms: f, confirmed: done})
	}
}

// sendDiscards sends discarded messages on; the picks are taken already. Dead[i].Seq
// is i+1.
func (q *Queue) sendDiscards(now hook.Instant, picks []pick, vs []hook.Verdict) {
	f := &deadLetterConfirms{
		mailbox: q.mailbox, picks: append([]pick(nil), picks...), vs: append([]hook.Verdict(nil), vs...),
		left: make([]atomic.Int32, len(picks)), lost: make([]atomic.Bool, len(picks)),
	}
	ds := make([]DeadLetter, len(picks))
	for i, p := range picks {
		s := q.levels[p.level].slot(p.seq)
		r := q.store.read(*s)
		ds[i] = deadLetterOf(&r, s, &vs[i])
		ds[i].Seq = uint64(i + 1)
	}
	q.host.DeadLetter(q.cfg, now, ds, Tracking{Publisher: f})
	var done []int
	for i := range ds {
		if ds[i].Sent == 0 {
			q.retryLater(now, picks[i], vs[i])
			continue
		}
		if f.left[i].Add(int32(ds[i].Sent)) == 0 {
			done = append(done, i)
		}
	}
	q.discardsAnswered(now, f, done)
}

// discardsAnswered is called when every queue has answered for messages.
func (q *Queue) discardsAnswered(now hook.Instant, f *deadLetterConfirms, which []int) {
	left := q.buf.left[:0]
	for _, i := range which {
		p, v := f.picks[i], &f.vs[i]
		if f.lost[i].Load() {
			q.retryLater(now, p, *v)
			continue
		}
		r := q.store.read(*q.levels[p.level].slot(p.seq))
		left = append(left, q.removalOf(now, p, &r, v))
		left[len(left)-1].Outcome = telemetry.DeadLettered
	}
	q.reportRemovals(now, left)
	for _, i := range which {
		if !f.lost[i].Load() {
			q.finishDiscard(f.picks[i], f.vs[i].Reason)
		}
	}
}

// finishDiscard forgets a message that is in every queue it was to go to.
func (q *Queue) finishDiscard(p pick, why hook.Reason) {
	q.removeDiscard(p.ref())
	l := &q.levels[p.level]
	q.count.DeadLettered[why]++
	q.drop(int(p.level), l, p.seq, l.slot(p.seq))
	q.discards.forget(p.ref())
}

// waiting returns how many messages wait to leave, or for their arrival elsewhere.
func (q *Queue) waiting() int {
	n := q.departing.count()
	if q.discards != nil {
		n += q.discards.count
	}
	return n
}

// retryAt returns when messages are sent again, 0 for never.
func (q *Queue) retryAt() hook.Instant {
	if q.discards == nil || len(q.discards.again) == 0 {
		return 0
	}
	return q.discards.again[0].at
}

// purgeDiscards drops those that wait to be sent again.
func (q *Queue) purgeDiscards() (n int) {
	d := q.discards
	if d == nil {
		return 0
	}
	for _, a := range d.again {
		q.removeDiscard(a.ref)
		f, seq, s := q.find(a.ref)
		q.drop(a.ref.level(), f, seq, s)
		d.forget(a.ref)
	}
	n = len(d.again)
	d.again = nil
	return n
}

func (q *Queue) retryLater(now hook.Instant, p pick, v hook.Verdict) {
	d := q.discards
	d.again = append(d.again, discard{p.ref(), v.Reason, now.AddMillis(retryMillis)})
}

// startDiscards moves taken messages to the discards and sends them on.
func (q *Queue) startDiscards(now hook.Instant, picks []pick, vs []hook.Verdict) {
	if len(picks) == 0 {
		return
	}
	for i, p := range picks {
		if !q.discards.known(p.ref()) {
			q.journalDiscarded(p.ref(), q.levels[p.level].slot(p.seq), vs[i].Reason)
		}
		q.addDiscard(now, p.ref(), vs[i].Reason)
	}
	n := 0
	if !q.discards.due(now) && underway.admit(q.mailbox) {
		for bytes := 0; n < len(picks) && bytes <= departBytes; n++ {
			bytes += int(q.levels[picks[n].level].slot(picks[n].seq).length)
		}
		underway.during(func() { q.sendDiscards(now, picks[:n], vs[:n]) })
	}
	q.sendSoon(now, picks[n:], vs[n:])
}

// sendSoon sends discards when there is room: after those that wait already, unless it
// was their turn.
func (q *Queue) sendSoon(now hook.Instant, picks []pick, vs []hook.Verdict) {
	if len(picks) == 0 {
		return
	}
	d := q.discards
	at, _ := slices.BinarySearchFunc(d.again, now+1, func(a discard, t hook.Instant) int { return cmp.Compare(a.at, t) })
	if d.retrying {
		if len(d.again) > 0 {
			now = min(now, d.again[0].at)
		}
		at = d.back
		d.back += len(picks)
	}
	late := make([]discard, len(picks))
	for i, p := range picks {
		late[i] = discard{p.ref(), vs[i].Reason, now}
	}
	d.again = slices.Insert(d.again, at, late...)
}

// retry sends discards whose time has come, as many as a turn may, and reports
// whether there are more. The hooks say anew where to: the queue's settings may be
// other ones.
func (q *Queue) retry(now hook.Instant) (more bool) {
	d := q.discards
	if d == nil || len(d.again) == 0 || now < d.again[0].at {
		return false
	}
	if !underway.hasCapacity(q.mailbox) {
		return true
	}
	n, bytes := 0, 0
	for n < len(d.again) && n < maxBatch && bytes <= departBytes && now >= d.again[n].at {
		_, _, s := q.find(d.again[n].ref)
		bytes += int(s.length)
		n++
	}
	due := d.again[:n]
	if d.again = d.again[n:]; len(d.again) == 0 {
		d.again = nil
	}
	all := due
	d.retrying, d.back = true, 0
	for len(due) > 0 {
		why, picks := due[0].why, q.buf.due[:0]
		for len(due) > 0 && due[0].why == why {
			q.removeDiscard(due[0].ref)
			picks = append(picks, pick{seq: due[0].ref.seq(), level: int32(due[0].ref.level())})
			due = due[1:]
		}
		q.buf.due = picks
		q.runHeadHooks(now, picks, hook.Verdict{Action: hook.Drop, Reason: why})
	}
	d.retrying = false
	for _, a := range all {
		d.forget(a.ref)
	}
	return len(d.again) > 0 && now >= d.again[0].at
}
