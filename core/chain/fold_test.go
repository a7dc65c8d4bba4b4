package chain

import (
	"testing"
	"time"

	"github.com/curfewmq/curfew/sdk/hook"
	"github.com/curfewmq/curfew/sdk/hook/guest"
	"github.com/curfewmq/curfew/sdk/hooktest"
)

// each returns a callback that does the same for every message.
func each(do func(m *hook.Message, v *hook.Verdict)) batchFunc {
	return func(_ hook.Instant, ms []hook.Message, vs []hook.Verdict) {
		for i := range ms {
			do(&ms[i], &vs[i])
		}
	}
}

// set returns a callback that gives every message the verdict v.
func set(v hook.Verdict) batchFunc {
	return each(func(_ *hook.Message, to *hook.Verdict) { *to = v })
}

// at returns a plugin with that callback at hook point p.
func at(p hookPoint, call batchFunc) fake {
	switch p {
	case onEnqueue:
		return fake{hooks: hook.Hooks{OnEnqueue: call}}
	case onHead:
		return fake{hooks: hook.Hooks{OnHead: call}}
	}
	return fake{hooks: hook.Hooks{OnRequeue: call}}
}

// strategyAt is at for the plugin that is the strategy "s".
func strategyAt(p hookPoint, call batchFunc) strategist {
	s := strategist{fake: at(p, call), names: []string{"s"}}
	s.hooks.Strategy = true
	return s
}

func attach(tb testing.TB, plugins ...hook.Plugin) (*Chain, *Hooks) {
	tb.Helper()
	c := newChain(tb, plugins...)
	return c, c.Attach(hooktest.NewQueue(hooktest.Spec{Strategy: "s"}), new(Memo))
}

// ask runs hook point p on one message.
func ask(h *Hooks, p hookPoint, m hook.Message, v hook.Verdict) hook.Verdict {
	ms, vs := hooktest.Messages(m), []hook.Verdict{v}
	switch p {
	case onEnqueue:
		h.Enqueue(1000, ms, vs)
	case onHead:
		h.Head(1000, ms, vs)
	case onRequeue:
		h.Requeue(1000, ms, vs)
	}
	return vs[0]
}

var (
	expired  = hook.Verdict{Action: hook.Drop, Reason: hook.ReasonExpired}
	rejected = hook.Verdict{Action: hook.Drop, Reason: hook.ReasonRejected}
	target   = &hook.Target{Exchange: "e"}
	routed   = hook.Verdict{Action: hook.Route, Reason: hook.ReasonExpired, Target: target}
	refused  = hook.Verdict{Action: hook.Refuse}
	due      = hook.Message{Why: hook.WhyDue, Deadline: 900, State: 9}
	leaving  = hook.Message{Why: hook.WhyLeaving, Deadline: 2000}
	asIs     = func(hook.Instant, []hook.Message, []hook.Verdict) {}
	deadline = func(t hook.Instant) batchFunc { return each(func(_ *hook.Message, v *hook.Verdict) { v.Deadline = t }) }
	state    = func(n int64) batchFunc { return each(func(_ *hook.Message, v *hook.Verdict) { v.State = n }) }
	digest   = func(n uint64) batchFunc {
		return each(func(_ *hook.Message, v *hook.Verdict) { guest.SetDigest(v, n) })
	}
	signed    = func(m hook.Message, n uint64) hook.Message { guest.SetMessageDigest(&m, n); return m }
	inForce   = func(v hook.Verdict, m hook.Message) hook.Verdict { v.Deadline, v.State = m.Deadline, m.State; return v }
	panicking = func(_ hook.Instant, _ []hook.Message, vs []hook.Verdict) {
		for i := range vs {
			vs[i] = hook.Verdict{Action: hook.Drop, Reason: hook.ReasonMaxLen, Deadline: 1, State: 1}
		}
		panic("oh")
	}
)

func TestFold(t *testing.T) {
	for _, tc := range []struct {
		name    string
		point   hookPoint
		plugins []hook.Plugin
		message hook.Message
		start   hook.Verdict
		want    hook.Verdict
		faults  int
	}{
		{name: "the last word wins", point: onEnqueue, plugins: []hook.Plugin{at(onEnqueue, set(expired)), at(onEnqueue, set(routed))}, want: routed},
		{name: "and may be Keep", point: onEnqueue, plugins: []hook.Plugin{at(onEnqueue, set(expired)), at(onEnqueue, set(hook.Verdict{}))}},
		{
			name: "each sees its predecessor's", point: onEnqueue,
			plugins: []hook.Plugin{
				at(onEnqueue, set(expired)),
				at(onEnqueue, each(func(_ *hook.Message, v *hook.Verdict) {
					if *v == expired {
						*v = routed
					}
				})),
			},
			want: routed,
		},
		{name: "Refuse ends it", point: onEnqueue, plugins: []hook.Plugin{at(onEnqueue, set(refused)), at(onEnqueue, set(routed))}, want: refused},
		{name: "Refuse in the middle", point: onEnqueue, plugins: []hook.Plugin{at(onEnqueue, set(expired)), at(onEnqueue, set(refused)), at(onEnqueue, set(routed))}, want: refused},
		{name: "nacked all the same", point: onEnqueue, plugins: []hook.Plugin{at(onEnqueue, set(hook.Verdict{Nack: true}))}, want: hook.Verdict{Nack: true}},

		{name: "a deadline moves earlier", point: onEnqueue, plugins: []hook.Plugin{at(onEnqueue, deadline(50)), at(onEnqueue, deadline(40))}, want: hook.Verdict{Deadline: 40}},
		{name: "not later", point: onEnqueue, plugins: []hook.Plugin{at(onEnqueue, deadline(50)), at(onEnqueue, deadline(60))}, want: hook.Verdict{Deadline: 50}},
		{name: "not away", point: onEnqueue, plugins: []hook.Plugin{at(onEnqueue, deadline(50)), at(onEnqueue, deadline(0))}, want: hook.Verdict{Deadline: 50}},
		{name: "but by the strategy", point: onEnqueue, plugins: []hook.Plugin{at(onEnqueue, deadline(50)), strategyAt(onEnqueue, deadline(60))}, want: hook.Verdict{Deadline: 60}},
		{name: "even away", point: onEnqueue, plugins: []hook.Plugin{at(onEnqueue, deadline(50)), strategyAt(onEnqueue, deadline(0))}},
		{name: "the strategy has no last word", point: onEnqueue, plugins: []hook.Plugin{strategyAt(onEnqueue, deadline(60)), at(onEnqueue, deadline(50))}, want: hook.Verdict{Deadline: 50}},
		{name: "one that only says it is the strategy", point: onEnqueue, plugins: []hook.Plugin{
			at(onEnqueue, deadline(50)),
			fake{hooks: hook.Hooks{Strategy: true, OnEnqueue: deadline(60)}},
		}, want: hook.Verdict{Deadline: 50}},
		{name: "state by the strategy", point: onEnqueue, plugins: []hook.Plugin{strategyAt(onEnqueue, state(7)), at(onEnqueue, state(8))}, want: hook.Verdict{State: 7}},
		{name: "digest by the strategy", point: onEnqueue, plugins: []hook.Plugin{strategyAt(onEnqueue, digest(7)), at(onEnqueue, digest(8))}, want: guest.Signed(hook.Verdict{}, 7)},
		{name: "digest stays in force", point: onHead, plugins: []hook.Plugin{at(onHead, digest(5))}, message: signed(hook.Message{Why: hook.WhyDue}, 6), want: guest.Signed(hook.Verdict{}, 6)},
		{
			name: "a module's digest goes with its deadline", point: onHead, plugins: []hook.Plugin{strategyAt(onHead, deadline(2000))},
			message: signed(hook.Message{Why: hook.WhyDue, Deadline: 900}, 6), want: hook.Verdict{Deadline: 2000},
		},
		{
			name: "and stays with it", point: onHead, plugins: []hook.Plugin{strategyAt(onHead, deadline(900))},
			message: signed(hook.Message{Why: hook.WhyDue, Deadline: 900}, 6), want: guest.Signed(hook.Verdict{Deadline: 900}, 6),
		},
		{name: "no state without one", point: onEnqueue, plugins: []hook.Plugin{at(onEnqueue, state(8))}},

		{name: "what is in force", point: onHead, plugins: []hook.Plugin{at(onHead, asIs)}, message: due, want: hook.Verdict{Deadline: 900, State: 9}},
		{name: "renewed by the strategy", point: onHead, plugins: []hook.Plugin{strategyAt(onHead, deadline(5000))}, message: due, want: hook.Verdict{Deadline: 5000, State: 9}},
		{name: "not by others", point: onHead, plugins: []hook.Plugin{at(onHead, deadline(5000))}, message: due, want: hook.Verdict{Deadline: 900, State: 9}},
		{name: "expired", point: onHead, plugins: []hook.Plugin{at(onHead, set(expired))}, message: due, want: inForce(expired, due)},
		{name: "leaving", point: onHead, plugins: []hook.Plugin{at(onHead, asIs)}, message: leaving, start: rejected, want: inForce(rejected, leaving)},
		{name: "leaving by another door", point: onHead, plugins: []hook.Plugin{at(onHead, set(routed))}, message: leaving, start: rejected, want: inForce(routed, leaving)},
		{name: "leaving stays leaving", point: onHead, plugins: []hook.Plugin{at(onHead, set(hook.Verdict{}))}, message: leaving, start: rejected, want: inForce(rejected, leaving), faults: 1},

		{name: "requeue", point: onRequeue, plugins: []hook.Plugin{strategyAt(onRequeue, deadline(5000))}, message: due, want: hook.Verdict{Deadline: 5000, State: 9}},
		{name: "requeue asks the strategy alone", point: onRequeue, plugins: []hook.Plugin{at(onRequeue, deadline(5))}, message: due, want: hook.Verdict{Deadline: 900, State: 9}},
		{name: "requeue only keeps", point: onRequeue, plugins: []hook.Plugin{strategyAt(onRequeue, set(expired))}, message: due, want: hook.Verdict{Deadline: 900, State: 9}, faults: 1},

		{name: "Refuse at the head", point: onHead, plugins: []hook.Plugin{at(onHead, set(refused))}, message: due, want: hook.Verdict{Deadline: 900, State: 9}, faults: 1},
		{name: "no reason", point: onEnqueue, plugins: []hook.Plugin{at(onEnqueue, set(hook.Verdict{Action: hook.Drop}))}, faults: 1},
		{name: "no such reason", point: onEnqueue, plugins: []hook.Plugin{at(onEnqueue, set(hook.Verdict{Action: hook.Drop, Reason: 99}))}, faults: 1},
		{name: "no target", point: onEnqueue, plugins: []hook.Plugin{at(onEnqueue, set(expired)), at(onEnqueue, set(hook.Verdict{Action: hook.Route, Reason: 1}))}, want: expired, faults: 1},
		{name: "no such action", point: onEnqueue, plugins: []hook.Plugin{at(onEnqueue, set(hook.Verdict{Action: 9}))}, faults: 1},
		{name: "no such instant", point: onEnqueue, plugins: []hook.Plugin{strategyAt(onEnqueue, deadline(-1))}, faults: 1},

		{name: "a panic", point: onEnqueue, plugins: []hook.Plugin{at(onEnqueue, panicking)}, faults: 1},
		{name: "a panic of the strategy", point: onEnqueue, plugins: []hook.Plugin{strategyAt(onEnqueue, panicking)}, faults: 1},
		{name: "a panic in the middle", point: onEnqueue, plugins: []hook.Plugin{at(onEnqueue, set(expired)), at(onEnqueue, panicking), at(onEnqueue, asIs)}, want: expired, faults: 1},
		{name: "a panic at the head", point: onHead, plugins: []hook.Plugin{at(onHead, panicking)}, message: leaving, start: rejected, want: inForce(rejected, leaving), faults: 1},
		{name: "a panic on requeue", point: onRequeue, plugins: []hook.Plugin{strategyAt(onRequeue, panicking)}, message: due, want: hook.Verdict{Deadline: 900, State: 9}, faults: 1},
	} {
		c, h := attach(t, tc.plugins...)
		if got := ask(h, tc.point, tc.message, tc.start); got != tc.want {
			t.Errorf("%s: got %+v, want %+v", tc.name, got, tc.want)
		}
		if got := len(c.Faults()); got != tc.faults {
			t.Errorf("%s: got faults %+v, want %d", tc.name, c.Faults(), tc.faults)
		}
	}
}

// byPriority gives the verdict to messages of that priority.
func byPriority(n uint8, give hook.Verdict) batchFunc {
	return each(func(m *hook.Message, v *hook.Verdict) {
		if m.Priority == n {
			*v = give
		}
	})
}

// The first plugin of a chain used to cancel the hold that a publisher had asked for, by a panic or by a verdict of its own, before later plugins
// saw it: a full queue refused messages that were to be held.
func TestHoldsOfPublishers(t *testing.T) {
	for name, first := range map[string]func(hook.Instant, []hook.Message, []hook.Verdict){
		"replaces verdicts": func(_ hook.Instant, _ []hook.Message, vs []hook.Verdict) { clear(vs) },
		"holds for less":    func(_ hook.Instant, _ []hook.Message, vs []hook.Verdict) { vs[0].Hold = 5 },
		"panics":            func(hook.Instant, []hook.Message, []hook.Verdict) { panic("no") },
		"is invalid":        func(_ hook.Instant, _ []hook.Message, vs []hook.Verdict) { vs[0].Hold = -1 },
	} {
		var seen hook.Instant
		second := func(_ hook.Instant, _ []hook.Message, vs []hook.Verdict) { seen = vs[0].Hold }
		_, h := attach(t, fake{hooks: hook.Hooks{OnEnqueue: first}}, fake{hooks: hook.Hooks{OnEnqueue: second}})
		vs := []hook.Verdict{{Hold: 9}}
		h.EnqueueWaiting(1, hooktest.Messages(hook.Message{}), vs)
		if seen != 9 || vs[0].Hold != 9 {
			t.Errorf("%s: the next plugin saw a hold until %d, the queue until %d", name, seen, vs[0].Hold)
		}
	}
}

// Refused messages are not shown to later plugins, and the other messages keep their places, in one call.
func TestRefusedAreTakenOut(t *testing.T) {
	var seen []uint8
	calls := 0
	look := func(_ hook.Instant, ms []hook.Message, vs []hook.Verdict) {
		calls++
		for i := range ms {
			seen = append(seen, ms[i].Priority)
			vs[i].Deadline = hook.Instant(100 + int(ms[i].Priority))
		}
	}
	c, h := attach(t,
		at(onEnqueue, byPriority(1, refused)), at(onEnqueue, byPriority(3, refused)),
		at(onEnqueue, panicking), at(onEnqueue, byPriority(4, expired)), at(onEnqueue, look))
	ms, vs := make([]hook.Message, 6), make([]hook.Verdict, 6)
	for i := range ms {
		ms[i].Priority = uint8(i)
	}
	h.Enqueue(1, hooktest.Messages(ms...), vs)
	if got, want := string(seen), "\x00\x02\x04\x05"; got != want || calls != 1 {
		t.Errorf("the last plugin saw %q in %d calls, want %q in 1", got, calls, want)
	}
	dropped := expired
	dropped.Deadline = 104
	for i, want := range []hook.Verdict{{Deadline: 100}, refused, {Deadline: 102}, refused, dropped, {Deadline: 105}} {
		if vs[i] != want {
			t.Errorf("message %d: got %+v, want %+v", i, vs[i], want)
		}
	}
	if got := c.Faults(); len(got) != 1 || got[0] != (Fault{Plugin: "c", Point: "OnEnqueue", Panics: 1}) {
		t.Errorf("faults: got %+v, want the panic", got)
	}
}

func TestNobodyIsAskedAboutNothing(t *testing.T) {
	_, h := attach(t, at(onEnqueue, set(refused)), at(onEnqueue, func(hook.Instant, []hook.Message, []hook.Verdict) {
		t.Error("called although everything was refused")
	}))
	if got := ask(h, onEnqueue, hook.Message{}, hook.Verdict{}); got != refused {
		t.Errorf("got %+v, want %+v", got, refused)
	}
}

func TestEmptyBatch(t *testing.T) {
	_, h := attach(t, strategyAt(onEnqueue, asIs), at(onEnqueue, asIs), at(onHead, asIs))
	h.Enqueue(1, nil, nil)
	h.Head(1, nil, nil)
	h.Requeue(1, nil, nil)
}

func TestIdle(t *testing.T) {
	gone := hook.Verdict{Action: hook.Drop, Reason: hook.ReasonQueueExpired, DeadLetter: true}
	idle := func(do func(v *hook.Verdict)) hook.Hooks {
		return hook.Hooks{OnIdle: func(_ hook.Instant, _ time.Duration, v *hook.Verdict) { do(v) }}
	}
	ask := func(t hook.Instant) fake { return fake{hooks: idle(func(v *hook.Verdict) { v.Deadline = t })} }
	say := func(give hook.Verdict) fake { return fake{hooks: idle(func(v *hook.Verdict) { *v = give })} }
	strategy := strategist{names: []string{"s"}, fake: ask(60)}
	strategy.hooks.Strategy = true
	for _, tc := range []struct {
		name    string
		plugins []hook.Plugin
		want    hook.Verdict
		faults  int
	}{
		{name: "one", plugins: []hook.Plugin{say(gone)}, want: gone},
		{name: "the last word wins", plugins: []hook.Plugin{say(gone), say(hook.Verdict{})}},
		{name: "asked again as early as anybody wants", plugins: []hook.Plugin{ask(50), ask(60), ask(40), ask(0)}, want: hook.Verdict{Deadline: 40}},
		{name: "the strategy may put it off", plugins: []hook.Plugin{ask(50), strategy}, want: hook.Verdict{Deadline: 60}},
		{name: "the strategy is asked last", plugins: []hook.Plugin{strategy, say(gone)}, want: hook.Verdict{Action: hook.Drop, Reason: hook.ReasonQueueExpired, DeadLetter: true, Deadline: 60}},
		{name: "Refuse", plugins: []hook.Plugin{ask(50), say(refused)}, want: hook.Verdict{Deadline: 50}, faults: 1},
		{name: "Route", plugins: []hook.Plugin{say(routed)}, faults: 1},
		{name: "a panic", plugins: []hook.Plugin{ask(50), fake{hooks: idle(func(v *hook.Verdict) { *v = gone; panic("oh") })}}, want: hook.Verdict{Deadline: 50}, faults: 1},
	} {
		c, h := attach(t, tc.plugins...)
		var got hook.Verdict
		h.Idle(10, time.Second, &got)
		if got != tc.want || len(c.Faults()) != tc.faults {
			t.Errorf("%s: got %+v and faults %+v, want %+v and %d", tc.name, got, c.Faults(), tc.want, tc.faults)
		}
	}
}

// Two folds that run at the same time, here one inside the other, do not share buffers.
func TestNestedCalls(t *testing.T) {
	_, inner := attach(t, at(onHead, set(expired)), at(onHead, asIs))
	_, outer := attach(t, at(onHead, asIs), at(onHead, each(func(_ *hook.Message, v *hook.Verdict) {
		ask(inner, onHead, due, hook.Verdict{})
		v.Action = 9 // put back from the buffers
	})))
	if got, want := ask(outer, onHead, due, hook.Verdict{}), (hook.Verdict{Deadline: 900, State: 9}); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
}
