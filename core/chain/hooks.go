package chain

import (
	"slices"
	"sync"
	"time"

	"github.com/curfewmq/curfew/sdk/hook"
	"github.com/curfewmq/curfew/sdk/hook/guest"
)

// Hooks are the chain's hooks for one queue; the queue reads the exported fields. They do not change. Like the plugins' callbacks, the
// methods are for one goroutine at a time.
type Hooks struct {
	// The hook points that a plugin uses. Calling the others has no effect, so the queue need not prepare their arguments.
	WantsEnqueue, WantsHead, WantsRequeue bool

	// Restamps says when the strategy is asked for new deadlines.
	Restamps Restamps

	// DeadlineFromReady is the strategy's setting: see [hook.Hooks].
	DeadlineFromReady bool

	// Scan says where in the queue the strategy acts on deadlines.
	Scan hook.Scan

	enqueues, heads uint8 // numbers of the first steps; after them comes at most one step for requeue and one for restamp

	// Length and Bytes are the lowest limits set by a plugin.
	Length, Bytes hook.Limit

	strategy *pluginEntry // nil: the queue has none
	steps    []step
	rare     []rareStep
}

// Expiration reads the expiration property of a message for a restamp. The property was checked when the message was
// published. If the plugin that reads it now refuses it, it has no effect.
func (h *Hooks) Expiration(raw []byte) hook.Limit {
	if h.strategy == nil || h.strategy.expiration == nil {
		return 0
	}
	limit, err := h.strategy.expiration.checkExpiration(raw)
	if err != nil {
		return 0
	}
	return limit
}

// Restamps says when queued messages get new deadlines.
type Restamps uint8

// The occasions.
const (
	NeverRestamp Restamps = iota
	OnChange              // of the queue's settings, and on request
	WhenAsked             // on request, and if the strategy could not decide before
)

type batchFunc = func(now hook.Instant, ms []hook.Message, vs []hook.Verdict)

// step is one plugin's callback at one hook point.
type step struct {
	call   batchFunc
	plugin *pluginEntry
}

type idleFunc = func(now hook.Instant, idle time.Duration, v *hook.Verdict)

// rareStep is one plugin's callback, or a setting, at a hook point that few queues use. One of its fields is set, besides the plugin.
type rareStep struct {
	idle        idleFunc
	gone        func(ms []hook.Message)
	stay        batchFunc
	refuses     bool
	onReturn    batchFunc
	release     *ReleaseLimits
	deadLetters *hook.Target
	plugin      *pluginEntry
}

// ReleaseLimits are limits for held messages that are due for release: see [hook.Hooks].
type ReleaseLimits struct {
	Length, Bytes hook.Limit
	Drop          bool
}

// Release returns the lowest limits for messages that are due for release; ok is false if there are none.
func (h *Hooks) Release() (l ReleaseLimits, ok bool) {
	for i := range h.rare {
		if r := h.rare[i].release; r != nil {
			l = ReleaseLimits{l.Length.Min(r.Length), l.Bytes.Min(r.Bytes), l.Drop || r.Drop}
			ok = true
		}
	}
	return l, ok
}

// DeadLetters returns where plugins route messages that leave for a reason; nil means that
// no plugin announces it. As with verdicts, the last plugin takes precedence.
func (h *Hooks) DeadLetters() (t *hook.Target) {
	for i := range h.rare {
		if of := h.rare[i].deadLetters; of != nil {
			t = of
		}
	}
	return t
}

// foldBuffers are the buffers for asking several plugins. They are pooled, because only a few of many queues run at a time.
type foldBuffers struct {
	before []hook.Verdict // verdicts before the plugin being asked
	ms     []hook.Message // the messages that are not refused, if some are
	vs     []hook.Verdict // of ms
}

var buffersPool = sync.Pool{New: func() any { return new(foldBuffers) }}

func (b *foldBuffers) release() {
	const maxPooled = 4096 // larger buffers are not kept
	if cap(b.before) > maxPooled {
		return
	}
	clear(b.ms)
	buffersPool.Put(b)
}

// Enqueue decides about messages that are about to be enqueued. vs is as long as ms and zero: every verdict starts as Keep.
func (h *Hooks) Enqueue(now hook.Instant, ms []hook.Message, vs []hook.Verdict) {
	if h.enqueues == 0 {
		return
	}
	first, others := &h.steps[0], h.steps[1:h.enqueues]
	if !first.run(onEnqueue, now, ms, vs) {
		clear(vs)
	}
	if refused := h.vet(first.plugin, onEnqueue, ms, nil, vs); len(others) > 0 {
		h.enqueueBy(others, refused, now, ms, vs)
	}
}

// EnqueueWaiting is Enqueue for messages of which publishers want some to be held: the Hold of their verdicts is preset, and plugins
// can only extend it.
func (h *Hooks) EnqueueWaiting(now hook.Instant, ms []hook.Message, vs []hook.Verdict) {
	h.enqueueBy(h.steps[:h.enqueues], 0, now, ms, vs)
}

// enqueueBy asks plugins about messages; the plugins before them have refused some.
func (h *Hooks) enqueueBy(others []step, refused int, now hook.Instant, ms []hook.Message, vs []hook.Verdict) {
	b := buffersPool.Get().(*foldBuffers)
	for i := range others {
		if refused == 0 {
			refused = h.ask(&others[i], onEnqueue, b, now, ms, vs)
			continue
		}
		b.gather(ms, vs)
		if len(b.ms) == 0 {
			break
		}
		refused += h.ask(&others[i], onEnqueue, b, now, b.ms, b.vs)
		b.scatter(vs)
	}
	b.release()
}

// Head decides about messages that are due or at the head, whose verdicts start as Keep, and about messages being removed, whose verdicts
// start as Drop with the reason. It fills in the deadlines and states in force. With Keep, the caller stores those that have changed.
func (h *Hooks) Head(now hook.Instant, ms []hook.Message, vs []hook.Verdict) {
	h.fold(onHead, h.steps[h.enqueues:h.enqueues+h.heads], now, ms, vs)
}

// Requeue asks for the deadlines and states of requeued messages. vs starts as Keep and
// stays Keep; deadlines and states are filled in as in Head.
func (h *Hooks) Requeue(now hook.Instant, ms []hook.Message, vs []hook.Verdict) {
	h.fold(onRequeue, h.steps[h.enqueues+h.heads:h.restamps()], now, ms, vs)
}

// restamps returns the index of the step for restamp, if there is one.
func (h *Hooks) restamps() uint8 {
	if h.WantsRequeue {
		return h.enqueues + h.heads + 1
	}
	return h.enqueues + h.heads
}

// Restamp asks for the deadlines and states of queued messages after the queue's settings have changed. vs is zero and stays Keep; if the
// strategy fails, vs gets the deadlines and states in force.
func (h *Hooks) Restamp(now hook.Instant, ms []hook.Message, vs []hook.Verdict) {
	if len(ms) == 0 {
		return
	}
	steps := h.steps[h.restamps():]
	if len(steps) == 0 || !steps[0].run(onRestamp, now, ms, vs) {
		clear(vs)
		fillIn(ms, vs)
		return
	}
	for i := range vs {
		if !valid(onRestamp, &vs[i]) {
			var was hook.Verdict
			guest.Restore(&was, &ms[i])
			h.strategy.putBack(onRestamp, &was, &vs[i])
		}
	}
}

// fillIn copies the deadlines and states in force to the verdicts.
func fillIn(ms []hook.Message, vs []hook.Verdict) {
	for i := range vs {
		guest.Restore(&vs[i], &ms[i])
	}
}

func (h *Hooks) fold(p hookPoint, steps []step, now hook.Instant, ms []hook.Message, vs []hook.Verdict) {
	fillIn(ms, vs)
	if len(steps) == 0 {
		return
	}
	b := buffersPool.Get().(*foldBuffers)
	for i := range steps {
		h.ask(&steps[i], p, b, now, ms, vs)
	}
	b.release()
}

// ask asks one plugin and returns how many messages it refused.
func (h *Hooks) ask(t *step, p hookPoint, b *foldBuffers, now hook.Instant, ms []hook.Message, vs []hook.Verdict) int {
	b.before = append(b.before[:0], vs...)
	if !t.run(p, now, ms, vs) {
		copy(vs, b.before)
		return 0
	}
	return h.vet(t.plugin, p, ms, b.before, vs)
}

// Idle decides whether an unused queue stays. v starts as zero; with Keep, its Deadline says when to ask again.
func (h *Hooks) Idle(now hook.Instant, idle time.Duration, v *hook.Verdict) {
	for i := range h.rare {
		t, before := &h.rare[i], *v
		if t.idle == nil {
			continue
		}
		if !t.runIdle(now, idle, v) {
			*v = before
			continue
		}
		h.vetOne(t.plugin, onIdle, &before, v)
	}
}

// Return asks until when messages that came back are held, and stores that in the Hold of
// the verdicts. The verdicts start with the result of OnRequeue. Nothing else in vs
// changes.
func (h *Hooks) Return(now hook.Instant, ms []hook.Message, vs []hook.Verdict) {
	b := buffersPool.Get().(*foldBuffers)
	defer b.release()
	for i := range h.rare {
		t := &h.rare[i]
		if t.onReturn == nil {
			continue
		}
		b.before = append(b.before[:0], vs...)
		ok := t.runReturn(now, ms, vs)
		for j := range vs {
			said := vs[j]
			vs[j] = b.before[j]
			switch {
			case !ok:
			case !valid(onReturn, &said):
				t.plugin.putBack(onReturn, &b.before[j], &vs[j])
			default:
				vs[j].Hold = max(vs[j].Hold, said.Hold)
			}
		}
	}
}

// Gone notifies the plugins of watched messages that leave. nil means that none are left.
func (h *Hooks) Gone(ms []hook.Message) {
	for i := range h.rare {
		if h.rare[i].gone != nil {
			h.rare[i].runGone(ms)
		}
	}
}

// Stay notifies the plugins of messages that stay after all: see OnStay. The verdicts say which of them are watched.
func (h *Hooks) Stay(now hook.Instant, ms []hook.Message, vs []hook.Verdict) {
	watch := make([]bool, len(ms))
	for i := range h.rare {
		if h.rare[i].stay == nil {
			continue
		}
		clear(vs)
		if !h.rare[i].runStay(now, ms, vs) {
			continue
		}
		for j := range vs {
			watch[j] = watch[j] || vs[j].Watch
		}
	}
	clear(vs)
	for j := range vs {
		vs[j].Watch = watch[j]
	}
}

// WantsStay reports whether a plugin uses OnStay.
func (h *Hooks) WantsStay() bool { return h.wants(func(t *rareStep) bool { return t.stay != nil }) }

// EndGone notifies the plugins that use OnGone in h, but not in its successor, that no messages are left for them.
func (h *Hooks) EndGone(successor *Hooks) {
	for i := range h.rare {
		if t := &h.rare[i]; t.gone != nil && !successor.tellsGone(t.plugin.name) {
			t.runGone(nil)
		}
	}
}

// tellsGone reports whether the plugin with this name uses OnGone.
func (h *Hooks) tellsGone(plugin string) bool {
	return slices.ContainsFunc(h.rare, func(t rareStep) bool { return t.gone != nil && t.plugin.name == plugin })
}

// WantsGone reports whether a plugin uses OnGone.
func (h *Hooks) WantsGone() bool { return h.wants(func(t *rareStep) bool { return t.gone != nil }) }

// Refuses reports whether a plugin declares that it may refuse messages.
func (h *Hooks) Refuses() bool { return h.wants(func(t *rareStep) bool { return t.refuses }) }

// WantsIdle reports whether a plugin uses OnIdle.
func (h *Hooks) WantsIdle() bool { return h.wants(func(t *rareStep) bool { return t.idle != nil }) }

// WantsReturn reports whether a plugin uses OnReturn.
func (h *Hooks) WantsReturn() bool {
	return h.wants(func(t *rareStep) bool { return t.onReturn != nil })
}

func (h *Hooks) wants(has func(*rareStep) bool) bool {
	for i := range h.rare {
		if has(&h.rare[i]) {
			return true
		}
	}
	return false
}

// gather collects the messages that are not refused, with their verdicts.
func (b *foldBuffers) gather(ms []hook.Message, vs []hook.Verdict) {
	b.ms, b.vs = b.ms[:0], b.vs[:0]
	for i := range vs {
		if vs[i].Action != hook.Refuse {
			b.ms, b.vs = append(b.ms, ms[i]), append(b.vs, vs[i])
		}
	}
}

// scatter writes the verdicts back to where gather took them from. vs has not changed
// since, so its refused verdicts still mark the positions of the others.
func (b *foldBuffers) scatter(vs []hook.Verdict) {
	next := 0
	for i := range vs {
		if vs[i].Action != hook.Refuse {
			vs[i] = b.vs[next]
			next++
		}
	}
}
