package hooktest

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/curfewmq/curfew/sdk/hook"
	"github.com/curfewmq/curfew/sdk/hook/guest"
)

// reporter is the part of [testing.T] that the checks use.
type reporter interface {
	Helper()
	Errorf(format string, args ...any)
	Fatalf(format string, args ...any)
}

// subject is a plugin on queues of one kind.
type subject struct {
	t      reporter
	plugin hook.Plugin
	spec   Spec
}

func (s *subject) check() {
	s.t.Helper()
	a := s.attach()
	a.checkHooks()
	for _, p := range points {
		if a.callback(p) != nil {
			s.checkOneByOne(p)
			s.checkKeepsNothing(p)
		}
	}
	if a.hooks.OnIdle != nil {
		s.checkIdle()
	}
	if a.hooks.OnGone != nil {
		s.checkGone()
	}
}

// attach attaches the plugin to a new queue.
func (s *subject) attach() *attachment {
	s.t.Helper()
	q := NewQueue(s.spec)
	q.onCount = func() { s.t.Errorf("Attach reads a live count; only callbacks may") }
	a := &attachment{t: s.t, queue: q, hooks: s.plugin.Attach(q)}
	q.onCount = nil
	if a.hooks.Shared {
		q.onCount = func() { s.t.Errorf("has Shared, and a callback reads a live count") }
	}
	if st, ok := s.plugin.(hook.Strategist); ok {
		a.offered = slices.Contains(st.Strategies(), s.spec.Strategy)
	}
	return a
}

// checkOneByOne calls a hook with batches of several sizes, twice, and with the same messages one by one; the answers must be equal.
func (s *subject) checkOneByOne(p point) {
	s.t.Helper()
	for seed, n := range []int{0, 1, 2, 64, 500} {
		in := situations(p, uint64(seed), n)
		single, batch, again := s.attach(), s.attach(), s.attach()
		var want []hook.Verdict
		for i := range in {
			v := single.call(p, in[i:i+1])
			want = append(want, v[0])
			if p == onEnqueue {
				single.queue.Enter(now, &in[i].message, &v[0])
			}
		}
		got := batch.call(p, in)
		s.compare(p, "in a batch differ from those one by one", in, got, want)
		s.compare(p, "differ from call to call", in, again.call(p, in), got)
	}
}

// checkKeepsNothing makes two calls on each of two queues. On one of them it overwrites the messages of the first call before the second,
// and marks the verdicts.
func (s *subject) checkKeepsNothing(p point) {
	s.t.Helper()
	first, second := situations(p, 100, 64), situations(p, 101, 64)
	scribbled, intact := s.attach(), s.attach()

	ms, vs := scribbled.callRaw(p, first)
	Scribble(ms)
	mark := hook.Verdict{State: math.MinInt64, Deadline: -77}
	for i := range vs {
		vs[i] = mark
	}
	intact.callRaw(p, first)

	_, got := scribbled.callRaw(p, second)
	_, want := intact.callRaw(p, second)
	s.compare(p, "depend on messages it kept from an earlier call", second, got, want)
	if slices.ContainsFunc(vs, func(v hook.Verdict) bool { return v != mark }) {
		s.t.Errorf("%s writes to verdicts of an earlier call", p)
	}
}

func (s *subject) compare(p point, what string, in []situation, got, want []hook.Verdict) {
	s.t.Helper()
	for i := range want {
		if !same(got[i], want[i]) {
			s.t.Errorf("%s: verdicts %s: message %d of %d: got %s, want %s, on %s", p, what, i, len(want), format(got[i]), format(want[i]), show(in[i:i+1]))
			return
		}
	}
}

func (s *subject) checkIdle() {
	s.t.Helper()
	starts := []hook.Verdict{
		{},
		{Deadline: now.Add(time.Minute)},
		{Action: hook.Drop, Reason: hook.ReasonQueueExpired},
	}
	for _, start := range starts {
		for _, idle := range []time.Duration{0, 1, time.Millisecond, time.Hour, 20 * 365 * 24 * time.Hour, math.MaxInt64} {
			got, again := s.attach().idle(idle, start), s.attach().idle(idle, start)
			if !same(got, again) {
				s.t.Errorf("OnIdle(%s): got %s, then %s", idle, format(got), format(again))
			}
		}
	}
}

// checkGone calls OnGone for some messages that entered before, for others that the plugin never saw, for none, and for all at once.
// Afterwards the plugin must work as before.
func (s *subject) checkGone() {
	s.t.Helper()
	a := s.attach()
	in := situations(onEnqueue, 7, 64)
	for _, gone := range [][]situation{in[:10], {}, nil, in, situations(onEnqueue, 8, 64)} {
		if a.hooks.OnEnqueue != nil {
			a.call(onEnqueue, in)
		}
		a.gone(gone)
	}
}

// attachment is the plugin on one queue.
type attachment struct {
	t       reporter
	queue   *Queue
	hooks   hook.Hooks
	offered bool // the plugin offers the queue's strategy
}

func (a *attachment) checkHooks() {
	a.t.Helper()
	h := a.hooks
	if h.Scan > hook.ScanLazy {
		a.t.Errorf("Scan is %d, which is not one", h.Scan)
	}
	if h.Strategy && !a.offered {
		a.t.Errorf("says it is the strategy of a queue whose strategy is %q, which it does not offer", a.queue.Strategy())
	}
	if !h.Strategy && (h.OnRequeue != nil || h.OnRestamp != nil || h.Scan != hook.ScanAnywhere) {
		a.t.Errorf("has OnRequeue, OnRestamp or Scan without being the queue's strategy: they are not heard")
	}
	if h.DeadlineFromReady && !h.Strategy {
		a.t.Errorf("has DeadlineFromReady without being the queue's strategy: only the strategy's deadlines move")
	}
}

// point is a hook point that takes batches.
type point string

const (
	onEnqueue point = "OnEnqueue"
	onHead    point = "OnHead"
	onRequeue point = "OnRequeue"
	onRestamp point = "OnRestamp"
	onReturn  point = "OnReturn"
)

var points = []point{onEnqueue, onHead, onRequeue, onRestamp, onReturn}

func (a *attachment) callback(p point) func(hook.Instant, []hook.Message, []hook.Verdict) {
	switch p {
	case onEnqueue:
		return a.hooks.OnEnqueue
	case onHead:
		return a.hooks.OnHead
	case onRestamp:
		return a.hooks.OnRestamp
	case onReturn:
		return a.hooks.OnReturn
	}
	return a.hooks.OnRequeue
}

// call makes a call as the broker does, overwrites the messages after it has returned, and checks the verdicts.
func (a *attachment) call(p point, in []situation) []hook.Verdict {
	a.t.Helper()
	ms, vs := a.callRaw(p, in)
	Scribble(ms)
	for i := range vs {
		if err := a.complaint(p, &in[i], &vs[i]); err != nil {
			a.t.Fatalf("%s: %v, on %s", p, err, show(in[i:i+1]))
		}
	}
	return vs
}

func (a *attachment) callRaw(p point, in []situation) ([]hook.Message, []hook.Verdict) {
	a.t.Helper()
	ms, vs := unzip(in)
	before := slices.Clone(ms)
	defer func() {
		if r := recover(); r != nil {
			a.t.Fatalf("%s panics on %s: %v", p, show(in), r)
		}
	}()
	a.callback(p)(now, ms, vs)
	if !slices.Equal(before, ms) {
		a.t.Fatalf("%s changes the messages it is shown", p)
	}
	return ms, vs
}

// gone makes a call of OnGone as the broker does; nil means all messages.
func (a *attachment) gone(in []situation) {
	a.t.Helper()
	var ms []hook.Message
	if in != nil {
		ms = make([]hook.Message, len(in))
		contents := make([]Content, len(in))
		for i, s := range in {
			ms[i] = hook.Message{Size: s.message.Size, Priority: s.message.Priority} // the broker sets only these
			contents[i] = s.content
		}
		Bind(ms, contents...)
	}
	before := slices.Clone(ms)
	if err := contained(func() error { a.hooks.OnGone(ms); return nil }); err != nil {
		a.t.Fatalf("OnGone %v on %s", err, show(in))
	}
	if !slices.Equal(before, ms) {
		a.t.Fatalf("OnGone changes the messages it is shown")
	}
	Scribble(ms)
	if a.hooks.OnStay != nil && in != nil {
		a.stay(in)
	}
}

// stay makes a call of OnStay as the broker does.
func (a *attachment) stay(in []situation) {
	a.t.Helper()
	ms, vs, contents := make([]hook.Message, len(in)), make([]hook.Verdict, len(in)), make([]Content, len(in))
	for i, s := range in {
		ms[i] = hook.Message{Size: s.message.Size, Priority: s.message.Priority}
		contents[i] = s.content
	}
	Bind(ms, contents...)
	before := slices.Clone(ms)
	if err := contained(func() error { a.hooks.OnStay(now, ms, vs); return nil }); err != nil {
		a.t.Fatalf("OnStay %v on %s", err, show(in))
	}
	if !slices.Equal(before, ms) {
		a.t.Fatalf("OnStay changes the messages it is shown")
	}
	for i := range vs {
		if vs[i] != (hook.Verdict{Watch: vs[i].Watch}) {
			a.t.Errorf("OnStay decides %+v, only Watch is used", vs[i])
		}
	}
	Scribble(ms)
}

func (a *attachment) idle(idle time.Duration, v hook.Verdict) hook.Verdict {
	a.t.Helper()
	before := v
	a.hooks.OnIdle(now, idle, &v)
	switch {
	case v.Action == hook.Drop && !named(v.Reason):
		a.t.Errorf("OnIdle(%s): Drop without a reason", idle)
	case v.Action != hook.Keep && v.Action != hook.Drop:
		a.t.Errorf("OnIdle(%s): got action %d, want Keep or Drop", idle, v.Action)
	case v.Action == hook.Keep && v.Deadline != before.Deadline && v.Deadline != 0 && v.Deadline <= now:
		a.t.Errorf("OnIdle(%s): asks to be asked again in the past", idle)
	}
	return v
}

// complaint returns why a verdict is invalid.
func (a *attachment) complaint(p point, in *situation, v *hook.Verdict) error {
	m := &in.message
	switch {
	case v.Action > hook.Refuse:
		return fmt.Errorf("there is no action %d", v.Action)
	case v.Action == hook.Refuse && p != onEnqueue:
		return errors.New("only OnEnqueue may refuse")
	case v.Action != hook.Keep && (p == onRequeue || p == onRestamp || p == onReturn):
		return fmt.Errorf("%s may only keep", p)
	case v.Action == hook.Keep && m.Why == hook.WhyLeaving:
		return errors.New("keeps a message that leaves")
	case (v.Action == hook.Drop || v.Action == hook.Route) && !named(v.Reason):
		return errors.New("drops or routes without a reason")
	case v.Action == hook.Route && v.Reason == hook.ReasonDuplicate:
		return errors.New("routes a duplicate, which is only ever dropped")
	case v.Action == hook.Route && v.Target == nil:
		return errors.New("routes without a target")
	case v.Watch && !in.verdict.Watch && a.hooks.OnGone == nil:
		return errors.New("sets Watch without OnGone")
	case v.Deadline < 0:
		return fmt.Errorf("there is no deadline %d", v.Deadline)
	case v.Action == hook.Keep && v.Hold < 0:
		return fmt.Errorf("cannot hold a message until %d", v.Hold)
	case v.State != in.verdict.State && !a.hooks.Strategy:
		return errors.New("sets a state, which only the queue's strategy may")
	case guest.Digest(v) != guest.Digest(&in.verdict) && v.Action == hook.Keep && !a.hooks.Strategy:
		return errors.New("sets a digest, which only the queue's strategy may")
	}
	if err := holdComplaint(p, &in.verdict, v); err != nil {
		return err
	}
	return a.lateComplaint(p, m, v)
}

// holdComplaint refuses verdicts whose Hold has no meaning, because the broker would not act on it.
func holdComplaint(p point, before, v *hook.Verdict) error {
	switch {
	case v.Action != hook.Keep || v.Hold == before.Hold:
		return nil
	case p == onRestamp:
		return errors.New("OnRestamp may not hold")
	case v.Hold < before.Hold:
		return errors.New("shortens a hold: the latest of several counts")
	}
	return nil
}

// lateComplaint refuses a strategy's verdict that keeps a due message without a later deadline: the broker would call it again and again.
func (a *attachment) lateComplaint(p point, m *hook.Message, v *hook.Verdict) error {
	if p == onHead && a.hooks.Strategy && m.Why == hook.WhyDue && v.Action == hook.Keep && v.Deadline != 0 && v.Deadline <= now {
		return errors.New("keeps a due message without a later deadline")
	}
	return nil
}

func named(r hook.Reason) bool { return r != hook.ReasonNone && r < hook.Reasons }
