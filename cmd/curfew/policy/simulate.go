package policy

import (
	"fmt"
	"time"

	"github.com/curfewmq/curfew/core/deadline"
	"github.com/curfewmq/curfew/sdk/abi"
	"github.com/curfewmq/curfew/sdk/hook"
)

// messageState is the state of a message.
type messageState uint8

const (
	ready messageState = iota
	held
	unacked
	removed
)

// stored is a message that entered the queue.
type stored struct {
	hook.Message

	id      string
	event   *event
	where   messageState
	hold    hook.Instant // end of its hold, while it is held
	askHead bool
	inLine  bool // line has an item for it, which may be stale
	missed  bool // the trace delivers it, but it was held at that time
}

// simulation is a queue without a broker. Its clock advances to the next event of the trace or the next deadline of a message.
type simulation struct {
	lab     *lab
	queue   *queue
	hooks   hook.Hooks
	ordered bool // by priority
	start   hook.Instant
	now     hook.Instant

	messages  []*stored // by their numbers in the heaps
	byID      map[string]uint64
	deadlines deadline.Heap
	releases  deadline.Heap // may contain stale items, like deadlines
	line      deadline.Heap // order of delivery: At is lower for a higher priority
	decisions []decision
	most      int       // limit on decisions
	asked     []*stored // messages of the current call
	carried   contents
	views     []hook.Message
	outcome   outcome
}

// outcome counts the fates of messages.
type outcome struct {
	published, refused, delivered, acked, expired, dropped, routed, held int
}

// Limits on decisions, because a policy may prolong deadlines forever: a constant, and more
// for each event. Beyond them the simulation ends.
const (
	patience         = 100_000
	patiencePerEvent = 100
)

// simulate plays a trace, and then lets the time after pass, or less if no message has a deadline or is held any more.
func simulate(l *lab, t *trace, after time.Duration) (*simulation, error) {
	q := newQueue()
	q.settings = t.queue.Settings
	for to, given := range map[*string]string{&q.vhost: t.queue.VHost, &q.name: t.queue.Name, &q.kind: t.queue.Type} {
		if given != "" {
			*to = given
		}
	}
	start := hook.Instant(t.queue.Start.UnixMilli()) * hook.Instant(time.Millisecond)
	_, ordered := q.settings["max-priority"]
	s := &simulation{lab: l, queue: q, hooks: l.attach(q), ordered: ordered, start: start, now: start, byID: map[string]uint64{}}
	s.most = patience + patiencePerEvent*len(t.events)
	l.traced = s.traced
	for i := 0; i < len(t.events); {
		n, err := s.play(t.events[i:])
		if err != nil {
			return nil, err
		}
		i += n
	}
	err := s.advance(s.now.Add(after))
	s.outcome.held = s.heldNow()
	return s, err
}

// play plays the next event, or several simultaneous ones, and returns how many.
func (s *simulation) play(events []event) (int, error) {
	e := &events[0]
	if err := s.advance(s.start.AddMillis(e.At)); err != nil {
		return 0, err
	}
	n, err := 1, error(nil)
	switch e.Event {
	case eventPublish:
		n, err = s.publish(events)
	case eventDeliver:
		err = s.deliver(e)
	case eventAck:
		err = s.ack(e)
	case eventRequeue:
		err = s.requeue(e)
	case eventIdle:
		s.idle(e)
	}
	if err != nil {
		return 0, fmt.Errorf("at %d: %s: %w", e.At, e.Event, err)
	}
	return n, nil
}

// advance moves the clock, and handles the releases and deadlines up to the new time one by one.
func (s *simulation) advance(to hook.Instant) error {
	for {
		at, ok := s.nextInstant()
		if !ok || at > to {
			break
		}
		s.now = max(s.now, at)
		s.release()
		s.expireDue()
		if len(s.decisions) > s.most {
			return fmt.Errorf("the policy was called more than %d times; a lower --after ends the trace earlier", s.most)
		}
	}
	s.now = to
	return nil
}

// due removes the due messages from the heap.
func (s *simulation) due() []*stored {
	var all []*stored
	for s.deadlines.Len() > 0 && hook.Instant(s.deadlines.Top().At) <= s.now {
		it := s.deadlines.Pop()
		m := s.messages[it.Slot]
		if m.where != ready && m.where != held || m.Deadline != hook.Instant(it.At) {
			continue
		}
		if n := len(all); n == 0 || all[n-1] != m {
			all = append(all, m)
		}
	}
	return all
}

// batch bounds the messages in one call of the policy.
const batch = 256

// publish enqueues all messages that are published at the same time.
func (s *simulation) publish(events []event) (int, error) {
	var ms []*stored
	n := 0
	for ; n < len(events) && n < batch && events[n].Event == eventPublish && events[n].At == events[0].At; n++ {
		m, err := s.arrive(&events[n])
		if err != nil {
			return 0, err
		}
		ms = append(ms, m)
	}
	vs := s.ask(abi.OnEnqueue, hook.WhyEnqueue, ms, make([]hook.Verdict, n), s.hooks.OnEnqueue)
	for i, m := range ms {
		s.outcome.published++
		if vs[i].Action == hook.Refuse {
			m.where = removed
			s.outcome.refused++
			continue
		}
		s.update(m, &vs[i])
		if vs[i].Action == hook.Keep {
			s.enqueue(m)
			s.countReady(m, 1)
			s.hold(m, &vs[i])
			continue
		}
		s.remove(m, &vs[i])
	}
	return n, nil
}

func (s *simulation) arrive(e *event) (*stored, error) {
	id := e.ID
	if id == "" {
		id = fmt.Sprintf("m%d", len(s.messages)+1)
	}
	if _, taken := s.byID[id]; taken {
		return nil, fmt.Errorf("there is a message %q already", id)
	}
	m := &stored{Message: e.message(), id: id, event: e}
	m.Enqueued = s.now
	s.byID[id] = uint64(len(s.messages))
	s.messages = append(s.messages, m)
	return m, nil
}

// ask calls the policy and records its decisions.
func (s *simulation) ask(h abi.Hook, why hook.Why, ms []*stored, vs []hook.Verdict, ask callback) []hook.Verdict {
	if ask == nil {
		return vs
	}
	s.asked, s.carried, s.views = ms, s.carried[:0], s.views[:0]
	for _, m := range ms {
		s.carried, s.views = append(s.carried, m.event), append(s.views, m.Message)
	}
	for i := range s.views {
		s.views[i].Why = why
		s.views[i].Bind(s.carried, i)
	}
	failures, because := s.lab.failures(), ""
	ask(s.now, s.views, vs)
	if h == abi.OnEnqueue && s.hooks.DeadlineFromReady {
		s.moveDeadlines(vs)
	}
	if s.lab.failures() > failures {
		because = " (the policy failed)"
	}
	for i, m := range ms {
		s.record(h, m.id, s.words(&vs[i], m)+because)
	}
	return vs
}

// settle calls the policy about queued messages and applies the verdicts.
func (s *simulation) settle(h abi.Hook, why hook.Why, ms []*stored) {
	for len(ms) > 0 {
		part := ms[:min(len(ms), batch)]
		ms = ms[len(part):]
		vs := s.ask(h, why, part, inForce(part), s.hooks.OnHead)
		for i, m := range part {
			s.update(m, &vs[i])
			if vs[i].Action == hook.Keep {
				s.hold(m, &vs[i])
				continue
			}
			if m.where == ready {
				s.countReady(m, -1)
			}
			s.remove(m, &vs[i])
		}
	}
}

// inForce returns the initial verdicts of a call about queued messages.
func inForce(ms []*stored) []hook.Verdict {
	vs := make([]hook.Verdict, len(ms))
	for i, m := range ms {
		vs[i] = hook.Verdict{Deadline: m.Deadline, State: m.State, Hold: m.hold}
	}
	return vs
}

// update stores a verdict's deadline and state, and whether to call the policy at the head.
func (s *simulation) update(m *stored, v *hook.Verdict) {
	m.Deadline, m.State = v.Deadline, v.State
	if v.Action == hook.Keep {
		m.askHead = m.askHead || v.AskHead
		s.remind(m)
	}
}

// enqueue makes a message ready, at its old position if it had one.
func (s *simulation) enqueue(m *stored) {
	m.where = ready
	if m.inLine {
		return
	}
	at := int64(0)
	if s.ordered {
		at = -int64(m.Priority)
	}
	s.line.Push(deadline.Item{At: at, Slot: s.byID[m.id]})
	m.inLine = true
}

func (s *simulation) remove(m *stored, v *hook.Verdict) {
	m.where = removed
	switch {
	case v.Action == hook.Route:
		s.outcome.routed++
	case v.Final:
		s.outcome.dropped++
	default:
		s.outcome.expired++
	}
}

// next returns the message at the head; nil if there is none.
func (s *simulation) next() *stored {
	for s.line.Len() > 0 {
		m := s.messages[s.line.Top().Slot]
		if m.where == ready {
			return m
		}
		s.line.Pop()
		m.inLine = false
	}
	return nil
}

func (s *simulation) deliver(e *event) error {
	m := s.next()
	if e.ID != "" {
		var err error
		if m, err = s.find(e.ID, ready); m == nil {
			return err
		}
		if m.where == held {
			s.miss(m)
			return nil
		}
	}
	for m != nil && m.askHead {
		s.settle(abi.OnHead, hook.WhyHead, []*stored{m})
		if m.where == ready {
			break // the policy is called about it only once
		}
		if m.where == held && e.ID != "" {
			s.miss(m)
		}
		if m = nil; e.ID == "" {
			m = s.next()
		}
	}
	if m == nil {
		return nil // no message is ready
	}
	s.record(noHook, m.id, "delivered")
	m.where, m.missed = unacked, false
	s.outcome.delivered++
	s.countReady(m, -1)
	s.queue.unacked++
	return nil
}

// find returns a message that must be in a state; a message that must be ready may also be
// held. It returns nil without an error if the policy removed the message, or held it when
// the trace delivers it.
func (s *simulation) find(id string, where messageState) (*stored, error) {
	slot, ok := s.byID[id]
	if !ok {
		return nil, fmt.Errorf("there was no message %q", id)
	}
	m := s.messages[slot]
	switch {
	case m.where == where, m.where == held && where == ready:
		return m, nil
	case m.where == removed, m.missed && where == unacked:
		return nil, nil
	case where == ready:
		return nil, fmt.Errorf("the message %q is handed out already", id)
	}
	return nil, fmt.Errorf("the message %q is not handed out", id)
}

func (s *simulation) ack(e *event) error {
	m, err := s.find(e.ID, unacked)
	if m == nil {
		return err
	}
	s.record(noHook, m.id, "acknowledged")
	m.where = removed
	s.outcome.acked++
	s.queue.unacked--
	return nil
}

func (s *simulation) requeue(e *event) error {
	m, err := s.find(e.ID, unacked)
	if m == nil {
		return err
	}
	s.record(noHook, m.id, "came back")
	m.Redelivered = true
	m.Deliveries++
	s.queue.unacked--
	s.countReady(m, 1)
	s.enqueue(m)
	vs := s.ask(abi.OnRequeue, hook.WhyRequeue, []*stored{m}, inForce([]*stored{m}), s.hooks.OnRequeue)
	s.update(m, &vs[0])
	s.hold(m, &vs[0])
	return s.advance(s.now) // it may already be due
}

func (s *simulation) idle(e *event) {
	if s.hooks.OnIdle == nil {
		return
	}
	s.queue.readers = e.Consumers
	var v hook.Verdict
	s.hooks.OnIdle(s.now, time.Duration(e.Idle)*time.Millisecond, &v)
	s.queue.readers = 0
	switch {
	case v.Action == hook.Drop:
		s.record(abi.OnIdle, "-", "delete the queue")
	case v.Deadline != 0:
		s.record(abi.OnIdle, "-", fmt.Sprintf("ask again at %d", s.millis(v.Deadline)))
	default:
		s.record(abi.OnIdle, "-", "the queue stays")
	}
}
