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

// A queue with a Schedule is where an exchange holds messages: it has no consumers, no
// hooks and no limits but its own, and every message in it is held. A due message is
// published through the exchange, as dead letters are: it leaves the queue when, or in the
// same entry of the journal in which, it arrives elsewhere.

// Schedule makes a queue the place where an exchange holds messages.
type Schedule struct {
	*chain.Schedule
	// Target names the exchange. Messages that leave for it have this target.
	Target *hook.Target
	// Unused is called on the queue's turn when its last message has left. It reports
	// whether the exchange was deleted, and the queue with it. nil means that none asks.
	Unused func() (deleted bool)

	held   atomic.Int64
	halted atomic.Int32 // calls of HaltReleases that have not ended
}

// stays reports whether nothing is released, due or not.
func (s *Schedule) stays() bool { return s.Broken() || s.halted.Load() > 0 }

// HaltReleases keeps due messages until end is called. It returns when no release is about
// to begin. It must not be called on a queue's turn.
func (m *Mailbox) HaltReleases() (end func()) {
	s := m.Config().Schedule
	s.halted.Add(1)
	_ = m.Do(func(*Queue, hook.Instant) {}) // a turn that has not seen it ends; a deleted queue releases nothing
	return func() {
		s.halted.Add(-1)
		_ = m.Do(func(q *Queue, now hook.Instant) { q.tick(now) })
	}
}

// Held returns how many messages are held. Any goroutine may call it.
func (s *Schedule) Held() int { return int(s.held.Load()) }

// scheduled is what a queue with a schedule needs to know of its messages.
type scheduled struct {
	seeds [2]maphash.Seed
	ids   map[scheduleID]Ref // of the held messages that have an ID

	message    parts.Message // that the plugin is asked about
	publishing hook.Publishing
	plan       hook.Plan // for the message that enters
	used       bool      // it has held a message since it was last unused

	// arriving has the held messages whose last release has not arrived durably: until then
	// they are not released again, because the journal knows one release after the other.
	// true means that the message is due, and not in the list of the held ones.
	arriving map[Ref]bool
	overdue  int // how many are true
}

// scheduleID stands for an ID. No publisher can know which IDs have equal ones.
type scheduleID [2]uint64

func (n *scheduled) idOf(id []byte) scheduleID {
	if n.ids == nil {
		n.ids = map[scheduleID]Ref{}
		n.seeds = [2]maphash.Seed{maphash.MakeSeed(), maphash.MakeSeed()}
	}
	return scheduleID{maphash.Bytes(n.seeds[0], id), maphash.Bytes(n.seeds[1], id)}
}

// scheduling returns what the queue knows, which is nothing before its first message.
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

// askStored is ask for a message that the queue has.
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

// schedule holds messages until their plans say, or has them replace or cancel others.
// Those that are not held leave with the next tick, in order.
func (n *scheduled) schedule(q *Queue, now hook.Instant, ms []Message) {
	refused := 0
	for i := range ms {
		m, p := &ms[i], &n.plan
		*p = hook.Plan{}
		if !m.Planned || m.Passes {
			n.askPlan(q, now, m, p)
		}
		if m.Planned && m.Passes { // it has left, whatever the settings say by now
			p.Hold = 0
		} else {
			p.Hold = max(p.Hold, m.Wait.until(now)) // a message is held in one place only
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

// askPlan asks the plugin about a message that enters. It may refuse the message by now, which
// is ignored: the message was accepted when it was published.
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

// follow does what the plan for a message says. It reports false if it refused the
// message.
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
			q.buf.ops.relies = true // it is confirmed when that is durable
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
	s := q.store.add(now, m, strategyData{}, slotFlagsOf(m, &hook.Verdict{}))
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

// forgetID makes the ID of a message that leaves free. Its record must be there still.
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
	// The time of then: plans for the past have no ID less.
	_, planned := s.Plan(n.askStored(r.enqueued, &r), &p) // it may be refused by now
	if planned && len(p.ID) > 0 {
		id, ok = n.idOf(p.ID), true
	}
	n.done()
	return id, ok
}

// restore holds a message that a replay restored. One whose time has come leaves
// in its order, after the start.
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
	if q.store.read(*h.slot()).enqueued >= h.hold() { // it was due when it came: see follow
		return
	}
	if id, ok := n.storedID(q, h); ok {
		n.ids[id] = h.ref
	}
}

// due is a held message whose time has come.
type due struct {
	leaving
	release hook.Release
	ends    bool   // it does not stay
	times   uint16 // that it was held again, if it is now
}

// heldOnce counts that a message is held once more, in holding.nacks, or moved after that.
// What a release journals comes only when the released message has arrived: a replay tells
// by this number that the message was moved meanwhile. It is 0 for a message that was never
// held again.
func heldOnce(times uint16) uint16 { return max(times+1, 1) }

// isOlderHold reports whether the hold with a number was overtaken by that with another.
func isOlderHold(times, other uint16) bool { return int16(times-other) < 0 }

// publishDue publishes messages that are due, as many as a turn may. While there are too
// many dead letters under way, it waits for its turn.
func (q *Queue) publishDue(now hook.Instant) {
	if next := q.nextRelease(); next == 0 || next > now || q.cfg.Schedule.stays() || q.buf.committing || !q.mailbox.broker.underway.admit(q.mailbox) {
		return
	}
	q.mailbox.broker.underway.during(func() { q.scheduling().publish(q, now) })
}

// publish is publishDue for the messages that traffic has admitted.
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
	sent := q.buf.removals.publishKept(q, now, n.deferredReleases(q, ds)) // which reads records, so before they are freed
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
			q.store.load(k) // they seem to leave as they came
		} else {
			last = k
		}
		d := due{leaving: leaving{h.ref, q.store.read(*h.slot()), v}, ends: true, times: heldOnce(q.nacksOf(h.ref))}
		d.release = hook.Release{Due: hook.Instant(it.At), State: d.record.state}
		if asks {
			s.Release(n.askStored(now, &d.record), &d.release)
			n.done()
			d.ends = d.release.Hold <= d.release.Due // a time that has been would never end
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
// elsewhere: they left, or they are held again until later. nil means none.
func (n *scheduled) deferredReleases(q *Queue, ds []due) *DeferredRemoval {
	if q.cfg.Storage == nil {
		return nil
	}
	ls := make([]departed, 0, len(ds))
	for i := range ds {
		d := &ds[i]
		if d.release.Skip { // that does not wait for another queue
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

// startArriving notes that a release of a message is under way.
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

// keepDue holds a message that was to be published until another instant. The journal has it
// as one that is due.
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

// waitsForArrival takes a message off the list of the held ones if its last release has not
// arrived, and reports whether it did.
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

// relist lists a held message that waits for the arrival of its last release.
func (c *contents) relist(r Ref) {
	if n := c.holding; n.arriving[r] {
		n.arriving[r] = false
		n.overdue--
		c.indexHeld(c.at(r))
	}
}

// relistAll lists all held messages. Those that wait for an arrival are taken off the list
// with the next tick.
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

// countScheduled updates what others know of the queue, after each task, and deletes it
// if its exchange is deleted because it is unused.
func (q *Queue) countScheduled() {
	s := q.cfg.Schedule
	if s == nil {
		return
	}
	if e := q.stopped; e != nil && !q.closed { // a restart finds what it held
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

// CheckUnused has the queue ask Unused with its next turn, if it holds nothing then.
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
