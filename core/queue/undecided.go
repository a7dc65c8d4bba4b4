package queue

import (
	"github.com/curfewmq/curfew/core/chain"
	"github.com/curfewmq/curfew/core/deadline"
	"github.com/curfewmq/curfew/sdk/hook"
)

// A strategy that runs others' code may be unable to decide about a message, because that
// code fails: see [hook.Verdict.Again]. It is asked again after askAgainMillis. Then each
// pause is as long as the message has been undecided, up to askAgainMost, so a message
// that makes the code fail costs few calls. Example: it is asked after 1, 2, 4, … 64 s,
// then every 64 s. When the code is replaced or works again, the queue is attached again,
// and asks about all undecided messages.

// undecided are the messages about which the strategy is asked again.
type undecided struct {
	next     deadline.Heap        // by time; an item is stale if its message has left or is decided
	requeued map[Ref]hook.Instant // messages about which OnRequeue is asked, and since when
}

func (u *undecided) count() int {
	if u == nil {
		return 0
	}
	return u.next.Len()
}

// askLater schedules a question about a message that has no item in the heap yet.
func (c *contents) askLater(at hook.Instant, r Ref) {
	if c.undecided == nil {
		c.undecided = &undecided{}
	}
	c.undecided.next.Push(deadline.Item{At: int64(at), Slot: uint64(r)})
}

// askAboutRequeue is askLater for OnRequeue, which has been undecided since an instant.
func (c *contents) askAboutRequeue(now hook.Instant, r Ref, since hook.Instant) {
	if c.undecided == nil || c.undecided.requeued[r] == 0 {
		c.askLater(nextAsking(now, since), r)
	}
	if c.undecided.requeued == nil {
		c.undecided.requeued = map[Ref]hook.Instant{}
	}
	c.undecided.requeued[r] = since
}

// nextAsking returns when to ask again about a message that has been undecided since an
// instant.
func nextAsking(now, since hook.Instant) hook.Instant {
	return min(max(now.Add(now.Sub(since)), now.AddMillis(askAgainMillis)), now.AddMillis(askAgainMost))
}

// nextAt returns when the strategy is asked again, 0 for never. It is 0 while messages
// are restamped, which asks about undecided ones, too.
func (u *undecided) nextAt(q *Queue) hook.Instant {
	if u.count() == 0 || q.restamping != nil || q.hooks.Restamps != chain.WhenAsked {
		return 0
	}
	return max(hook.Instant(u.next.Top().At), atOnce)
}

// askAllUndecided schedules the questions about all undecided messages for now.
func (c *contents) askAllUndecided(now hook.Instant) {
	if c.undecided.count() == 0 {
		return
	}
	var all deadline.Heap
	for u := c.undecided; u.next.Len() > 0; {
		all.Push(deadline.Item{At: int64(now), Slot: u.next.Pop().Slot})
	}
	c.undecided.next = all
}

// ask asks about at most maxBatch messages whose time has come.
func (u *undecided) ask(q *Queue, now hook.Instant) {
	if at := u.nextAt(q); at == 0 || now < at {
		return
	}
	refs := q.buf.due[:0]
	var requeued []Ref
	var since []hook.Instant
	for bytes := 0; len(refs)+len(requeued) < maxBatch && bytes < maxHookBytes && u.next.Len() > 0 && hook.Instant(u.next.Top().At) <= now; {
		r := Ref(u.next.Pop().Slot)
		h, ok := q.locate(r)
		at, comesBack := u.requeued[r]
		delete(u.requeued, r)
		switch {
		case !ok || h.slot().is(stateFree):
			continue
		case !comesBack:
			refs = append(refs, r)
		case !h.slot().is(stateUnacked): // else requeue asks about it
			requeued, since = append(requeued, r), append(since, at)
		}
		bytes += int(h.slot().length)
	}
	q.buf.due = refs
	u.askRequeued(q, now, requeued, since)
	u.askEntered(q, now, refs)
}

// askEntered asks about messages that the strategy could not decide about when they
// entered, unless it has decided since.
func (u *undecided) askEntered(q *Queue, now hook.Instant, refs []Ref) {
	left := refs[:0]
	for _, r := range refs {
		if s := q.at(r).slot(); s.flags&hasDigest != 0 && q.discards.reason(r) == hook.ReasonNone && q.store.read(*s).isUndecided() {
			left = append(left, r)
		}
	}
	if len(left) == 0 {
		return
	}
	vs := q.askForDeadlines(now, left, hook.WhyAgain)
	for i, r := range left {
		h, data := q.at(r), strategyDataOf(&vs[i])
		q.renew(h, vs[i].Deadline, data)
		if data.isUndecided() {
			q.askLater(nextAsking(now, q.buf.leaving[i].record.enqueued), r)
		}
	}
}

// askRequeued asks about messages that were requeued when the strategy could not decide.
func (u *undecided) askRequeued(q *Queue, now hook.Instant, refs []Ref, since []hook.Instant) {
	if len(refs) == 0 {
		return
	}
	views, vs := q.present(now, refs, hook.WhyAgain)
	q.hooks.Requeue(now, views, vs)
	q.buf.view = messageView{}
	for i, r := range refs {
		h, v := q.at(r), &vs[i]
		q.setAskHead(h, v)
		if v.Hold > now && h.slot().is(stateReady) {
			q.hold(h, v.Hold)
			q.journalHeld(h)
		}
		q.renew(h, v.Deadline, q.buf.leaving[i].record.after(v, h.deadline()))
		if v.Again {
			q.askAboutRequeue(now, r, since[i])
		}
	}
}

// renew gives a message another deadline and strategy data.
func (c *contents) renew(h handle, at hook.Instant, data strategyData) {
	c.journalDeadlineSet(h, at, c.setStrategyData(h, data))
	if h.slot().is(stateUnacked) { // requeue will index it
		if at != h.deadline() {
			h.slot().flags &^= inHeap | inRun // an old item is stale already
			h.chunk.setDeadline(h.index, at)
		}
		return
	}
	c.setDeadline(h, at)
}
