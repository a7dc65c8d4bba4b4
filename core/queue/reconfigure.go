package queue

import (
	"github.com/curfewmq/curfew/core/amqp"
	"github.com/curfewmq/curfew/core/chain"
	"github.com/curfewmq/curfew/sdk/hook"
)

// Reconfigure gives the queue another Config, which may differ in what policies can
// change, and the hooks of another chain. It renews the lease. The queued messages get
// new deadlines if the strategy restamps on changes or, with recompute, if it can
// restamp: 256 of them at once, the others in later turns. It returns ErrGone when the
// queue was deleted.
func (m *Mailbox) Reconfigure(cfg *Config, c *chain.Chain, recompute bool) error {
	return m.Do(func(q *Queue, now hook.Instant) {
		m.config.Store(cfg)
		q.reconfigure(now, cfg, c, recompute)
	})
}

func (q *Queue) reconfigure(now hook.Instant, cfg *Config, c *chain.Chain, recompute bool) {
	was := q.hooks.Scan
	q.cfg = cfg
	q.attach(now, c)
	if q.contents != nil {
		q.beginRestamping(was != q.hooks.Scan, recompute)
		if q.restamping == nil || !q.restamping.stamp { // else restamping asks about these, too
			q.askAllUndecided(now)
		}
		q.restamping.goOn(q, now)
	}
	q.afterChange(now)
}

// restampCursor is how far a queue has come with restamping after its settings changed.
//
// Example: a queue has the messages 0 to 599 when a policy sets a TTL. At that moment
// until is 600.
//
//	turn 1   the policy's change; restamps 0 to 255
//	turn 2   restamps 256 to 511
//	turn 3   600 enters with the new TTL
//	turn 4   restamps 512 to 599; 600 is not below until, so this is the end
//
// After a crash before turn 4, messages 512 to 599 have their old deadlines.
type restampCursor struct {
	level  int
	seq    uint64   // messages of the level below it are done
	until  []uint64 // by level: messages from here on entered after the change
	stamp  bool     // messages get new deadlines; otherwise they are only indexed again
	rescan bool     // the strategy acts on deadlines elsewhere than before, so flags for heap and run are void
}

func (q *Queue) beginRestamping(rescan, recompute bool) {
	stamp := q.hooks.Restamps == chain.OnChange || q.hooks.Restamps == chain.WhenAsked && recompute
	if r := q.restamping; r != nil { // the one in progress is replaced
		rescan, stamp = rescan || r.rescan, stamp || r.stamp && q.hooks.Restamps != chain.NeverRestamp
	}
	q.restamping = nil
	if rescan {
		q.clearHeap()
	}
	if !stamp && (!rescan || q.hooks.Scan != hook.ScanAnywhere) {
		return
	}
	q.restamping = &restampCursor{stamp: stamp, rescan: rescan, until: make([]uint64, len(q.levels))}
	for l := range q.levels {
		f := &q.levels[l]
		f.run = sortedRun{next: f.first << chunkBits}
		q.restamping.until[l] = f.next
	}
}

// goOn restamps the next maxBatch messages. r may be nil.
func (r *restampCursor) goOn(q *Queue, now hook.Instant) {
	if r == nil {
		return
	}
	refs := q.buf.due[:0]
	for len(refs) < maxBatch && r.level < len(q.levels) {
		seq, s := q.levels[r.level].messageFrom(r.seq)
		if s == nil || seq >= r.until[r.level] {
			r.level, r.seq = r.level+1, 0
			continue
		}
		refs = append(refs, ref(r.level, seq))
		r.seq = seq + 1
	}
	q.buf.due = refs
	r.restamp(q, now, refs)
	if r.level == len(q.levels) {
		q.restamping = nil
	}
}

// restamp asks the strategy for the deadlines of messages, if they get new ones, and
// indexes the messages.
func (r *restampCursor) restamp(q *Queue, now hook.Instant, refs []Ref) {
	var vs []hook.Verdict
	if r.stamp {
		vs = q.askForDeadlines(now, refs, hook.WhyChange)
	}
	for i, r := range refs {
		h := q.at(r)
		at := h.deadline()
		if vs != nil {
			at = vs[i].Deadline
			data := strategyDataOf(&vs[i])
			q.journalDeadlineSet(h, at, q.setStrategyData(h, data))
			if data.isUndecided() && !q.buf.leaving[i].record.isUndecided() {
				q.askLater(now.AddMillis(askAgainMillis), r)
			}
		}
		q.reschedule(h, at)
	}
}

// askForDeadlines asks the strategy for the deadlines of at most maxBatch messages. It
// sets buf.leaving to the messages.
func (q *Queue) askForDeadlines(now hook.Instant, refs []Ref, why hook.Why) []hook.Verdict {
	views, vs := q.present(now, refs, why)
	for i := range views {
		views[i].Expiration = expirationOf(q, q.buf.leaving[i].record.props)
		views[i].Enqueued = q.readySince(q.at(refs[i]), views[i].Enqueued)
	}
	q.hooks.Restamp(now, views, vs)
	q.buf.view = messageView{}
	return vs
}

// readySince returns from when on the strategy counts: from when the message became
// ready, if the strategy has DeadlineFromReady and the message was held at first, else
// from when it entered.
func (c *contents) readySince(h handle, enqueued hook.Instant) hook.Instant {
	if c.rules.fromReady && h.wasHeldAtFirst() {
		return max(enqueued, h.hold())
	}
	return enqueued
}

// reschedule gives a message a deadline. It is called for messages in order, so they may
// extend the sorted run.
func (c *contents) reschedule(h handle, at hook.Instant) {
	s := h.slot()
	s.flags &^= inRun
	if s.flags&inHeap != 0 && (c.restamping.rescan || at != h.deadline()) {
		s.flags &^= inHeap
		if !s.is(stateUnacked) && !c.restamping.rescan {
			c.stale++ // its old item; a taken message's is stale already
		}
	}
	h.chunk.setDeadline(h.index, at)
	if !s.is(stateUnacked) { // else it is indexed when it is requeued
		c.indexDeadline(h, at, true)
	}
}

// expirationOf returns the expiration that the publisher set, which was checked when the
// message was published. Dead letters have none.
func expirationOf(q *Queue, props []byte) hook.Limit {
	x, err := amqp.ScanProps(props)
	if err != nil {
		return 0
	}
	raw, ok := x.Expiration(props)
	if !ok {
		return 0
	}
	return q.hooks.Expiration(raw)
}
