package queue

import (
	"slices"
	"sync"
	"sync/atomic"

	"github.com/curfewmq/curfew/core/telemetry"
	"github.com/curfewmq/curfew/sdk/hook"
)

// movedPart is messages of a redrive that are under way. They are in their queue, out of
// reach of consumers, until all their targets have answered. It belongs to the queue's
// turn, except for what its [DeferredRemoval] uses.
type movedPart struct {
	removal   DeferredRemoval
	mailbox   *Mailbox             // of the queue
	storage   *Storage             // of the queue; nil means that none of its messages is in a journal
	refs      []Ref                // in order, all of one level
	targets   []*RedriveTarget     // by index in refs
	journal   []bool               // by index in refs: it is in the queue's journal
	entered   []*telemetry.Entered // by index in refs: the queues that it was routed to; belongs to the turn
	stays     []atomic.Uint32      // by index in refs: the [RedriveFailure] for which it stays; 0 means none
	watched   []bool               // by index in refs: hooks watched it; nil means none
	alone     []bool               // by index in refs: it goes to one queue
	gone      []bool               // by index in refs: the entry with its arrival removes it; belongs to the turn of that queue until its batch has arrived
	released  bool
	committed bool                  // the removal is in the entry with the last arrival
	err       atomic.Pointer[error] // why a batch failed; nil means that none has

	mu   sync.Mutex // guards have until all targets have answered
	have [][]uint64 // by index in refs: the queues that took it, if it goes to several; nil means none
}

func newMovedPart(q *Queue) *movedPart {
	p := &movedPart{mailbox: q.mailbox, storage: q.cfg.Storage}
	p.removal.move = p
	if p.storage != nil {
		p.removal.journal = p.storage.Journal
	}
	return p
}

// add takes a message and adds it.
func (p *movedPart) add(q *Queue, h handle, r *record, t *RedriveTarget) {
	q.take(h, len(r.body))
	q.unacked--
	q.moving++
	p.refs = append(p.refs, h.ref)
	p.targets = append(p.targets, t)
	p.journal = append(p.journal, q.isJournalled(h.slot()))
	q.buf.removals.dead = append(q.buf.removals.dead, DeadLetter{
		Exchange: r.exchange, Key: r.key, BCC: blindKeys(r.bcc), Props: r.props, Body: r.body, Flags: h.slot().flags.public(),
		Reason: hook.ReasonRedriven, Target: &t.Target, Routing: t.Routing, Seq: uint64(len(p.refs)),
		have: q.have(h.ref, &t.Target),
	})
}

// sendPart publishes the messages of a part, which p.add collected in the turn's buffer.
func (q *Queue) sendPart(now hook.Instant, p *movedPart) {
	r, b := q.redrive, &q.buf.removals
	q.startWatchedMove(p)
	p.stays, p.entered = make([]atomic.Uint32, len(p.refs)), make([]*telemetry.Entered, len(p.refs))
	p.alone, p.gone = make([]bool, len(p.refs)), make([]bool, len(p.refs))
	p.removal.tracker = q.mailbox.pendingRemovals()
	p.removal.tracker.begin()
	defer p.removal.endUnsent()
	r.parts = append(r.parts, p)
	r.sent += len(p.refs)
	q.commit(nil) // the messages may have entered in this turn: their enqueues come first
	q.host.DeadLetter(q.cfg, now, b.dead, Tracking{Removal: &p.removal, from: q})
	if b.clear(); q.wasUnsent(now) {
		p.refuseAll()
	}
}

// refuseAll has all messages stay, because there was no space where they go.
func (p *movedPart) refuseAll() {
	p.removal.sent = true
	for i := range p.stays {
		p.stays[i].Store(uint32(FailRefused))
	}
	p.arrived(false)
}

// expect is called before the batches are published, when it is known what became of
// each message.
func (p *movedPart) expect(ds []DeadLetter) {
	for i := range ds {
		n := ds[i].Seq - 1
		p.alone[n], p.entered[n] = ds[i].Sent == 1, ds[i].Entered
		if ds[i].Sent == 0 && ds[i].Outcome != telemetry.DeadLettered { // else all targets have it
			p.stays[n].Store(uint32(failureOf(p.targets[n], ds[i].Outcome)))
		}
	}
}

// noteRefused notes the messages that the target of a batch refused.
func (p *movedPart) noteRefused(b *Batch) {
	for i := range b.Messages {
		if b.Messages[i].Flags&Refused != 0 {
			p.stays[b.Messages[i].Seq-1].Store(uint32(FailRefused))
		}
	}
}

// refuse notes that the messages of a batch stay.
func (p *movedPart) refuse(b *Batch, f RedriveFailure) {
	for i := range b.Messages {
		b.Messages[i].Flags |= Refused
		p.stays[b.Messages[i].Seq-1].Store(uint32(f))
	}
}

// noteArrived notes where the messages of a batch are that go to several queues.
func (p *movedPart) noteArrived(b *Batch) {
	for i := range b.Messages {
		m := &b.Messages[i]
		if p.alone[m.Seq-1] || m.Flags&Refused != 0 {
			continue
		}
		p.mu.Lock()
		if p.have == nil {
			p.have = make([][]uint64, len(p.refs))
		}
		p.have[m.Seq-1] = append(p.have[m.Seq-1], b.to.order)
		p.mu.Unlock()
	}
}

// fail notes that it is unknown whether the messages of a batch are in its target.
func (p *movedPart) fail(b *Batch, err error) {
	p.refuse(b, FailTargetStopped)
	p.err.Store(&err)
}

// appendSettled appends the operation that removes the messages that have arrived.
func (p *movedPart) appendSettled(ops []byte) []byte {
	var refs []Ref
	for i, r := range p.refs {
		if p.journal[i] && !p.gone[i] && p.stays[i].Load() == 0 {
			refs = append(refs, r)
		}
	}
	if refs == nil {
		return ops
	}
	return appendLeft(ops, p.storage.ID, refs)
}

// appendAlone appends the removals of messages that go to no queue but the one whose batch they are of.
func (p *movedPart) appendAlone(n *opBuffer, ms []Message) {
	var refs []Ref
	for i := range ms {
		if k := ms[i].Seq - 1; !p.gone[k] && p.alone[k] && p.journal[k] && p.stays[k].Load() == 0 {
			refs = append(refs, p.refs[k])
			p.gone[k] = true
		}
	}
	if len(refs) > 0 {
		n.buf = appendLeft(n.buf, p.storage.ID, refs)
	}
}

// appendLeft appends that messages leave as runs: their old queue accounts for them later, see Without.
func appendLeft(ops []byte, queue uint64, refs []Ref) []byte {
	var runs refRuns
	for _, r := range refs {
		runs.add(r, 1)
	}
	runs.end()
	return appendRuns(ops, queue, runs.b)
}

// arrived is called when all targets have answered. committed reports that the removal
// is durable with the last of them; else the queue still has to commit it.
func (p *movedPart) arrived(committed bool) {
	p.committed = committed
	p.mailbox.postAsync(task{kind: taskMoved, moved: p})
}

// release lets the queue's definition be deleted, if it waits for the part. It may be
// called again.
func (p *movedPart) release() { p.end(nil) }

// abandon is release of a queue that is deleted: the definition stays if a restart finds messages of which it is unknown whether they are
// in their target.
func (p *movedPart) abandon() {
	for i := range p.refs {
		if p.journal[i] && RedriveFailure(p.stays[i].Load()) == FailTargetStopped {
			p.end(*p.err.Load())
			return
		}
	}
	p.end(nil)
}

func (p *movedPart) end(err error) {
	if !p.released {
		p.released = true
		p.removal.tracker.end(err)
	}
}

// isMoving reports whether a taken message is on its way to another queue.
func (q *Queue) isMoving(r Ref) bool {
	if q.moving == 0 || q.redrive == nil {
		return false
	}
	for _, p := range q.redrive.parts {
		if _, ok := slices.BinarySearch(p.refs, r); ok {
			return true
		}
	}
	return false
}

// moved ends a part: it removes the messages that have arrived, and makes the others
// ready again.
func (q *Queue) moved(now hook.Instant, p *movedPart) {
	defer p.release()
	q.Touch(now)
	r := q.redrive
	r.parts = slices.DeleteFunc(r.parts, func(o *movedPart) bool { return o == p })
	q.moving -= len(p.refs)
	q.unacked += len(p.refs)
	q.reportMoved(now, p)
	n, hopeless := 0, ""
	for i, ref := range p.refs {
		h, t := q.at(ref), p.targets[i]
		f := RedriveFailure(p.stays[i].Load())
		if f == NotChosen {
			q.removeMoved(h, p.journal[i] && (p.committed || p.gone[i]))
			n++
			continue
		}
		r.noteFailed(t, f)
		if t.Only && hopeless == "" {
			hopeless = q.hopeless(t, f, p)
		}
		q.stay(now, h, p, i)
	}
	r.sent -= len(p.refs) - n
	r.noteMoved(now, p, n)
	if hopeless != "" {
		q.concludeRedrive(now, RedriveFailed, hopeless)
	}
	q.endRedriveIfDone(now)
	q.afterChange(now)
}

// stay makes a message of a part ready again, which did not arrive in all its targets.
func (q *Queue) stay(now hook.Instant, h handle, p *movedPart, i int) {
	if p.have != nil {
		q.noteHave(h.ref, &p.targets[i].Target, p.have[i])
	}
	if p.watched != nil && p.watched[i] {
		q.tellStays(now, h)
	}
	q.untake(h, len(q.store.read(*h.slot()).body))
	q.setDeadline(h, h.deadline())
}

// startWatchedMove tells the hooks of the watched messages of a part, which have left for
// them: they may come back before their queue is rid of them.
func (q *Queue) startWatchedMove(p *movedPart) {
	if !q.hooks.WantsGone() {
		return
	}
	p.watched = make([]bool, len(p.refs))
	for i, ref := range p.refs {
		p.watched[i] = q.at(ref).slot().flags&watched != 0
		q.tellDeparts(ref)
	}
}

// takeInRedriven is takeInTurn for messages that no client published: all of them count
// as dead letters, whether they ever died or not.
func (q *Queue) takeInRedriven(now hook.Instant, ms []Message) {
	q.Touch(now) // a redrive is a use, unlike what clients publish
	q.open()
	before := q.count.DeadLetters
	q.takeInTurn(now, ms)
	q.count.DeadLetters = before + uint64(len(ms))
}

// reportMoved reports the messages of a part that have arrived, while their records are
// there still.
func (q *Queue) reportMoved(now hook.Instant, p *movedPart) {
	b := &q.buf.removals
	for i, ref := range p.refs {
		if p.stays[i].Load() != 0 {
			continue
		}
		rec := q.store.read(*q.at(ref).slot())
		v := hook.Verdict{Action: hook.Route, Reason: hook.ReasonRedriven, Target: &p.targets[i].Target}
		l := q.removalOf(now, ref, &rec, &v)
		l.Outcome, l.Entered = telemetry.DeadLettered, p.entered[i]
		b.all = append(b.all, l)
	}
	q.publishRemovals(now)
}

// removeMoved frees a message that has arrived. committed reports that its removal is
// in the journal already.
func (q *Queue) removeMoved(h handle, committed bool) {
	q.count.DeadLettered[hook.ReasonRedriven]++
	if !committed {
		q.drop(h)
		return
	}
	extent, bytes := h.chunk.extentOf(h.index, -1)
	q.free(h)
	q.buf.ops.account(extent, bytes)
}

// noteMoved counts the messages of a part that have arrived, n altogether.
func (r *Redrive) noteMoved(now hook.Instant, p *movedPart, n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.status.Moved += n
	for i, t := range p.targets {
		if p.stays[i].Load() == 0 {
			r.countsOf(t).Moved++
		}
	}
	r.sample(now)
}

// hopeless returns why no message of the redrive can move; "" if others may.
func (q *Queue) hopeless(t *RedriveTarget, f RedriveFailure, p *movedPart) string {
	switch f {
	case FailNoQueue:
		return "no queue '" + t.Key + "' in vhost '" + q.cfg.VHost + "'"
	case FailNoExchange:
		return "no exchange '" + t.Exchange + "' in vhost '" + q.cfg.VHost + "'"
	case FailTargetStopped:
		return (*p.err.Load()).Error()
	}
	return ""
}
