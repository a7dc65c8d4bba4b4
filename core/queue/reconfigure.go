package queue

import (
	"strconv"

	"github.com/curfewmq/curfew/core/amqp"
	"github.com/curfewmq/curfew/core/chain"
	"github.com/curfewmq/curfew/core/deadline"
	"github.com/curfewmq/curfew/sdk/hook"
)

// Reconfigure is [Queue.Reconfigure] on the queue's turn. It returns ErrGone when
// the queue was deleted.
func (s *Mailbox) Reconfigure(cfg *Config, c *chain.Chain, recompute bool) error {
	return s.Do(func(q *Queue, now hook.Instant) {
		s.config.Store(cfg)
		q.reconfigure(now, cfg, c, recompute)
	})
}

// reconfigure gives the queue another description, which differs from the one it
// has in what policies can change, and puts the hooks that follow from it in
// force. Its lease begins anew. Messages that are there already get the deadlines
// that the strategy has for them now, if it wants that or, with recompute, if it
// can: the first of them at once, the others in turns to come.
func (q *Queue) reconfigure(now hook.Instant, cfg *Config, c *chain.Chain, recompute bool) {
	was := q.hooks.Scan
	q.cfg = cfg
	q.attach(now, c)
	if q.contents != nil {
		q.beginRestamping(was != q.hooks.Scan, recompute)
	}
	q.restampSome(now)
	q.afterChange(now)
}

// restampCursor is how far a queue has come with giving its messages what follows from
// a change of its settings.
type restampCursor struct {
	level  int
	seq    uint64   // no message below, in the level, is still to be looked at
	until  []uint64 // by level: messages from here on came after the change
	stamp  bool     // they get new deadlines
	rescan bool     // deadlines are acted on elsewhere than before: what the slots say of heap and run is void
}

func (q *Queue) beginRestamping(rescan, recompute bool) {
	stamp := q.hooks.Restamps == chain.OnChange || q.hooks.Restamps == chain.WhenAsked && recompute
	if r := q.restamping; r != nil { // it is begun again
		rescan, stamp = rescan || r.rescan, stamp || r.stamp && q.hooks.Restamps != chain.NeverRestamp
	}
	q.restamping = nil
	if rescan {
		q.heap.Keep(func(deadline.Item) bool { return false })
		q.stale = 0
	}
	if !stamp && (!rescan || q.hooks.Scan != hook.ScanAnywhere) {
		return
	}
	q.restamping = &restampCursor{stamp: stamp, rescan: rescan, until: make([]uint64, len(q.levels))}
	for l := range q.levels {
		f := &q.levels[l]
		f.run, f.runLast = f.first<<chunkBits, 0
		q.restamping.until[l] = f.next
	}
}

// restampSome looks at the next maxBatch messages.
func (q *Queue) restampSome(now hook.Instant) {
	if q.contents == nil || q.restamping == nil {
		return
	}
	r, picks := q.restamping, q.buf.picks[:0]
	for len(picks) < maxBatch && r.level < len(q.levels) {
		seq, s := q.levels[r.level].messageFrom(r.seq)
		if s == nil || seq >= r.until[r.level] {
			r.level, r.seq = r.level+1, 0
			continue
		}
		picks = append(picks, pick{seq: seq, level: int32(r.level)})
		r.seq = seq + 1
	}
	q.buf.picks = picks
	q.restamp(now, picks)
	if r.level == len(q.levels) {
		q.restamping = nil
	}
}

// restamp gives messages the deadlines that the strategy has for them now, and
// sees to it that they are acted on.
func (q *Queue) restamp(now hook.Instant, picks []pick) {
	vs := q.restamped(now, picks)
	for i, p := range picks {
		l, f := int(p.level), &q.levels[p.level]
		s := f.slot(p.seq)
		at := f.deadline(p.seq)
		if vs != nil {
			at = vs[i].Deadline
			marked := q.setStrategyData(f, p.seq, s, strategyDataOf(&vs[i]))
			q.journalDeadlineSet(ref(l, p.seq), f, p.seq, s, at, marked)
		}
		q.reschedule(l, f, p.seq, s, at)
	}
}

// restamped asks the strategy; nil if it has no say.
func (q *Queue) restamped(now hook.Instant, picks []pick) []hook.Verdict {
	if !q.restamping.stamp {
		return nil
	}
	w := q.buf
	views, vs := w.batch(len(picks))
	w.leaving.records = w.leaving.records[:0]
	for i, p := range picks {
		s := q.levels[p.level].slot(p.seq)
		r := q.store.read(*s)
		w.leaving.records = append(w.leaving.records, r)
		views[i] = q.message(p, s, &r)
		views[i].Expiration, views[i].Why = expiration(r.props), hook.WhyChange
		views[i].Bind(&w.leaving, i)
	}
	w.leaving.picks, w.leaving.queue, w.leaving.now = picks, q, now
	q.hooks.Restamp(now, views, vs)
	w.leaving.picks, w.leaving.queue = nil, nil
	return vs
}

// reschedule gives a message a deadline and, as messages come in order, makes it
// part of the sorted run if it fits.
func (q *Queue) reschedule(l int, f *fifo, seq uint64, s *slot, at hook.Instant) {
	s.flags &^= inRun
	switch {
	case q.restamping.rescan:
		s.flags &^= inHeap
	case at != f.deadline(seq) && s.flags&inHeap != 0:
		s.flags &^= inHeap
		if s.is(stateReady) {
			q.stale++ // the item it has; one that is handed out is stale already
		}
	}
	f.setDeadline(seq, at)
	if !s.is(stateReady) {
		return // it is seen to when it comes back
	}
	if len(q.levels) == 1 && s.flags&inHeap == 0 && at >= f.runLast && at != 0 && q.hooks.Scan == hook.ScanAnywhere {
		f.runLast = at
		s.flags |= inRun
		return
	}
	q.reindex(l, f, seq, s, at)
}

// expiration is the property of a message as its publisher sent it, which was
// checked then. Dead letters have none.
func expiration(props []byte) hook.Limit {
	x, err := amqp.ScanProps(props)
	if err != nil {
		return 0
	}
	b, ok := x.Expiration(props)
	if !ok {
		return 0
	}
	n, err := strconv.ParseInt(string(b), 10, 64)
	if err != nil {
		return 0
	}
	return hook.LimitOf(n)
}

// messageFrom returns the first message at or behind seq, nil when there is none.
func (f *fifo) messageFrom(seq uint64) (uint64, *slot) {
	for seq = max(seq, f.first<<chunkBits); seq < f.next; seq = (seq>>chunkBits + 1) << chunkBits {
		c := f.chunk(seq)
		if c == nil {
			continue
		}
		for i := c.index(int(seq & (chunkSlots - 1))); i < len(c.slots); i++ {
			if !c.slots[i].is(stateFree) {
				return seq&^(chunkSlots-1) + c.position(i), &c.slots[i]
			}
		}
	}
	return f.next, nil
}
