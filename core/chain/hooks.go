package chain

import (
	"sync"
	"time"

	"github.com/curfewmq/curfew/sdk/hook"
)

// Hooks is what the chain does for one queue: its exported fields are for the
// queue to read. It does not change; its methods are for one goroutine at a
// time, as the plugins' callbacks are.
type Hooks struct {
	// The hook points that somebody listens to. Calling the others is free but
	// pointless, so what they need can be left undone.
	WantsEnqueue, WantsHead, WantsRequeue, WantsIdle bool

	// Restamps says when the strategy is to be asked for new deadlines.
	Restamps Restamps

	// Scan is where deadlines are acted on, as the queue's strategy has it.
	Scan hook.Scan

	enqueues, heads uint8 // steps holds these, then at most one for requeue and one for restamp

	// Length and Bytes are the lowest limits that a plugin has set.
	Length, Bytes hook.Limit

	strategy *pluginEntry // nil: the queue has none
	steps    []step
	idle     []idleStep
}

// Restamps is an occasion for new deadlines of messages that are there.
type Restamps uint8

// The occasions.
const (
	NeverRestamp Restamps = iota
	OnChange              // of the queue's settings, and when asked for
	WhenAsked
)

type batchFunc = func(now hook.Instant, ms []hook.Message, vs []hook.Verdict)

// step is one plugin's callback at one hook point.
type step struct {
	call batchFunc
	part *pluginEntry
}

type idleFunc = func(now hook.Instant, idle time.Duration, v *hook.Verdict)

type idleStep struct {
	call idleFunc
	part *pluginEntry
}

// scratch is what a fold over more than one plugin needs. Queues borrow it:
// there are many of them and few at work.
type scratch struct {
	before []hook.Verdict // verdicts as the plugin being asked found them
	ms     []hook.Message // messages that are not refused, when some are
	vs     []hook.Verdict
}

var scratches = sync.Pool{New: func() any { return new(scratch) }}

// borrow returns a scratch; release gives it back.
func borrow() *scratch { return scratches.Get().(*scratch) }

func (s *scratch) release() {
	const large = 4096 // one that grew this big is not worth keeping
	if cap(s.before) > large {
		return
	}
	clear(s.ms)
	scratches.Put(s)
}

// Enqueue asks what becomes of messages about to enter the queue. vs is as
// long as ms and zero: every verdict starts as Keep.
func (h *Hooks) Enqueue(now hook.Instant, ms []hook.Message, vs []hook.Verdict) {
	if h.enqueues == 0 {
		return
	}
	first, rest := &h.steps[0], h.steps[1:h.enqueues]
	if !first.run(onEnqueue, now, ms, vs) {
		clear(vs)
	}
	refused := h.vet(first.part, onEnqueue, ms, nil, vs)
	if len(rest) == 0 {
		return
	}
	s := borrow()
	for i := range rest {
		if refused == 0 {
			refused = h.ask(&rest[i], onEnqueue, s, now, ms, vs)
			continue
		}
		s.gather(ms, vs)
		if len(s.ms) == 0 {
			break
		}
		refused += h.ask(&rest[i], onEnqueue, s, now, s.ms, s.vs)
		s.scatter(vs)
	}
	s.release()
}

// Head asks what becomes of messages that are due or at the head, whose
// verdicts come in as Keep, and of messages that leave, whose verdicts come in
// as Drop with the reason. It fills in the deadlines and states in force; with
// Keep, they are to be stored again where they changed.
func (h *Hooks) Head(now hook.Instant, ms []hook.Message, vs []hook.Verdict) {
	h.fold(onHead, h.steps[h.enqueues:h.enqueues+h.heads], now, ms, vs)
}

// Requeue asks for the deadlines and states of messages that came back. vs
// comes in as Keep and stays Keep; deadlines and states are filled in as in
// Head.
func (h *Hooks) Requeue(now hook.Instant, ms []hook.Message, vs []hook.Verdict) {
	h.fold(onRequeue, h.steps[h.enqueues+h.heads:h.restamps()], now, ms, vs)
}

// restamps is where the step for restamp is, if there is one.
func (h *Hooks) restamps() uint8 {
	if h.WantsRequeue {
		return h.enqueues + h.heads + 1
	}
	return h.enqueues + h.heads
}

// Restamp asks for the deadlines and states that messages get because the
// queue's settings have changed. vs is zero and stays Keep; where the strategy
// fails, it says what is in force.
func (h *Hooks) Restamp(now hook.Instant, ms []hook.Message, vs []hook.Verdict) {
	steps := h.steps[h.restamps():]
	if len(steps) == 0 || !steps[0].run(onRestamp, now, ms, vs) {
		clear(vs)
		fillIn(ms, vs)
		return
	}
	for i := range vs {
		if !valid(onRestamp, &vs[i]) {
			h.strategy.putBack(onRestamp, &hook.Verdict{Deadline: ms[i].Deadline, State: ms[i].State, Digest: ms[i].Digest}, &vs[i])
		}
	}
}

// fillIn makes the deadlines and states in force those of the verdicts.
func fillIn(ms []hook.Message, vs []hook.Verdict) {
	for i := range vs {
		vs[i].Deadline, vs[i].State, vs[i].Digest = ms[i].Deadline, ms[i].State, ms[i].Digest
	}
}

func (h *Hooks) fold(p hookPoint, steps []step, now hook.Instant, ms []hook.Message, vs []hook.Verdict) {
	fillIn(ms, vs)
	if len(steps) == 0 {
		return
	}
	s := borrow()
	for i := range steps {
		h.ask(&steps[i], p, s, now, ms, vs)
	}
	s.release()
}

// ask puts one plugin's question and returns how many messages it refused.
func (h *Hooks) ask(t *step, p hookPoint, s *scratch, now hook.Instant, ms []hook.Message, vs []hook.Verdict) int {
	s.before = append(s.before[:0], vs...)
	if !t.run(p, now, ms, vs) {
		copy(vs, s.before)
		return 0
	}
	return h.vet(t.part, p, ms, s.before, vs)
}

// Idle asks whether an unused queue may stay. v comes in zero; with Keep, its
// Deadline says when to ask again.
func (h *Hooks) Idle(now hook.Instant, idle time.Duration, v *hook.Verdict) {
	for i := range h.idle {
		t, before := &h.idle[i], *v
		if !t.run(now, idle, v) {
			*v = before
			continue
		}
		h.vetOne(t.part, onIdle, &before, v)
	}
}

// gather collects the messages that are not refused, with their verdicts.
func (s *scratch) gather(ms []hook.Message, vs []hook.Verdict) {
	s.ms, s.vs = s.ms[:0], s.vs[:0]
	for i := range vs {
		if vs[i].Action != hook.Refuse {
			s.ms, s.vs = append(s.ms, ms[i]), append(s.vs, vs[i])
		}
	}
}

// scatter writes the verdicts back to where gather took them from: it has not
// written to vs since, so those refused then still say so.
func (s *scratch) scatter(vs []hook.Verdict) {
	next := 0
	for i := range vs {
		if vs[i].Action != hook.Refuse {
			vs[i] = s.vs[next]
			next++
		}
	}
}
