package queue

import (
	"hash/maphash"
	"slices"
	"sync/atomic"

	"github.com/curfewmq/curfew/core/chain"
	"github.com/curfewmq/curfew/core/death"
	"github.com/curfewmq/curfew/core/parts"
	"github.com/curfewmq/curfew/sdk/hook"
)

// A queue with a Schedule holds the messages of an exchange. It has no consumers, no
// hooks, and no limits but those of the Schedule, and every message in it is held. A due
// message is published through the exchange, in the way of dead letters: the journal
// removes it in the entry with its arrival elsewhere, or later.

// Schedule makes a queue hold the messages of an exchange.
type Schedule struct {
	*chain.Schedule
	// Target names the exchange. Messages that are released have this target.
	Target *hook.Target
	// Unused is called on the queue's turn when its last message has left; nil means no
	// call. It reports whether it has deleted the exchange: then the queue is deleted,
	// too.
	Unused func() (deleted bool)

	held   atomic.Int64
	halted atomic.Int32 // calls of HaltReleases that have not ended
}

// stays reports whether even due messages stay: the plugin is broken, or releases are
// halted.
func (s *Schedule) stays() bool { return s.Broken() || s.halted.Load() > 0 }

// HaltReleases keeps due messages until end is called. When it returns, no release is
// about to begin. It must not be called on a queue's turn.
func (m *Mailbox) HaltReleases() (end func()) {
	s := m.Config().Schedule
	s.halted.Add(1)
	_ = m.Do(func(*Queue, hook.Instant) {}) // waits for a turn that began before; a deleted queue (the error) releases nothing
	return func() {
		s.halted.Add(-1)
		_ = m.Do(func(q *Queue, now hook.Instant) { q.tick(now) })
	}
}

// Held returns how many messages are held. Any goroutine may call it.
func (s *Schedule) Held() int { return int(s.held.Load()) }

// scheduled is the state of a queue with a schedule.
type scheduled struct {
	seeds [2]maphash.Seed
	ids   map[scheduleID]Ref // of the held messages that have an ID

	message    parts.Message // that the plugin is asked about
	publishing hook.Publishing
	plan       hook.Plan // for the message that enters
	used       bool      // the queue has held a message since Unused was called last

	// arriving has the held messages whose last release has not arrived durably. They are
	// not released again until then, because the journal has one release after the other.
	// The value true means that the message is due again and not in holding.list.
	arriving map[Ref]bool
	overdue  int // how many values of arriving are true
}

// scheduleID is two hashes of an ID. Their seeds are secret, so no publisher can make two
// IDs collide.
type scheduleID [2]uint64

func (n *scheduled) idOf(id []byte) scheduleID {
	if n.ids == nil {
		n.ids = map[scheduleID]Ref{}
		n.seeds = [2]maphash.Seed{maphash.MakeSeed(), maphash.MakeSeed()}
	}
	return scheduleID{maphash.Bytes(n.seeds[0], id), maphash.Bytes(n.seeds[1], id)}
}

// scheduling returns the state of the schedule, and creates it if need be.
func (q *Queue) scheduling() *scheduled {
	n := q.startHolding()
	if n.scheduled == nil {
		n.scheduled = &scheduled{}
	}
	return n.scheduled
}

// ask prepares the plugin's view of a message.
func (n *scheduled) ask(now hook.Instant, exchange, key string, more []string, props, body []byte) *hook.Publishing {
	n.message = parts.Message{Exchange: exchange, Key: key, More: more, Props: props, Body: body, Now: now}
	n.publishing = hook.Publishing{Now: now, Key: key, More: more}
	n.publishing.Bind(&n.message)
	return &n.publishing
}

// askStored is ask for a stored message.
func (n *scheduled) askStored(now hook.Instant, r *record) *hook.Publishing {
	var cc []string
	if h := headers(r.props); len(h) > 0 {
		cc, _, _ = death.SenderSelected(h) // checked when it was published
	}
	return n.ask(now, string(r.exchange), string(r.key), slices.Concat(cc, blindKeys(r.bcc)), r.props, r.body)
}

// done forgets the message that the plugin was asked about.
func (n *scheduled) done() {
	n.message.Reset()
	n.publishing = hook.Publishing{}
}

// schedule takes in messages that are published to the exchange: it holds each until the
// instant in its plan, and lets plans replace or cancel held messages. Messages that are
// not held leave with the next tick, in order.
func (n *scheduled) schedule(q *Queue, now hook.Instant, ms []Message) {
	refused := 0
	for i := range ms {
		m, p := &ms[i], &n.plan
		*p = hook.Plan{}
		if !m.Planned || m.Passes {
			n.askPlan(q, now, m, p)
		}
		if m.Planned && m.Passes { // it was decided before that no exchange holds it, whatever the settings say now
			p.Hold = 0
		} else {
			p.Hold = max(p.Hold, m.Wait.until(now)) // the publisher's hold counts here, because no other queue will hold the message
		}
		if !n.follow(q, now, m, p) {
			refused++
		}
	}
	n.done()
	n.plan = hook.Plan{}
	if refused > 0 {
		q.count.Published += uint64(refused)
		q.count.Refused += uint64(refused)
		q.host.Refused(q.cfg, refused)
	}
}

// askPlan asks the plugin about a message that enters. The plugin may refuse the message
// by now; that is ignored, because the message was accepted when it was published.
func (n *scheduled) askPlan(q *Queue, now hook.Instant, m *Message, p *hook.Plan) {
	s, r := q.cfg.Schedule, m.Routing
	if s.Broken() {
		return
	}
	asked := n.ask(now, r.Exchange, r.Key, moreKeys(r), m.Props, m.Body)
	if _, ok := s.Plan(asked, p); !ok {
		*p = hook.Plan{}
	}
}

func moreKeys(r *RoutingInfo) []string {
	if len(r.CC)+len(r.BCC) == 0 {
		return nil
	}
	return slices.Concat(r.CC, r.BCC)
}

// follow carries out the plan for a message. It reports false if it refused the message.
func (n *scheduled) follow(q *Queue, now hook.Instant, m *Message, p *hook.Plan) (taken bool) {
	var id scheduleID
	var waiting handle
	waits := false
	if len(p.ID) > 0 {
		id = n.idOf(p.ID)
		if ref, known := n.ids[id]; known {
			waiting, waits = q.heldAt(ref)
		}
	}
	if p.Cancel {
		if waits {
			m.Flags &^= Mandatory
			q.holding.cancel(q, now, waiting)
			q.buf.ops.relies = true // the confirm waits until the cancellation is durable
		}
		return true
	}
	m.Flags &^= Mandatory
	if m.Passes && p.Hold <= now {
		if waits {
			q.holding.cancel(q, now, waiting)
			q.buf.ops.relies = true
		}
		return true
	}
	if limit := q.cfg.Schedule.MaxHeld(); p.Hold > now && !waits && limit.Set() && int64(q.held()) >= limit.N() {
		m.Flags |= Refused
		return false
	}
	if waits {
		q.holding.cancel(q, now, waiting)
	}
	ref := n.store(q, now, m, max(p.Hold, now))
	if len(p.ID) > 0 && p.Hold > now { // else it is on its way: nothing replaces or cancels it
		n.ids[id] = ref
	}
	return true
}

// store stores a message that is held until an instant, which may have come.
func (n *scheduled) store(q *Queue, now hook.Instant, m *Message, until hook.Instant) Ref {
	f := &q.levels[0]
	s := q.store.add(now, m, strategyData{}, slotFlagsOf(m, &hook.Verdict{}, strategyData{}))
	seq := f.push(s, 0)
	h := handle{ref(0, seq), f, &f.chunks[len(f.chunks)-1], int(seq & positionMask)}
	q.journalEnqueued(now, h, 0)
	q.holdEntering(h, until)
	q.count.Published++
	if m.Flags&HasDeathHistory != 0 {
		q.count.DeadLetters++
	}
	return h.ref
}

// forgetID makes the ID of a message that leaves free. It must be called before the
// record is freed.
func (n *scheduled) forgetID(q *Queue, h handle) {
	if len(n.ids) == 0 {
		return
	}
	if id, ok := n.storedID(q, h); ok && n.ids[id] == h.ref {
		delete(n.ids, id)
	}
}

// storedID returns the ID of a stored message; ok is false if it has none.
func (n *scheduled) storedID(q *Queue, h handle) (id scheduleID, ok bool) {
	s := q.cfg.Schedule
	if s.Broken() {
		return scheduleID{}, false
	}
	r := q.store.read(*h.slot())
	var p hook.Plan
	// The plugin is asked as of the message's entry. A plan whose time has passed has its
	// ID all the same.
	_, planned := s.Plan(n.askStored(r.enqueued, &r), &p) // the plugin may refuse the message by now
	if planned && len(p.ID) > 0 {
		id, ok = n.idOf(p.ID), true
	}
	n.done()
	return id, ok
}

// restore holds a message that a replay restored. A message whose hold has ended leaves
// after the start, in order.
func (n *scheduled) restore(q *Queue, h handle) {
	until := atOnce
	s := h.slot()
	if s.is(stateHeld) {
		until = max(h.hold(), atOnce)
	}
	s.become(stateHeld)
	s.flags |= unready
	h.chunk.setHold(h.index, until)
	q.indexHeld(h)
	if q.store.read(*h.slot()).enqueued >= h.hold() { // it was due as it entered, so it has no ID: see follow
		return
	}
	if id, ok := n.storedID(q, h); ok {
		n.ids[id] = h.ref
	}
}

// due is a held message whose hold has ended.
type due struct {
	leaving
	release hook.Release
	ends    bool   // the message leaves; otherwise it is held again
	times   uint16 // the number of the next hold: see heldOnce
}

// heldOnce returns the number of the next hold of a message, after the hold with the
// number times. holding.nacks has the number. It is 0 until the message is held again
// after a release; from then on, each further hold and each move of a hold adds 1. A
// replay needs it, because a release is journalled only when the released copy has
// arrived, perhaps after a move:
//
//	12:00  released; the message is held until 13:00 as number 1
//	12:01  a user moves the hold to 15:00: journalled, number 2
//	12:02  the copy has arrived: "held until 13:00", number 1, is journalled
//
// The replay ignores number 1, because number 2 is later.
func heldOnce(times uint16) uint16 { return max(times+1, 1) }

// isOlderHold reports whether the hold with the number times is older than that with the
// number other.
func isOlderHold(times, other uint16) bool { return int16(times-other) < 0 }

// publishDue publishes due messages, as many as a turn may. While too many dead letters
// are under way, the queue waits in the line of traffic.
func (q *Queue) publishDue(now hook.Instant) {
	if next := q.nextRelease(); next == 0 || next > now || q.cfg.Schedule.stays() || q.buf.committing || !q.mailbox.broker.underway.admit(q.mailbox) {
		return
	}
	q.mailbox.broker.underway.during(func() { q.scheduling().publish(q, now) })
}

// publish is publishDue for a queue that traffic has admitted.
func (n *scheduled) publish(q *Queue, now hook.Instant) {
	ds := n.takeDue(q, now)
	r := &q.buf.removals
	for i := range ds {
		d := &ds[i]
		s := q.at(d.ref).slot()
		if !d.release.Skip {
			r.dead = append(r.dead, deadLetterOf(&d.record, s, d.verdict))
		}
		if !d.release.Skip || d.ends {
			removal := q.removalOf(now, d.ref, &d.record, d.verdict)
			removal.Held = d.release.Due
			r.all = append(r.all, removal)
		}
	}
	sent := q.buf.removals.publishKept(q, now, n.deferredReleases(q, ds)) // before the records are freed
	for i := range ds {
		if d := &ds[i]; !sent && !d.release.Skip {
			n.keepDue(q, d, now.Add(spaceRetry))
			continue
		}
		n.finishRelease(q, &ds[i])
	}
	q.buf.parting = nil
	clear(ds)
}

// takeDue takes messages that are due, in their order, and asks the plugin about them.
func (n *scheduled) takeDue(q *Queue, now hook.Instant) (ds []due) {
	s, bytes := q.cfg.Schedule, 0
	_, vs := q.buf.batch(maxBatch)
	asks, last := s.AsksReleased(), uint32(0)
	for len(ds) < maxBatch && bytes <= q.departing.most(now) {
		it, ok := q.holding.list.First()
		if !ok || hook.Instant(it.At) > now {
			break
		}
		h, v := q.at(Ref(it.Slot)), &vs[len(ds)]
		if q.waitsForArrival(h) {
			continue
		}
		if k := h.slot().segment; k == last && len(ds) > 0 {
			q.store.load(k) // two in a row: the messages seem to leave in the order in which they came
		} else {
			last = k
		}
		d := due{leaving: leaving{h.ref, q.store.read(*h.slot()), v}, ends: true, times: heldOnce(q.nacksOf(h.ref))}
		d.release = hook.Release{Due: hook.Instant(it.At), State: d.record.state}
		if asks {
			s.Release(n.askStored(now, &d.record), &d.release)
			n.done()
			d.ends = d.release.Hold <= d.release.Due // a hold until an earlier time would release the message without end
		}
		*v = hook.Verdict{Action: hook.Route, Reason: hook.ReasonReleased, Target: s.Target}
		if d.release.Skip {
			v.Action, v.Target = hook.Drop, nil
		}
		q.takeHeld(h)
		bytes += int(h.slot().length)
		ds = append(ds, d)
	}
	return ds
}

// deferredReleases returns the operations for the journal once the messages have arrived
// elsewhere: the messages have left, or are held again. nil means none.
func (n *scheduled) deferredReleases(q *Queue, ds []due) *DeferredRemoval {
	if q.cfg.Storage == nil {
		return nil
	}
	ls := make([]departed, 0, len(ds))
	for i := range ds {
		d := &ds[i]
		if d.release.Skip { // it goes to no other queue
			continue
		}
		l := q.departedOf(d.ref)
		if !d.ends && !l.gone {
			l.again = n.appendHeldAgain(q, nil, d)
			n.startArriving(d.ref)
		}
		ls = append(ls, l)
	}
	if len(ls) == 0 {
		return nil
	}
	r := newDeferredRemoval(q, ls)
	if slices.ContainsFunc(ls, func(l departed) bool { return l.again != nil }) {
		r.again = q.mailbox
	}
	return r
}

// startArriving records that a release of a message is under way.
func (n *scheduled) startArriving(r Ref) {
	if n.arriving == nil {
		n.arriving = map[Ref]bool{}
	}
	n.arriving[r] = false
}

// appendHeldAgain appends the operations that say until when a message is held again.
func (n *scheduled) appendHeldAgain(q *Queue, b []byte, d *due) []byte {
	id, flags := q.cfg.Storage.ID, q.at(d.ref).slot().flags
	b = appendDeadlineSet(b, id, d.ref, 0, strategyData{state: d.release.State}, flags)
	return appendHeld(b, id, d.ref, d.release.Hold, heldUnready, d.times)
}

// finishRelease frees a message that was published, or holds it again.
func (n *scheduled) finishRelease(q *Queue, d *due) {
	h, reason := q.at(d.ref), hook.ReasonReleased
	switch {
	case !d.ends && d.release.Skip:
		n.holdNext(q, h, d)
		if q.isJournalled(h.slot()) {
			q.buf.ops.buf = n.appendHeldAgain(q, q.buf.ops.buf, d)
		}
	case !d.ends:
		n.holdNext(q, h, d)
		q.count.Published++ // a copy entered and left
		q.count.DeadLettered[reason]++
	case d.release.Skip:
		q.count.Dropped[reason]++
		q.drop(h)
	default:
		q.count.DeadLettered[reason]++
		q.free(h)
	}
}

// keepDue holds a due message that found no space, until the next attempt. In the journal
// it is still due.
func (n *scheduled) keepDue(q *Queue, d *due, until hook.Instant) {
	h := q.at(d.ref)
	delete(n.arriving, d.ref)
	s := h.slot()
	s.become(stateHeld)
	s.flags |= unready
	q.unacked--
	h.chunk.setHold(h.index, until)
	q.indexHeld(h)
}

// waitsForArrival reports whether the last release of a due message has not arrived. If
// so, it takes the message off the list of held messages.
func (c *contents) waitsForArrival(h handle) bool {
	n := c.holding
	if n.scheduled == nil || len(n.arriving) == 0 {
		return false
	}
	if _, arrives := n.arriving[h.ref]; !arrives {
		return false
	}
	n.list.Remove(heldItem(h))
	n.arriving[h.ref] = true
	n.overdue++
	return true
}

// isArriving reports whether the last release of a message has not arrived durably.
func (c *contents) isArriving(r Ref) bool {
	if c == nil || c.holding == nil || c.holding.scheduled == nil {
		return false
	}
	_, arrives := c.holding.arriving[r]
	return arrives
}

// arrived lets messages be released again whose last release has arrived durably.
func (c *contents) arrived(ls []departed) {
	for i := range ls {
		if l := &ls[i]; l.again != nil && c.isArriving(l.ref) {
			c.relist(l.ref)
			delete(c.holding.arriving, l.ref)
		}
	}
}

// relist lists a held message again that waits for the arrival of its last release.
func (c *contents) relist(r Ref) {
	if n := c.holding; n.arriving[r] {
		n.arriving[r] = false
		n.overdue--
		c.indexHeld(c.at(r))
	}
}

// relistAll lists all held messages. The next tick takes those that wait for an arrival
// off the list again.
func (c *contents) relistAll() {
	if n := c.holding; n.scheduled != nil && n.overdue > 0 {
		for r := range n.arriving {
			c.relist(r)
		}
	}
}

// holdNext holds a taken message again.
func (n *scheduled) holdNext(q *Queue, h handle, d *due) {
	q.setStrategyData(h, strategyData{state: d.release.State})
	q.setNacks(h.ref, d.times)
	s := h.slot()
	s.become(stateHeld)
	s.flags |= unready
	q.unacked--
	h.chunk.setHold(h.index, d.release.Hold)
	q.indexHeld(h)
}

// countScheduled updates the count of held messages that other goroutines read. It is
// called after each task. If the queue has become empty, it calls Unused, and deletes the
// queue if the exchange is deleted.
func (q *Queue) countScheduled() {
	s := q.cfg.Schedule
	if s == nil {
		return
	}
	if e := q.stopped; e != nil && !q.closed { // a restart finds the messages that it held
		s.held.Store(int64(e.ready + e.unacked + e.held + e.discarded))
		return
	}
	held := q.messages()
	s.held.Store(int64(held))
	if held > 0 {
		q.scheduling().used = true
		return
	}
	if q.closed || q.contents == nil || q.holding == nil || q.holding.scheduled == nil || !q.holding.scheduled.used {
		return
	}
	q.holding.scheduled.used = false
	if s.Unused != nil && s.Unused() {
		q.close()
	}
}

// CheckUnused makes the queue call Unused in its next turn, if it is empty then.
func (m *Mailbox) CheckUnused() {
	m.postAsync(task{kind: taskCall, call: &call{done: make(chan struct{}), fn: func(q *Queue, _ hook.Instant) {
		q.open()
		q.scheduling().used = true
	}}})
}

// DropAsync deletes the queue without waiting for it. It may be called on another queue's
// turn. dropped is called on the queue's turn with the number of messages that the queue
// had; it is not called if the queue was deleted before.
func (m *Mailbox) DropAsync(dropped func(now hook.Instant, messages int)) {
	m.postAsync(task{kind: taskCall, call: &call{done: make(chan struct{}), fn: func(q *Queue, now hook.Instant) {
		messages := q.messages()
		q.close()
		dropped(now, messages)
	}}})
}
