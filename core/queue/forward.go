package queue

import (
	"sync/atomic"

	"github.com/curfewmq/curfew/sdk/hook"
)

// At-least-once dead-lettering: a message that a plugin routes with
// [hook.Target].AtLeastOnce stays, out of reach of consumers, until every queue
// it was routed to has taken it. One that leads nowhere, or was refused, is sent
// again later.

// retryMillis is when a discarded message is sent again that did not arrive.
const retryMillis = 180_000

// discards are messages on their way out of a queue that waits for their arrival.
type discards struct {
	count int            // all of them
	again []pick         // those that did not arrive
	at    hook.Instant   // when they are sent again
	vs    []hook.Verdict // how, beside again
}

// forwarding follows messages to their queues. It is their batches' source.
type forwarding struct {
	shell *Shell
	picks []pick
	vs    []hook.Verdict
	left  []atomic.Int32 // queues that have not answered, for each
	lost  []atomic.Bool  // one of them refused
}

var _ Source = (*forwarding)(nil)

// Settled implements [Source].
func (f *forwarding) Settled(b *Batch) { f.answer(b, false) }

// Failed implements [Source].
func (f *forwarding) Failed(b *Batch, _ error) { f.answer(b, true) }

func (f *forwarding) answer(b *Batch, failed bool) {
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
		f.shell.postAsync(op{kind: opForwarded, forwarded: f, which: done})
	}
}

// forward sends discarded messages on; the picks are taken already. Dead[i].Seq
// is i+1.
func (q *Queue) forward(now hook.Instant, picks []pick, vs []hook.Verdict) {
	f := &forwarding{
		shell: q.shell, picks: append([]pick(nil), picks...), vs: append([]hook.Verdict(nil), vs...),
		left: make([]atomic.Int32, len(picks)), lost: make([]atomic.Bool, len(picks)),
	}
	ds := make([]Dead, len(picks))
	for i, p := range picks {
		s := q.levels[p.level].at(p.seq)
		r := q.store.read(*s)
		ds[i] = deadOf(&r, s, &vs[i])
		ds[i].Seq = uint64(i + 1)
	}
	q.host.DeadLetter(q.cfg, now, ds, &Receipt{source: f})
	for i := range ds {
		if ds[i].Sent == 0 {
			q.sendAgain(now, picks[i], vs[i])
			continue
		}
		if f.left[i].Add(int32(ds[i].Sent)) == 0 {
			q.forwarded(now, f, i)
		}
	}
}

// forwarded is called when every queue has answered for a message.
func (q *Queue) forwarded(now hook.Instant, f *forwarding, i int) {
	p, v := f.picks[i], f.vs[i]
	if f.lost[i].Load() {
		q.sendAgain(now, p, v)
		return
	}
	q.discarded.count--
	q.unacked++ // drop counts it there
	l := &q.levels[p.level]
	q.count.DeadLettered[v.Reason]++
	q.drop(int(p.level), l, p.seq, l.at(p.seq))
}

// waiting returns how many messages wait for their arrival elsewhere.
func (q *Queue) waiting() int {
	if q.discarded == nil {
		return 0
	}
	return q.discarded.count
}

// retryAt returns when messages are sent again, 0 for never.
func (q *Queue) retryAt() hook.Instant {
	if q.discarded == nil {
		return 0
	}
	return q.discarded.at
}

// purgeDiscards drops those that wait to be sent again.
func (q *Queue) purgeDiscards() (n int) {
	d := q.discarded
	if d == nil {
		return 0
	}
	for _, p := range d.again {
		f := &q.levels[p.level]
		d.count--
		q.unacked++
		q.drop(int(p.level), f, p.seq, f.at(p.seq))
	}
	n = len(d.again)
	d.again, d.vs, d.at = nil, nil, 0
	return n
}

func (q *Queue) sendAgain(now hook.Instant, p pick, v hook.Verdict) {
	d := q.discarded
	d.again, d.vs = append(d.again, p), append(d.vs, v)
	if d.at == 0 {
		d.at = now.AddMillis(retryMillis)
	}
}

// hold moves taken messages to the discards and sends them on.
func (q *Queue) hold(now hook.Instant, picks []pick, vs []hook.Verdict) {
	if len(picks) == 0 {
		return
	}
	if q.discarded == nil {
		q.discarded = &discards{}
	}
	q.discarded.count += len(picks)
	q.unacked -= len(picks)
	q.forward(now, picks, vs)
}

// retry sends the discarded messages again whose time has come.
func (q *Queue) retry(now hook.Instant) {
	d := q.discarded
	if d == nil || d.at == 0 || now < d.at {
		return
	}
	picks, vs := d.again, d.vs
	d.again, d.vs, d.at = nil, nil, 0
	for len(picks) > 0 {
		n := min(len(picks), maxBatch)
		q.forward(now, picks[:n], vs[:n])
		picks, vs = picks[n:], vs[n:]
	}
}
