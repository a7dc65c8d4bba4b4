package queue

import (
	"maps"
	"math"

	"github.com/curfewmq/curfew/core/chain"
	"github.com/curfewmq/curfew/core/deadline"
	"github.com/curfewmq/curfew/core/telemetry"
	"github.com/curfewmq/curfew/sdk/hook"
	"github.com/curfewmq/curfew/sdk/hook/guest"
)

// A held message is neither ready nor taken. It keeps its position, and consumers get
// later messages before it; the end of its hold makes it ready. If its deadline comes
// first, it expires. A strategy with DeadlineFromReady counts from when a message is
// ready. In its queues, the deadline of a message that has never been ready moves with
// the hold. Example: a message with a TTL of 10 s enters at 12:00:00, held until
// 12:00:30. Its deadline is then 12:00:40; with other strategies it is 12:00:10.

// holding is the state of a queue that has held a message.
type holding struct {
	list deadline.List // of the held messages, by the end of their hold
	// nacks counts how often each message came back without a failure: see
	// hook.Message.Returns. In a queue with a schedule it has the numbers of holds: see
	// heldOnce.
	nacks map[Ref]uint16
	shown map[Ref]shown // holds of the due messages that hooks are looking at

	// paused is when the next release is tried, after the queue was too full for one; 0
	// means that it was not. If no message is ready, the release is tried at once.
	paused hook.Instant

	*scheduled // nil unless the queue has a schedule
}

// shown is the hold of a message that hooks see.
type shown struct {
	until   hook.Instant
	unready bool
}

const maxInstant = hook.Instant(math.MaxInt64)

// leastHoldMillis is the shortest hold of a message that hooks saw at the head: a message
// that they hold for no time would be next again at once.
const leastHoldMillis = 1000

// held returns how many messages are held.
func (c *contents) held() int {
	if c == nil || c.holding == nil {
		return 0
	}
	n := c.holding.list.Len()
	if c.holding.scheduled != nil {
		n += c.holding.overdue
	}
	return n
}

// nextRelease returns when the next hold ends, 0 for never.
func (c *contents) nextRelease() hook.Instant {
	if c.held() == 0 {
		return 0
	}
	it, ok := c.holding.list.First()
	if !ok {
		return 0
	}
	at := max(hook.Instant(it.At), atOnce)
	if c.ready > 0 {
		return max(at, c.holding.paused)
	}
	return at
}

// nextHoldEnd is nextRelease, but 0 while releases wait for an event and not for time.
func (q *Queue) nextHoldEnd() hook.Instant {
	if s := q.cfg.Schedule; s != nil && (s.stays() || q.mailbox.inLine) {
		return 0
	}
	return q.nextRelease()
}

// startHolding prepares for the first held message.
func (c *contents) startHolding() *holding {
	if c.holding == nil {
		c.holding = &holding{}
	}
	return c.holding
}

// hold holds a ready message. The caller journals the hold, and indexes the deadline.
func (c *contents) hold(h handle, until hook.Instant) {
	c.startHolding()
	s := h.slot()
	h.list.ready--
	c.ready--
	c.readyBytes -= int64(len(c.store.read(*s).body))
	s.become(stateHeld)
	h.chunk.setHold(h.index, until)
	c.indexHeld(h)
}

// holdEntering holds a message that was just pushed to its fifo and is not counted as
// ready. It journals the hold.
func (c *contents) holdEntering(h handle, until hook.Instant) {
	h.list.ready--
	s := h.slot()
	s.become(stateHeld)
	s.flags |= unready
	h.chunk.setHold(h.index, until)
	c.indexHeld(h)
	c.journalHeld(h)
}

// unhold makes a held message ready, in its old position.
func (c *contents) unhold(h handle) {
	c.unlistHeld(h)
	s := h.slot()
	h.list.requeue(h.ref.seq(), s)
	c.ready++
	c.readyBytes += int64(len(c.store.read(*s).body))
}

// takeHeld makes a held message a taken one.
func (c *contents) takeHeld(h handle) {
	c.unlistHeld(h)
	s := h.slot()
	s.become(stateUnacked)
	c.unacked++
	if s.flags&inHeap != 0 {
		c.stale++
	}
}

// showHeld takes a held message that hooks are about to see. If they keep it, putBack
// holds it again.
func (c *contents) showHeld(h handle) {
	n := c.holding
	if n.shown == nil {
		n.shown = map[Ref]shown{}
	}
	n.shown[h.ref] = shown{h.hold(), h.slot().flags&unready != 0}
	c.takeHeld(h)
}

// shownHold returns the hold of a message that hooks see; the zero value if it is not held.
func (c *contents) shownHold(r Ref) shown {
	if c == nil || c.holding == nil || len(c.holding.shown) == 0 {
		return shown{}
	}
	return c.holding.shown[r]
}

// keep holds a ready message that hooks kept, until the time that they set. A hold that
// is as before is not journalled.
func (n *holding) keep(q *Queue, now hook.Instant, h handle, until hook.Instant) {
	was := q.shownHold(h.ref)
	if until == was.until {
		if was.unready {
			h.slot().flags |= unready
		}
		q.hold(h, until)
		return
	}
	q.hold(h, max(until, now.AddMillis(leastHoldMillis)))
	q.journalHeld(h)
}

// endShow forgets the holds of messages that hooks have seen.
func (c *contents) endShow() {
	if c != nil && c.holding != nil {
		clear(c.holding.shown)
	}
}

func (c *contents) unlistHeld(h handle) {
	c.delistHeld(h)
	s := h.slot()
	if s.flags&unready == 0 { // else the hold stays, as the instant from which the message is ready: see readySince
		h.chunk.setHold(h.index, 0)
	}
	s.flags &^= unready
}

// delistHeld takes a held message off the list.
func (c *contents) delistHeld(h handle) {
	if c.holding.scheduled != nil && len(c.holding.arriving) > 0 {
		c.relist(h.ref)
	}
	c.holding.list.Remove(heldItem(h))
}

// indexHeld lists a held message.
func (c *contents) indexHeld(h handle) { c.startHolding().list.Add(heldItem(h)) }

func heldItem(h handle) deadline.Item { return deadline.Item{At: int64(h.hold()), Slot: uint64(h.ref)} }

// deadlineBehindHold returns the deadline of a message that is held as it enters.
func (c *contents) deadlineBehindHold(now hook.Instant, v *hook.Verdict) hook.Instant {
	if v.Deadline == 0 || !c.rules.fromReady || guest.Digest(v) != 0 {
		return v.Deadline
	}
	return v.Deadline.Add(v.Hold.Sub(now))
}

// deadlineMovesWithHold reports whether the deadline of a held message counts from the
// end of the hold. A deadline with a digest does not: a policy has set that instant.
func (c *contents) deadlineMovesWithHold(s *slot) bool {
	return c.rules.fromReady && s.flags&unready != 0 && (s.flags&hasDigest == 0 || c.store.read(*s).setBy() == 0)
}

// releaseDue makes messages ready whose hold has ended: as many as a turn may, and as the
// queue's limits allow. It reports whether a hold has ended.
func (n *holding) releaseDue(q *Queue, now hook.Instant) (released bool) {
	if at := q.nextRelease(); at == 0 || now < at {
		return false
	}
	n.paused = 0
	if l, ok := q.hooks.Release(); ok {
		return n.releaseWithin(q, now, &l)
	}
	for range maxBatch {
		h, ok := q.nextHeld(now)
		if !ok {
			break
		}
		n.noteRelease(q, now, h)
		n.end(q, now, h)
		released = true
	}
	q.buf.removals.publish(q, now)
	return released
}

// drop runs the head hooks for the first maxBatch held messages, which leave for a
// reason. They do not become ready, so a consumer that comes meanwhile gets none of them
// early.
func (n *holding) drop(q *Queue, now hook.Instant, reason hook.Reason) {
	leaving, bytes := q.buf.due[:0], 0
	for len(leaving) < maxBatch && bytes < maxHookBytes {
		h, ok := q.nextHeld(maxInstant)
		if !ok {
			break
		}
		bytes += q.takeForHooks(h)
		leaving = append(leaving, h.ref)
	}
	q.buf.due = leaving
	q.runHeadHooks(now, leaving, hook.WhyLeaving, reason)
}

// nextHeld returns the held message whose hold ends first; ok is false if that is after
// until.
func (c *contents) nextHeld(until hook.Instant) (h handle, ok bool) {
	if c.held() == 0 {
		return handle{}, false
	}
	it, ok := c.holding.list.First()
	if !ok || hook.Instant(it.At) > until {
		return handle{}, false
	}
	return c.at(Ref(it.Slot)), true
}

// releaseWithin is releaseDue for a queue whose limits apply to released messages.
func (n *holding) releaseWithin(q *Queue, now hook.Instant, l *chain.ReleaseLimits) (released bool) {
	dropped := q.buf.settled[:0] // not buf.due, which isFullFor may use: it may ask hooks
	for range maxBatch {
		h, ok := q.nextHeld(now)
		if !ok {
			break
		}
		released = true
		full := n.isFullFor(q, now, h, l)
		h = q.at(h.ref) // others may have left
		switch {
		case !full:
			n.noteRelease(q, now, h)
			n.end(q, now, h)
		case l.Drop:
			q.takeHeld(h)
			dropped = append(dropped, h.ref)
		default:
			n.paused = now.AddMillis(leastHoldMillis)
			q.buf.removals.publish(q, now)
			return true
		}
	}
	q.buf.removals.publish(q, now)
	q.buf.settled = dropped
	q.runHeadHooks(now, dropped, hook.WhyLeaving, hook.ReasonMaxLen)
	return released
}

// isFullFor reports whether a held message that was never ready would exceed the limits
// if it became ready. Messages that consumers take at once do not count, and with no
// other message ready it never exceeds them. It may deliver messages, which makes h
// invalid.
func (n *holding) isFullFor(q *Queue, now hook.Instant, h handle, l *chain.ReleaseLimits) bool {
	if h.slot().flags&unready == 0 || q.ready == 0 {
		return false
	}
	if !q.wouldExceed(h, l) {
		return false
	}
	q.buf.removals.publish(q, now) // of released messages, which may be gone after that
	q.consumers.deliver(q, now)
	return q.ready > 0 && q.wouldExceed(q.at(h.ref), l)
}

// delayReleased makes messages that an exchange has released wait for space, as the
// queue's own held messages do. It does so if the queue would refuse some of them.
func (n *holding) delayReleased(q *Queue, now hook.Instant, ms []Message) {
	l, ok := q.hooks.Release()
	if !ok || l.Drop || !n.mayRefuse(q, now, ms, &l) {
		return
	}
	for i := range ms {
		ms[i].Wait = WaitUntil(now + 1) // limits apply when this hold ends
	}
}

// mayRefuse reports whether messages would exceed the limits, or overtake others that wait
// for space.
func (n *holding) mayRefuse(q *Queue, now hook.Instant, ms []Message, l *chain.ReleaseLimits) bool {
	if _, waits := q.nextHeld(now + 1); waits { // also for messages that an exchange released at the same instant
		return true
	}
	bytes := q.readyBytes
	for i := range ms {
		bytes += int64(len(ms[i].Body))
	}
	return l.Length.Set() && int64(q.ready+len(ms)) > l.Length.N() || l.Bytes.Set() && bytes > l.Bytes.N()
}

func (c *contents) wouldExceed(h handle, l *chain.ReleaseLimits) bool {
	return l.Length.Set() && int64(c.ready)+1 > l.Length.N() ||
		l.Bytes.Set() && c.readyBytes+int64(len(c.store.read(*h.slot()).body)) > l.Bytes.N()
}

// noteRelease adds a message that is about to become ready to the removals to report. A
// message whose hold has not ended is released on request: it is neither early nor late.
func (n *holding) noteRelease(q *Queue, now hook.Instant, h handle) {
	r := q.store.read(*h.slot())
	l := q.removalOf(now, h.ref, &r, &hook.Verdict{Reason: hook.ReasonReleased})
	l.Outcome = telemetry.Ready
	if l.Held > now {
		l.Held = 0
	}
	q.buf.removals.all = append(q.buf.removals.all, l)
}

// end makes a held message ready. The deadline of a message that is ready for the first
// time lies in the future, so a waiting consumer gets it even if its TTL is zero; a
// deadline that counts from then on is moved by the lateness of the release. The journal
// stores that release: after a restart the message is ready, and its queue's limits do
// not apply to it again.
func (n *holding) end(q *Queue, now hook.Instant, h handle) {
	at, first := h.deadline(), h.slot().flags&unready != 0
	if first && at != 0 {
		if q.deadlineMovesWithHold(h.slot()) {
			at = at.Add(now.Sub(h.hold()))
		}
		at = max(at, now+1)
		q.journalDeadlineSet(h, at, false)
	}
	q.unhold(h)
	if first {
		h.chunk.setHold(h.index, now)
		q.journalHeld(h)
	}
	q.setDeadline(h, at)
}

// shiftHold changes the hold of a held message, and its deadline if that moves with it.
func (c *contents) shiftHold(h handle, until hook.Instant) {
	at := h.deadline()
	if at != 0 && c.deadlineMovesWithHold(h.slot()) {
		at = at.Add(until.Sub(h.hold()))
	}
	c.delistHeld(h)
	h.chunk.setHold(h.index, until)
	c.indexHeld(h)
	if c.cfg.Schedule != nil { // without deadlines; and a replay must not find a release that has not arrived
		if n := c.nacksOf(h.ref); n > 0 {
			c.setNacks(h.ref, heldOnce(n))
		}
		return
	}
	c.journalDeadlineSet(h, at, false)
	c.setDeadline(h, at)
}

// heldAt returns the held message with a reference; ok is false if there is none.
func (c *contents) heldAt(r Ref) (h handle, ok bool) {
	if h, ok = c.locate(r); ok && h.slot().is(stateHeld) {
		return h, true
	}
	return handle{}, false
}

// MoveHeld changes the end of a message's hold; an instant in the past releases the
// message. It reports whether the message was held.
func (q *Queue) MoveHeld(now hook.Instant, r Ref, until hook.Instant) bool {
	h, ok := q.heldAt(r)
	if !ok || q.stopped != nil {
		return false
	}
	if until <= now && q.cfg.Schedule == nil {
		q.holding.noteRelease(q, now, h)
	}
	q.shiftHold(h, max(until, now))
	if until <= now && q.cfg.Schedule == nil {
		q.holding.end(q, now, h)
		q.buf.removals.publish(q, now)
	}
	q.journalHeld(h)
	if q.cfg.Schedule != nil {
		q.publishDue(now)
	}
	q.afterChange(now)
	return true
}

// CancelHeld removes held messages, for the reason [hook.ReasonCancelled], and returns
// how many of refs were held. The messages are not dead-lettered. One call reports and
// journals all of its messages together, so many messages should be cancelled in batches.
func (q *Queue) CancelHeld(now hook.Instant, refs ...Ref) (cancelled int) {
	if q.stopped != nil {
		return 0
	}
	hs := make([]handle, 0, len(refs))
	for _, ref := range refs {
		if h, ok := q.heldAt(ref); ok {
			hs = append(hs, h)
		}
	}
	if len(hs) > 0 {
		cancelled = q.holding.cancel(q, now, hs...)
	}
	q.afterChange(now)
	return cancelled
}

// cancel removes held messages, and returns how many. A message may be in hs twice.
func (n *holding) cancel(q *Queue, now hook.Instant, hs ...handle) (cancelled int) {
	v := hook.Verdict{Action: hook.Drop, Reason: hook.ReasonCancelled}
	taken := hs[:0]
	for _, h := range hs {
		if !h.slot().is(stateHeld) {
			continue
		}
		r := q.store.readAlone(*h.slot())
		q.buf.removals.all = append(q.buf.removals.all, q.removalOf(now, h.ref, &r, &v))
		q.takeHeld(h)
		taken = append(taken, h)
	}
	q.buf.removals.publish(q, now) // before the records go
	for _, h := range taken {
		q.count.Dropped[hook.ReasonCancelled]++
		q.drop(q.at(h.ref)) // the handle is not valid any more: another message has left
	}
	return len(taken)
}

// Held describes a held message. Its slices are valid until the queue does anything else.
type Held struct {
	Ref                       Ref
	Until, Deadline, Enqueued hook.Instant // Deadline 0 means none
	Unready                   bool         // it was never ready
	Exchange, Key             []byte
	BCC                       []string // further routing keys, which are not in the headers
	Props, Body               []byte
	Flags                     Flags
	Returns                   uint32 // deliveries that failed
}

// HeldFrom calls fn with held messages in the order of their release, until fn returns
// false. It begins with the message from if its hold ends at the instant at, else with
// the next one in order. fn must not change the queue.
func (q *Queue) HeldFrom(at hook.Instant, from Ref, fn func(*Held) bool) {
	if q.held() == 0 {
		return
	}
	q.relistAll()
	q.holding.list.From(deadline.Item{At: int64(at), Slot: uint64(from)}, func(it deadline.Item) bool {
		return fn(q.describeHeld(q.at(Ref(it.Slot))))
	})
}

// HeldMessage returns a held message; nil if it is not held.
func (q *Queue) HeldMessage(r Ref) *Held {
	h, ok := q.heldAt(r)
	if !ok {
		return nil
	}
	return q.describeHeld(h)
}

func (c *contents) describeHeld(h handle) *Held {
	s := h.slot()
	r := c.store.readAlone(*s)
	return &Held{
		Ref: h.ref, Until: h.hold(), Deadline: h.deadline(), Enqueued: r.enqueued, Unready: s.flags&unready != 0,
		Exchange: r.exchange, Key: r.key, BCC: blindKeys(r.bcc), Props: r.props, Body: r.body, Flags: s.flags.public(), Returns: uint32(s.returns()),
	}
}

// countComeback counts a return of a message, and returns how often the message came
// back.
func (c *contents) countComeback(h handle, kind SettleKind) uint32 {
	c.startHolding()
	nacks := c.holding.nacks[h.ref]
	if kind == Requeue && nacks < math.MaxUint16 {
		nacks++
		c.setNacks(h.ref, nacks)
	}
	return uint32(h.slot().returns()) + uint32(nacks)
}

// wasHeld reports whether a message has a hold or a count of nacks that the journal must
// store.
func (c *contents) wasHeld(h handle) bool {
	return h.hold() != 0 || c.nacksOf(h.ref) > 0
}

func (c *contents) nacksOf(r Ref) uint16 {
	if c.holding == nil {
		return 0
	}
	return c.holding.nacks[r]
}

func (c *contents) setNacks(r Ref, nacks uint16) {
	n := c.startHolding()
	if n.nacks == nil {
		n.nacks = map[Ref]uint16{}
	}
	n.nacks[r] = nacks
}

// forgetOthers deletes the nacks of messages that have left.
func (c *contents) forgetOthers() {
	maps.DeleteFunc(c.holding.nacks, func(r Ref, _ uint16) bool {
		h, ok := c.locate(r)
		return !ok || h.slot().is(stateFree)
	})
}

// forget deletes the data of a message that leaves.
func (n *holding) forget(r Ref) {
	if len(n.nacks) > 0 {
		delete(n.nacks, r)
	}
	if n.scheduled != nil && len(n.arriving) > 0 {
		delete(n.arriving, r)
	}
}
