package queue

import (
	"errors"
	"slices"
	"sort"
	"sync"
	"time"

	"github.com/curfewmq/curfew/core/telemetry"
	"github.com/curfewmq/curfew/sdk/hook"
)

// Redrive moves ready messages of one queue to others, on request. It looks once at each
// message that was in the queue when it began, in the order in which consumers would get
// them. It takes the messages that are to leave, and publishes them in parts. A message
// is removed when all its targets have it; a message that a target refuses becomes ready
// again, in its old position.
//
// It belongs to its queue's turn, except for Status, which any goroutine may call.
type Redrive struct {
	// choose is [RedriveOptions].Choose. It is called on the queue's turn, must not
	// retain m, and must not call a queue.
	choose func(m *Stored) (*RedriveTarget, RedriveFailure)
	ended  func(now hook.Instant, s *RedriveStatus)
	most   int   // messages to move; 0 means all
	pace   int64 // messages per second; 0 means as fast as their targets take them

	cursor  cursor
	seen    Stored
	parts   []*transfer  // under way, in the order in which they were sent
	sent    int          // messages that were sent, less those that came back
	next    hook.Instant // when the next part may be sent
	since   hook.Instant // when pacing began
	paced   int64        // messages that were sent since then
	sampled hook.Instant // when rate was computed
	before  int          // messages that had been moved at sampled

	mu     sync.Mutex // guards status
	status RedriveStatus
}

// RedriveOptions configure a Redrive.
type RedriveOptions struct {
	// Choose returns the target of a message; nil means that the message stays. Then the
	// failure says why a message stays that should leave, or is [NotChosen].
	Choose func(m *Stored) (*RedriveTarget, RedriveFailure)
	// Ended is called on the queue's turn when the redrive has ended; nil means nothing.
	Ended     func(now hook.Instant, s *RedriveStatus)
	Most      int // messages to move; 0 means all
	PerSecond int // messages to send in a second; 0 means as fast as their targets take them
	Total     int // messages to be moved, for the status; negative means all that are ready
	// Until ends the messages that the redrive looks at. The zero value means those that
	// are in the queue when it begins.
	Until Horizon
}

// RedriveTarget is a target of messages. All messages that go there share one value.
type RedriveTarget struct {
	hook.Target
	// Routing is the routing info that consumers see; nil means that of the target.
	Routing *RoutingInfo
	// Only says that all messages of the redrive go here: if the target does not exist,
	// the redrive fails.
	Only bool
	// ID is the index of the target in [RedriveStatus].Targets. The creator of the
	// redrive chooses it.
	ID int
}

// RedriveState is the state of a redrive.
type RedriveState uint8

// The states.
const (
	RedriveRunning RedriveState = iota
	RedriveDone
	RedriveCancelled
	RedriveFailed
	RedriveStates
)

// String returns the state's name in the management API.
func (s RedriveState) String() string {
	return [RedriveStates]string{"running", "done", "cancelled", "failed"}[s]
}

// RedriveFailure says why a message that was to leave stays.
type RedriveFailure uint8

// The reasons why a message stays.
const (
	NotChosen         RedriveFailure = iota // it was not to leave
	FailNoDeath                             // it was never dead-lettered, so its old queue is unknown
	FailNoPermission                        // the user may not publish there
	FailNoQueue                             // its target queue does not exist
	FailNoExchange                          // its target exchange does not exist
	FailUnroutable                          // its target exchange routes it to no queue
	FailFiltered                            // an exchange did not admit it
	FailRefused                             // a queue refused it: it is full
	FailTargetStopped                       // a target's log failed while the message was written
	RedriveFailures
)

// String returns the name in the management API, "" for NotChosen.
func (f RedriveFailure) String() string {
	return [RedriveFailures]string{
		"", "no_death", "no_permission", "no_queue", "no_exchange", "unroutable", "filtered", "refused", "target_stopped",
	}[f]
}

// RedriveStatus is the progress of a redrive.
type RedriveStatus struct {
	State   RedriveState
	Reason  string // why it failed
	Began   hook.Instant
	Ended   hook.Instant // 0 while it runs
	Total   int          // messages to be moved: RedriveOptions.Total
	Looked  int          // messages that it has looked at
	Moved   int
	Failed  [RedriveFailures]int
	Rate    float64         // messages moved per second: lately, or overall once the redrive has ended
	Targets []RedriveCounts // by RedriveTarget.ID
}

// RedriveCounts counts the messages of one target.
type RedriveCounts struct{ Moved, Failed int }

// Horizon is the end of a scan: messages that enter later lie behind it and are not
// looked at. The zero value has no end.
type Horizon struct{ next []uint64 } // by level: sequence numbers

// horizon returns the end of the messages that are in the queue.
func (q *Queue) horizon() Horizon {
	h := Horizon{next: make([]uint64, q.cfg.Levels+1)}
	if q.contents != nil {
		for l := range q.levels {
			h.next[l] = q.levels[l].next
		}
	}
	return h
}

// errRedriving is returned for a queue that has a redrive.
var errRedriving = errors.New("queue is being redriven")

// The bounds of a redrive: messages in a part, slots that it looks at in a turn, and
// parts under way. Between two parts a redrive leaves the processor to other queues for
// redriveYield. Without that pause it would delay their messages.
const (
	redrivePart    = maxBatch
	redriveLooked  = chunkSlots / 2
	redrivePartsUp = 4
	redriveYield   = 150 * time.Microsecond
)

// redrivePause is the time between two parts of a redrive with a pace: short enough that
// its messages are spread, and long enough that they go in batches.
const redrivePause = 5 * time.Millisecond

// StartRedrive begins a redrive. A queue can have only one at a time.
func (q *Queue) StartRedrive(now hook.Instant, o RedriveOptions) (*Redrive, error) {
	if q.redrive != nil {
		return nil, errRedriving
	}
	r := &Redrive{
		choose: o.Choose, ended: o.Ended, most: o.Most, pace: int64(o.PerSecond), next: atOnce, since: now, sampled: now,
		cursor: newCursor(q, o.Until),
		status: RedriveStatus{Began: now, Total: o.Total},
	}
	if o.Total < 0 {
		r.status.Total = q.ready
	}
	q.redrive = r
	q.Touch(now)
	return r, nil
}

// Status returns the progress. A redrive ends when the targets have answered for all
// messages that it has sent; until then its queue starts no other redrive.
func (r *Redrive) Status() RedriveStatus {
	r.mu.Lock()
	defer r.mu.Unlock()
	s := r.status
	if s.Ended == 0 {
		s.State, s.Reason = RedriveRunning, ""
	}
	s.Targets = append([]RedriveCounts(nil), s.Targets...)
	return s
}

// CancelRedrive ends a redrive once the messages that are under way have arrived. It
// does nothing if r has ended.
func (q *Queue) CancelRedrive(now hook.Instant, r *Redrive) {
	if q.redrive == r {
		r.conclude(q, now, RedriveCancelled, "")
	}
}

// conclude ends the sending of messages, and sets the state in which the redrive will
// end.
func (r *Redrive) conclude(q *Queue, now hook.Instant, state RedriveState, reason string) {
	r.cursor.level = -1
	r.mu.Lock()
	if r.status.State == RedriveRunning {
		r.status.State, r.status.Reason = state, reason
	}
	r.mu.Unlock()
	r.endIfDone(q, now)
}

// nextAt returns when the next part may leave; 0 means that the redrive waits for an
// event, or has sent everything. r may be nil.
func (r *Redrive) nextAt(q *Queue) hook.Instant {
	if r == nil || r.cursor.done() || len(r.parts) >= redrivePartsUp || q.mailbox.inLine || r.full() {
		return 0
	}
	return r.next
}

// full reports whether enough messages have been moved or are under way.
func (r *Redrive) full() bool { return r.most > 0 && r.sent >= r.most }

// goOn looks at some of the messages and sends the ones that leave. r may be nil.
func (r *Redrive) goOn(q *Queue, now hook.Instant) {
	if at := r.nextAt(q); at == 0 || at > now || len(q.departing.list) > 0 {
		return
	}
	if r.cursor.inFront(q) {
		n := r.allowed(now)
		if n == 0 || !q.mailbox.broker.underway.admit(q.mailbox) {
			return
		}
		q.mailbox.broker.underway.during(func() { r.sendSome(q, now, n) })
	}
	r.endIfDone(q, now)
}

// allowed returns how many messages may leave now, and sets when the next ones may.
func (r *Redrive) allowed(now hook.Instant) int {
	n := redrivePart
	if r.most > 0 {
		n = min(n, r.most-r.sent)
	}
	if r.pace == 0 {
		r.next = now.Add(redriveYield)
		return n
	}
	const late = int64(time.Second)
	if behind := int64(now-r.since) - r.paced*int64(time.Second)/r.pace; behind > late { // a longer delay is not caught up with
		r.since, r.paced = now, 0
	}
	due := int64(now-r.since)/int64(time.Millisecond)*r.pace/1000 + 1 // the first at once
	n = int(max(min(int64(n), due-r.paced), 0))
	r.next = max(now.Add(redrivePause), r.since+hook.Instant((r.paced+int64(n))*int64(time.Second)/r.pace))
	return n
}

// sendSome looks at messages and sends at most n that leave.
func (r *Redrive) sendSome(q *Queue, now hook.Instant, n int) {
	p := &transfer{mailbox: q.mailbox, storage: q.cfg.Storage, redrive: r}
	looked, bytes := 0, 0
	r.cursor.each(q, redriveLooked, func(h handle) bool {
		if !h.slot().is(stateReady) {
			return true
		}
		looked++
		rec := q.store.read(*h.slot())
		r.seen.show(h, &rec)
		t, failure := r.choose(&r.seen)
		if t == nil {
			r.noteFailed(nil, failure)
			return true
		}
		r.take(q, p, h, &rec, t)
		bytes += int(h.slot().length)
		return len(p.messages) < n && bytes < q.departing.most(now)
	})
	r.seen = Stored{}
	r.paced += int64(len(p.messages))
	r.mu.Lock()
	r.status.Looked += looked
	r.mu.Unlock()
	if len(p.messages) > 0 {
		r.send(q, now, p)
	}
}

// take takes a message that leaves for a target, and adds it to a part.
func (r *Redrive) take(q *Queue, p *transfer, h handle, rec *record, t *RedriveTarget) {
	q.take(h, len(rec.body))
	q.unacked--
	q.moving++
	p.messages = append(p.messages, inTransfer{
		ref: h.ref, target: t, verdict: hook.Verdict{Action: hook.Route, Reason: hook.ReasonRedriven, Target: &t.Target},
		journalled: q.isJournalled(h.slot()),
	})
	m := &p.messages[len(p.messages)-1]
	d := deadLetterOf(rec, h.slot(), &m.verdict)
	d.Routing, d.Seq, d.have = t.Routing, uint64(len(p.messages)), q.have(h.ref, &t.Target)
	q.buf.removals.dead = append(q.buf.removals.dead, d)
}

// send publishes a part. Its dead letters are in buf.removals.
func (r *Redrive) send(q *Queue, now hook.Instant, p *transfer) {
	p.depart(q)
	p.tracker = q.mailbox.pendingRemovals()
	p.tracker.begin()
	defer p.endUnsent()
	r.parts = append(r.parts, p)
	r.sent += len(p.messages)
	q.commit(nil) // the messages may have entered in this turn: their enqueues come first
	sent := p.publish(q, now, q.buf.removals.dead)
	q.buf.removals.clear()
	if sent {
		return
	}
	p.sent = true
	for i := range p.messages {
		p.messages[i].stays.Store(uint32(FailRefused))
	}
	p.post(nil)
}

// depart reports to the hooks that the watched messages of a part have left. A copy may
// enter the same queue before the queue has removed the message.
func (t *transfer) depart(q *Queue) {
	if !q.hooks.WantsGone() {
		return
	}
	for i := range t.messages {
		m := &t.messages[i]
		m.watched = q.at(m.ref).slot().flags&watched != 0
		q.buf.gone.departs(q, m.ref)
	}
}

// has reports whether a taken message is on its way to another queue. r may be nil.
func (r *Redrive) has(ref Ref) bool {
	if r == nil {
		return false
	}
	for _, p := range r.parts {
		i := sort.Search(len(p.messages), func(i int) bool { return p.messages[i].ref >= ref })
		if i < len(p.messages) && p.messages[i].ref == ref {
			return true
		}
	}
	return false
}

// moved ends a part: it removes the messages that have arrived, and makes the others
// ready again.
func (r *Redrive) moved(q *Queue, now hook.Instant, p *transfer) {
	defer p.release(nil)
	q.Touch(now)
	r.parts = slices.DeleteFunc(r.parts, func(o *transfer) bool { return o == p })
	q.moving -= len(p.messages)
	q.unacked += len(p.messages)
	arrived, hopeless := make([]int, 0, len(p.messages)), ""
	for i := range p.messages {
		if p.messages[i].failure() == NotChosen {
			arrived = append(arrived, i)
		}
	}
	p.reportAll(q, now, arrived, telemetry.DeadLettered)
	for i := range p.messages {
		m := &p.messages[i]
		f := m.failure()
		if f == NotChosen {
			q.count.DeadLettered[hook.ReasonRedriven]++
			m.remove(q)
			continue
		}
		r.noteFailed(m.target, f)
		if m.target.Only && hopeless == "" {
			hopeless = p.hopeless(q, m.target, f)
		}
		m.stay(q, now)
	}
	r.sent -= len(p.messages) - len(arrived)
	r.noteMoved(now, p, arrived)
	if hopeless != "" {
		r.conclude(q, now, RedriveFailed, hopeless)
	}
	r.endIfDone(q, now)
	q.afterChange(now)
}

// remove frees a message that has arrived.
func (m *inTransfer) remove(q *Queue) {
	h := q.at(m.ref)
	if !m.gone {
		q.drop(h)
		return
	}
	extent, bytes := h.chunk.extentOf(h.index, -1)
	q.free(h)
	q.buf.ops.account(extent, bytes)
}

// stay makes a message ready again that not all of its targets took.
func (m *inTransfer) stay(q *Queue, now hook.Instant) {
	h := q.at(m.ref)
	q.noteHave(m.ref, m.verdict.Target, m.have)
	if m.watched {
		q.buf.gone.stays(q, now, h)
	}
	q.untake(h, len(q.store.read(*h.slot()).body))
	q.setDeadline(h, h.deadline())
}

// hopeless returns why no message of the redrive can move; "" means that others may.
func (t *transfer) hopeless(q *Queue, to *RedriveTarget, f RedriveFailure) string {
	switch f {
	case FailNoQueue:
		return "no queue '" + to.Key + "' in vhost '" + q.cfg.VHost + "'"
	case FailNoExchange:
		return "no exchange '" + to.Exchange + "' in vhost '" + q.cfg.VHost + "'"
	case FailTargetStopped:
		return (*t.err.Load()).Error()
	}
	return ""
}

// noteMoved counts the messages of a part that have arrived.
func (r *Redrive) noteMoved(now hook.Instant, p *transfer, arrived []int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.status.Moved += len(arrived)
	for _, i := range arrived {
		r.countsOf(p.messages[i].target).Moved++
	}
	r.sample(now)
}

// takeInRedriven is takeInTurn for messages that no client published: all of them count
// as dead letters, whether they ever died or not.
func (q *Queue) takeInRedriven(now hook.Instant, ms []Message) {
	q.Touch(now) // a redrive renews the lease of its target; a publish does not
	q.open()
	before := q.count.DeadLetters
	q.takeInTurn(now, ms)
	q.count.DeadLetters = before + uint64(len(ms))
}

// noteFailed counts a message that should leave and stays; it ignores NotChosen.
func (r *Redrive) noteFailed(t *RedriveTarget, f RedriveFailure) {
	if f == NotChosen {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.status.Failed[f]++
	if c := r.countsOf(t); c != nil {
		c.Failed++
	}
}

// countsOf returns the counts of a target. The caller holds mu.
func (r *Redrive) countsOf(t *RedriveTarget) *RedriveCounts {
	if t == nil {
		return nil
	}
	for len(r.status.Targets) <= t.ID {
		r.status.Targets = append(r.status.Targets, RedriveCounts{})
	}
	return &r.status.Targets[t.ID]
}

// endIfDone ends the redrive if no part is under way and no more messages are to be sent.
// If it has ended already, endIfDone does nothing.
func (r *Redrive) endIfDone(q *Queue, now hook.Instant) {
	if q.redrive != r || len(r.parts) > 0 || !r.cursor.done() && !r.full() && r.cursor.inFront(q) {
		return
	}
	r.end(q, now, RedriveDone, "")
}

// end ends the redrive. The given state applies unless conclude has set another one.
func (r *Redrive) end(q *Queue, now hook.Instant, state RedriveState, reason string) {
	q.redrive = nil
	r.mu.Lock()
	s := &r.status
	if s.State == RedriveRunning {
		s.State, s.Reason = state, reason
	}
	s.Ended = max(now, s.Began)
	s.Rate = rate(s.Moved, s.Ended.Sub(s.Began))
	r.mu.Unlock()
	if r.ended != nil {
		all := r.Status()
		r.ended(now, &all)
	}
}

func rate(n int, in time.Duration) float64 {
	return float64(n) / max(in, time.Millisecond).Seconds()
}

// sample computes the rate once a second. The caller holds mu.
func (r *Redrive) sample(now hook.Instant) {
	s := &r.status
	if in := now.Sub(r.sampled); in >= time.Second {
		s.Rate = rate(s.Moved-r.before, in)
		r.sampled, r.before = now, s.Moved
	} else if r.sampled == s.Began {
		s.Rate = rate(s.Moved, in)
	}
}

// failureOf returns the failure for the outcome of a message that was routed to no queue.
func failureOf(t *RedriveTarget, o telemetry.Outcome) RedriveFailure {
	switch {
	case o == telemetry.NoExchange:
		return FailNoExchange
	case o == telemetry.Filtered:
		return FailFiltered
	case t.Exchange == "":
		return FailNoQueue
	}
	return FailUnroutable
}
