package policy

import (
	"fmt"
	"time"

	"github.com/curfewmq/curfew/core/deadline"
	"github.com/curfewmq/curfew/sdk/abi"
	"github.com/curfewmq/curfew/sdk/hook"
)

// place is where a message is.
type place uint8

const (
	ready place = iota
	handedOut
	gone
)

// stored is a message that entered the queue.
type stored struct {
	hook.Message

	id      string
	event   *event
	place   place
	askHead bool
	lined   bool // it has an item in the line, which may be of no interest any more
}

// simulation is a queue without a broker. Its clock stands still between the
// events of a trace and the deadlines of messages.
type simulation struct {
	lab     *lab
	queue   *queue
	hooks   hook.Hooks
	ordered bool // by priority
	start   hook.Instant
	now     hook.Instant

	messages  []*stored // by the number that they have in the heaps
	byID      map[string]uint64
	deadlines deadline.Heap
	line      deadline.Heap // who is next: the At of its items is lower for a higher priority
	decisions []decision
	most      int       // decisions that are not too many
	asked     []*stored // about whom the call under way is
	carried   contents
	views     []hook.Message
	outcome   outcome
}

// outcome is how many messages came to which end.
type outcome struct {
	published, refused, delivered, acked, expired, dropped, routed int
}

// What a policy may be asked ends a simulation of one that prolongs and prolongs:
// so many times, and so many more for each event.
const (
	patience         = 100_000
	patiencePerEvent = 100
)

// simulate plays a trace, and the time after its last event until that much has
// passed or nothing waits for a deadline any more.
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
	return s, s.advance(s.now.Add(after))
}

// play does what happens next, and returns how many events that was.
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

// advance moves the clock. Deadlines on the way are reached one by one.
func (s *simulation) advance(to hook.Instant) error {
	for s.deadlines.Len() > 0 && hook.Instant(s.deadlines.Top().At) <= to {
		s.now = max(s.now, hook.Instant(s.deadlines.Top().At))
		if due := s.due(); len(due) > 0 {
			s.settle(abi.OnDeadline, hook.WhyDue, due)
		}
		if len(s.decisions) > s.most {
			return fmt.Errorf("the policy was asked more than %d times; a lower --after ends the trace earlier", s.most)
		}
	}
	s.now = to
	return nil
}

// due takes the messages from the heap whose deadline is reached.
func (s *simulation) due() []*stored {
	var all []*stored
	for s.deadlines.Len() > 0 && hook.Instant(s.deadlines.Top().At) <= s.now {
		it := s.deadlines.Pop()
		m := s.messages[it.Slot]
		if m.place != ready || m.Deadline != hook.Instant(it.At) {
			continue
		}
		if n := len(all); n == 0 || all[n-1] != m {
			all = append(all, m)
		}
	}
	return all
}

// batch is how many messages at most the policy is told of at once.
const batch = 256

// publish has all messages enter that arrive at the same time.
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
			m.place = gone
			s.outcome.refused++
			continue
		}
		s.keep(m, &vs[i])
		if vs[i].Action == hook.Keep {
			m.askHead = vs[i].AskHead
			s.stand(m)
			s.queue.bytes += int64(m.Size)
			s.queue.ready++
			continue
		}
		s.leave(m, &vs[i])
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

// ask has the policy answer, and writes down what it says.
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
	if s.lab.failures() > failures {
		because = " (the policy failed)"
	}
	for i, m := range ms {
		s.note(h, m.id, s.words(&vs[i], m)+because)
	}
	return vs
}

// settle asks about messages that are there and does what is said of them.
func (s *simulation) settle(h abi.Hook, why hook.Why, ms []*stored) {
	for len(ms) > 0 {
		part := ms[:min(len(ms), batch)]
		ms = ms[len(part):]
		vs := s.ask(h, why, part, inForce(part), s.hooks.OnHead)
		for i, m := range part {
			s.keep(m, &vs[i])
			if vs[i].Action != hook.Keep {
				s.queue.ready--
				s.queue.bytes -= int64(m.Size)
				s.leave(m, &vs[i])
			}
		}
	}
}

// inForce are the verdicts that a question about messages that are there begins
// with.
func inForce(ms []*stored) []hook.Verdict {
	vs := make([]hook.Verdict, len(ms))
	for i, m := range ms {
		vs[i] = hook.Verdict{Deadline: m.Deadline, State: m.State}
	}
	return vs
}

// keep notes what a verdict says about a message's future.
func (s *simulation) keep(m *stored, v *hook.Verdict) {
	m.Deadline, m.State = v.Deadline, v.State
	if v.Action == hook.Keep && m.Deadline != 0 {
		s.deadlines.Push(deadline.Item{At: int64(m.Deadline), Slot: s.byID[m.id]})
	}
}

// stand puts a message in line, where it was if it was there before.
func (s *simulation) stand(m *stored) {
	m.place = ready
	if m.lined {
		return
	}
	at := int64(0)
	if s.ordered {
		at = -int64(m.Priority)
	}
	s.line.Push(deadline.Item{At: at, Slot: s.byID[m.id]})
	m.lined = true
}

func (s *simulation) leave(m *stored, v *hook.Verdict) {
	m.place = gone
	switch {
	case v.Action == hook.Route:
		s.outcome.routed++
	case v.Final:
		s.outcome.dropped++
	default:
		s.outcome.expired++
	}
}

// next is the message at the head, nil if there is none.
func (s *simulation) next() *stored {
	for s.line.Len() > 0 {
		m := s.messages[s.line.Top().Slot]
		if m.place == ready {
			return m
		}
		s.line.Pop()
		m.lined = false
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
	}
	for m != nil && m.askHead {
		s.settle(abi.OnHead, hook.WhyHead, []*stored{m})
		if m.place == ready {
			break // it is not asked about twice
		}
		if m = nil; e.ID == "" {
			m = s.next()
		}
	}
	if m == nil {
		return nil // there is nothing left to hand out
	}
	s.note(noHook, m.id, "delivered")
	m.place = handedOut
	s.outcome.delivered++
	s.queue.ready--
	s.queue.bytes -= int64(m.Size)
	s.queue.unacked++
	return nil
}

// find looks a message up that is to be in a place. It is nil, without an error,
// if it is gone: that was the policy's doing.
func (s *simulation) find(id string, where place) (*stored, error) {
	slot, ok := s.byID[id]
	if !ok {
		return nil, fmt.Errorf("there was no message %q", id)
	}
	m := s.messages[slot]
	switch {
	case m.place == where:
		return m, nil
	case m.place == gone:
		return nil, nil
	case where == ready:
		return nil, fmt.Errorf("the message %q is handed out already", id)
	}
	return nil, fmt.Errorf("the message %q is not handed out", id)
}

func (s *simulation) ack(e *event) error {
	m, err := s.find(e.ID, handedOut)
	if m == nil {
		return err
	}
	s.note(noHook, m.id, "acknowledged")
	m.place = gone
	s.outcome.acked++
	s.queue.unacked--
	return nil
}

func (s *simulation) requeue(e *event) error {
	m, err := s.find(e.ID, handedOut)
	if m == nil {
		return err
	}
	s.note(noHook, m.id, "came back")
	m.Redelivered = true
	m.Deliveries++
	s.queue.unacked--
	s.queue.ready++
	s.queue.bytes += int64(m.Size)
	s.stand(m)
	vs := s.ask(abi.OnRequeue, hook.WhyRequeue, []*stored{m}, inForce([]*stored{m}), s.hooks.OnRequeue)
	s.keep(m, &vs[0])
	return s.advance(s.now) // its time may have been up long ago
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
		s.note(abi.OnIdle, "-", "delete the queue")
	case v.Deadline != 0:
		s.note(abi.OnIdle, "-", fmt.Sprintf("ask again at %d", s.millis(v.Deadline)))
	default:
		s.note(abi.OnIdle, "-", "the queue stays")
	}
}
