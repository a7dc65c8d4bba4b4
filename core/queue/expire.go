package queue

import (
	"slices"

	"github.com/curfewmq/curfew/core/deadline"
	"github.com/curfewmq/curfew/sdk/hook"
)

// askAgainMillis is when a message is put before its hooks again that left it
// where it is although it is due: one whose plugin crashed, say. While nothing
// comes of asking, it takes longer each time, up to askAgainMost: nobody may be
// there any more who cares for the deadline.
const (
	askAgainMillis = 1000
	askAgainMost   = 64 * askAgainMillis
)

// askBackoff is how long hooks have let messages be that were due.
type askBackoff struct {
	millis int64        // until a message is asked about again; 0 = there was no such message
	until  hook.Instant // from then on it is longer
}

// askAgain is when a message is due again that its hooks have let be.
func (w *askBackoff) askAgain(now hook.Instant) hook.Instant {
	if w.millis == 0 || now >= w.until {
		w.millis = min(max(2*w.millis, askAgainMillis), askAgainMost)
		w.until = now.AddMillis(w.millis)
	}
	return now.AddMillis(w.millis)
}

// expireDue puts due messages before their hooks, and not before those that are to be
// sent again: what died first goes first.
func (q *Queue) expireDue(now hook.Instant) {
	if q.departing.count() == 0 && !q.retry(now) {
		q.reapDue(now)
	}
}

// maxReaped is about how many bytes of messages are put before their hooks at once.
const maxReaped = 4 << 20

// reapDue puts due messages before their hooks, at most maxBatch of them.
func (q *Queue) reapDue(now hook.Instant) {
	due, bytes := q.buf.due[:0], 0
	for len(due) < maxBatch && bytes < maxReaped && q.ready > 0 {
		p, ok := q.nextDue(now)
		if !ok {
			break
		}
		f := &q.levels[p.level]
		s := f.slot(p.seq)
		q.take(f, s, len(q.store.read(*s).body))
		bytes += int(s.length)
		due = append(due, p)
	}
	q.buf.due = due
	q.runHeadHooks(now, due, hook.Verdict{})
}

// nextDue finds a ready message that is due where the strategy looks for them.
func (q *Queue) nextDue(now hook.Instant) (p pick, ok bool) {
	p, at, ok := q.earliest()
	return p, ok && now >= at
}

// nextDeadline returns when the next message is due, 0 for never.
func (q *Queue) nextDeadline() hook.Instant {
	if q.ready == 0 {
		return 0
	}
	_, at, _ := q.earliest()
	return at
}

// earliest returns the message that is due first, among those the strategy
// looks at. Without anybody to ask, none is.
func (q *Queue) earliest() (p pick, at hook.Instant, ok bool) {
	if !q.hooks.WantsHead {
		return pick{}, 0, false
	}
	switch q.hooks.Scan {
	case hook.ScanAnywhere:
		return q.earliestAnywhere()
	case hook.ScanHeads:
		return q.earliestHead(0)
	case hook.ScanTop:
		return q.earliestHead(q.topLevel())
	}
	return pick{}, 0, false
}

func (q *Queue) earliestHead(lowest int) (p pick, at hook.Instant, ok bool) {
	for l := len(q.levels) - 1; l >= lowest; l-- {
		f := &q.levels[l]
		if f.ready == 0 {
			continue
		}
		seq := f.peek()
		if t := f.deadline(seq); t != 0 && (!ok || t < at) {
			p, at, ok = pick{seq: seq, level: int32(l)}, t, true
		}
		if lowest > 0 {
			break
		}
	}
	return p, at, ok
}

func (q *Queue) earliestAnywhere() (p pick, at hook.Instant, ok bool) {
	if len(q.levels) == 1 && (q.restamping == nil || !q.restamping.rescan) {
		p.seq, at, ok = q.levels[0].runTop()
	}
	q.sweepHeap()
	for q.heap.Len() > 0 {
		top := q.heap.Top()
		if !q.current(top) {
			q.popStale()
			continue
		}
		if !ok || hook.Instant(top.At) < at {
			r := Ref(top.Slot)
			return pick{seq: r.seq(), level: int32(r.level())}, hook.Instant(top.At), true
		}
		break
	}
	return p, at, ok
}

// current reports whether a heap item is a ready message's deadline.
func (q *Queue) current(it deadline.Item) bool {
	f, seq, s := q.find(Ref(it.Slot))
	return s != nil && s.is(stateReady) && s.flags&inHeap != 0 && f.deadline(seq) == hook.Instant(it.At)
}

// popStale drops the top item of the heap, which is stale.
func (q *Queue) popStale() {
	it := q.heap.Pop()
	q.stale--
	q.unmark(it)
}

// unmark takes note that a message which is handed out has no item any more.
func (q *Queue) unmark(it deadline.Item) {
	f, seq, s := q.find(Ref(it.Slot))
	if s != nil && s.is(stateUnacked) && f.deadline(seq) == hook.Instant(it.At) {
		s.flags &^= inHeap
	}
}

// sweepHeap rebuilds the heap when most of it is stale.
func (q *Queue) sweepHeap() {
	const few = 64
	if q.stale < few || q.stale < q.heap.Len()/2 {
		return
	}
	q.heap.Keep(func(it deadline.Item) bool {
		if q.current(it) {
			return true
		}
		q.unmark(it)
		return false
	})
	q.stale = 0
}

// runHeadHooks puts messages that were taken before their hooks and carries out the
// verdicts. from is the verdict they start with: Keep for those that are due or
// at the head, Drop for those that leave anyway.
func (q *Queue) runHeadHooks(now hook.Instant, picks []pick, from hook.Verdict) {
	for len(picks) > 0 {
		n := min(len(picks), maxBatch)
		q.leaveSome(now, picks[:n], from)
		picks = picks[n:]
	}
}

func (q *Queue) leaveSome(now hook.Instant, picks []pick, from hook.Verdict) {
	w := q.buf
	views, vs := w.batch(len(picks))
	w.leaving.records = w.leaving.records[:0]
	for i, p := range picks {
		s := q.levels[p.level].slot(p.seq)
		w.leaving.records = append(w.leaving.records, q.store.read(*s))
		vs[i] = from
		views[i] = q.message(p, s, &w.leaving.records[i])
		views[i].Why = why(p, from.Action)
		views[i].Bind(&w.leaving, i)
	}
	w.leaving.picks, w.leaving.queue, w.leaving.now = picks, q, now
	if q.hooks.WantsHead {
		q.hooks.Head(now, views, vs)
	}
	if from.Action == hook.Keep && q.askBackoff.millis > 0 && slices.ContainsFunc(vs, leaves) {
		q.askBackoff = askBackoff{}
	}
	q.applyVerdicts(now, picks, vs)
	w.leaving.picks, w.leaving.queue = nil, nil
}

func leaves(v hook.Verdict) bool { return v.Action != hook.Keep }

// why says what brings a message before its hooks.
func why(p pick, action hook.Action) hook.Why {
	switch {
	case action != hook.Keep:
		return hook.WhyLeaving
	case p.next:
		return hook.WhyHead
	}
	return hook.WhyDue
}

// message shows a stored message to its hooks.
func (q *Queue) message(p pick, s *slot, r *record) hook.Message {
	return hook.Message{
		Enqueued: r.enqueued, Deadline: q.levels[p.level].deadline(p.seq), State: r.state, Digest: r.digest, Size: len(r.body),
		Deliveries: uint32(s.returns()), Priority: uint8(p.level),
		Redelivered: s.flags&redelivered != 0, Persistent: s.flags&persistent != 0, Traced: s.flags&traced != 0,
	}
}

// applyVerdicts does to taken messages what their verdicts say.
func (q *Queue) applyVerdicts(now hook.Instant, picks []pick, vs []hook.Verdict) {
	picks, vs = q.splitAtLeastOnce(now, picks, vs)
	picks, vs, admitted := q.deferDepartures(picks, vs)
	if !admitted {
		q.letGo(now, picks, vs)
		return
	}
	underway.during(func() { q.letGo(now, picks, vs) })
	q.depart(now)
}

// letGo is applyVerdicts for messages that need not wait.
func (q *Queue) letGo(now hook.Instant, picks []pick, vs []hook.Verdict) {
	lost, left := q.buf.dead[:0], q.buf.left[:0]
	for i, p := range picks {
		r, v := &q.buf.leaving.records[i], &vs[i]
		switch v.Action {
		case hook.Route:
			lost = append(lost, deadLetterOf(r, q.levels[p.level].slot(p.seq), v))
			left = append(left, q.removalOf(now, p, r, v))
		case hook.Drop:
			left = append(left, q.removalOf(now, p, r, v))
		}
	}
	q.publishDeadLetters(now, lost, left, q.receipt(picks, vs))
	for i, p := range picks {
		f := &q.levels[p.level]
		s := f.slot(p.seq)
		switch vs[i].Action {
		case hook.Keep, hook.Refuse:
			q.putBack(now, p, f, s, &vs[i], len(q.buf.leaving.records[i].body))
			continue
		case hook.Route:
			q.count.DeadLettered[vs[i].Reason]++
			q.free(f, p.seq, s)
			continue
		case hook.Drop:
			q.count.Dropped[vs[i].Reason]++
		}
		q.drop(int(p.level), f, p.seq, s)
	}
}

// splitAtLeastOnce makes discards of the messages that are to be forwarded at least
// once, and returns the others.
func (q *Queue) splitAtLeastOnce(now hook.Instant, picks []pick, vs []hook.Verdict) ([]pick, []hook.Verdict) {
	atLeastOnce := func(v hook.Verdict) bool { return v.Action == hook.Route && v.Target.AtLeastOnce }
	if !slices.ContainsFunc(vs, atLeastOnce) {
		return picks, vs
	}
	var aside []pick
	var how []hook.Verdict
	kept := 0
	for i := range picks {
		if atLeastOnce(vs[i]) {
			aside, how = append(aside, picks[i]), append(how, vs[i])
			continue
		}
		picks[kept], vs[kept] = picks[i], vs[i]
		q.buf.leaving.records[kept] = q.buf.leaving.records[i]
		kept++
	}
	q.startDiscards(now, aside, how)
	return picks[:kept], vs[:kept]
}

// deadLetterOf returns a stored message as its host sees it when it leaves.
func deadLetterOf(r *record, s *slot, v *hook.Verdict) DeadLetter {
	return DeadLetter{
		Exchange: r.exchange, Key: r.key, BCC: blindKeys(r.bcc), Props: r.props, Body: r.body,
		Flags: s.flags.public(), Reason: v.Reason, Target: v.Target,
	}
}

// putBack puts a message back that its hooks did not let go. When it is only asked
// about again later, that is nobody's business but this process's: the journal
// keeps the deadline that it has.
func (q *Queue) putBack(now hook.Instant, p pick, f *fifo, s *slot, v *hook.Verdict, body int) {
	if p.next { // not again in this turn
		s.flags &^= askHead
		q.buf.asked = append(q.buf.asked, p)
	} else {
		q.heedAsk(p, s, v)
	}
	at := f.deadline(p.seq)
	if q.hooks.WantsHead {
		in, marked := at, q.setStrategyData(f, p.seq, s, strategyDataOf(v))
		if at = v.Deadline; !v.Again {
			in = at
		}
		q.journalDeadlineSet(ref(int(p.level), p.seq), f, p.seq, s, in, marked)
	}
	if at != 0 && at <= now {
		at = q.askBackoff.askAgain(now)
	}
	q.untake(f, p.seq, s, body)
	q.setDeadline(int(p.level), f, p.seq, s, at)
}

// heedAsk marks a message that its hooks want to be asked about when it is next.
func (q *Queue) heedAsk(p pick, s *slot, v *hook.Verdict) {
	if v.AskHead && s.flags&askHead == 0 {
		s.flags |= askHead
		q.journalAsks(p.ref(), s)
	}
}

// setDeadline gives a ready message another deadline.
func (q *Queue) setDeadline(l int, f *fifo, seq uint64, s *slot, at hook.Instant) {
	if at == f.deadline(seq) {
		q.reindex(l, f, seq, s, at)
		return
	}
	if s.flags&inHeap != 0 {
		s.flags &^= inHeap
		q.stale++ // the item it has
	}
	s.flags &^= inRun
	f.setDeadline(seq, at)
	q.reindex(l, f, seq, s, at)
}

// reindex makes sure that the deadline of a message that is ready again is
// acted on.
func (q *Queue) reindex(l int, f *fifo, seq uint64, s *slot, at hook.Instant) {
	if at == 0 || s.flags&inHeap != 0 || q.hooks.Scan != hook.ScanAnywhere {
		return
	}
	if s.flags&inRun != 0 && seq >= f.run {
		return
	}
	s.flags = s.flags&^inRun | inHeap
	q.heap.Push(deadline.Item{At: int64(at), Slot: uint64(ref(l, seq))})
}

// maxShed is about how many messages a turn drops for the sake of a limit. It is
// more than come in at a time: only a limit that was set just now leaves some for
// turns to come.
const maxShed = 16 * maxBatch

// enforceLimits drops from the head what exceeds the queue's limits.
func (q *Queue) enforceLimits(now hook.Instant) {
	if !q.overLimit() {
		if q.contents != nil {
			q.overflowing = false
		}
		return
	}
	before := q.ready
	q.dropFromHead(now, hook.ReasonMaxLen, func() bool { return q.overLimit() && before-q.ready < maxShed })
	q.overflowing = before-q.ready >= maxShed && q.overLimit()
}

func (q *Queue) overLimit() bool {
	return q.hooks.Length.Set() && int64(q.ready) > q.hooks.Length.N() ||
		q.hooks.Bytes.Set() && q.readyBytes > q.hooks.Bytes.N()
}

// dropFromHead puts messages from the head through the hooks as leaving, for as long as
// there are too many of them.
func (q *Queue) dropFromHead(now hook.Instant, reason hook.Reason, tooMany func() bool) {
	for q.ready > 0 && tooMany() {
		picks, bytes := q.buf.due[:0], 0
		for len(picks) < maxBatch && bytes < maxReaped && q.ready > 0 && tooMany() {
			l := q.topLevel()
			f := &q.levels[l]
			seq := f.peek()
			s := f.slot(seq)
			q.take(f, s, len(q.store.read(*s).body))
			bytes += int(s.length)
			picks = append(picks, pick{seq: seq, level: int32(l)})
		}
		q.buf.due = picks
		before := q.ready
		q.runHeadHooks(now, picks, hook.Verdict{Action: hook.Drop, Reason: reason})
		if q.ready > before { // a plugin keeps some: the limit yields
			return
		}
	}
}
