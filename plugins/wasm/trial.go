package wasm

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/curfewmq/curfew/sdk/abi"
	"github.com/curfewmq/curfew/sdk/hook"
)

// Before a module serves queues, a separate instance of it is called about ordinary
// messages. That instance is then discarded, so that nothing of the trial remains: no
// counts, no state, no failures of the policy.

// trial is the result of trying a module.
type trial struct {
	costs  []HookCost
	most   int64 // fuel of the most expensive call
	failed error // the module failed and was kept nevertheless
	// absent are names for which the module asked and that are not in the configuration.
	absent map[string]bool
	// readsText means that the module reads its configuration as text, and thus every key.
	readsText bool
}

// TrialMode is the effect of a module's trial.
type TrialMode uint8

// The modes.
const (
	Decisive TrialMode = iota // a failing module is refused
	Advisory                  // a failing module is used nevertheless, with a warning
	Untried                   // modules are not tried
)

// HookCost is the fuel that a hook has used in a trial.
type HookCost struct {
	Hook string `json:"hook"`
	One  int64  `json:"one"`  // for one message, or for one question about an idle queue
	Each int64  `json:"each"` // for each of 64 messages; 0: it is not known, or the hook is not for messages
	// Untried means that earlier hooks used all the fuel of the trial.
	Untried bool `json:"untried,omitempty"`
}

// The limits of a trial. Each question is asked twice, and the second call is measured,
// because a guest may still prepare itself in the first one. Then a call has many messages,
// so that a garbage collection, or a lack of memory, happens in the trial and not in
// service.
const (
	trialStart    = hook.Instant(1_767_571_200_000_000_000) // 2026-01-05T00:00:00Z, a Monday
	trialMany     = 64
	trialMessages = 16_384
	// trialFuel ends a trial successfully. In total, the trial takes at most as long as
	// this fuel and one more call, the most expensive one that is allowed.
	trialFuel = 250_000_000
)

// trialQueue is the queue of a trial: classic, with a TTL of a minute, and empty.
type trialQueue struct{ strategy string }

var _ hook.Queue = trialQueue{}

// The methods of [hook.Queue].

func (trialQueue) VHost() string      { return "/" }
func (trialQueue) Name() string       { return "q" }
func (trialQueue) Type() string       { return "classic" }
func (q trialQueue) Strategy() string { return q.strategy }
func (trialQueue) Ready() int         { return 0 }
func (trialQueue) ReadyBytes() int64  { return 0 }
func (trialQueue) Unacked() int       { return 0 }
func (trialQueue) Held() int          { return 0 }
func (trialQueue) Consumers() int     { return 0 }
func (trialQueue) Credit() int        { return 0 }
func (trialQueue) Setting(name string) (any, bool) {
	if name == "message-ttl" {
		return int64(60_000), true
	}
	return nil, false
}

// bare is the empty content of a trial's messages.
type bare struct{}

var _ hook.Source = bare{}

// The methods of [hook.Source].

func (bare) Part(int, hook.Part) []byte            { return nil }
func (bare) Header(int, string) (any, bool)        { return nil, false }
func (bare) HeaderInt(int, string) (int64, bool)   { return 0, false }
func (bare) HeaderText(int, string) ([]byte, bool) { return nil, false }
func (bare) Deaths(int) int                        { return 0 }

// tryOut tries a policy with its intended settings in a temporary version. settings returns
// the marks of which settings were read.
func tryOut(p *policy, c *compiled, o Options) (t *trial, settings map[string]*setting, err error) {
	v, err := standIn(p, c, o, false)
	if err != nil {
		return nil, nil, err
	}
	defer v.pool.retire()
	t = &trial{absent: v.absent}
	x := newExam(v)
	x.questions()
	profile := x.profile()
	x.barrage()
	t.costs, t.most, t.failed = x.costs, int64(v.stats.most.Load()), x.err
	if t.failed == nil && len(unread(v.settings)) > 0 {
		t.readsText = readsText(p, c, o, profile)
	}
	return t, v.settings, nil
}

// standIn makes a version of a policy whose calls have no effect.
func standIn(p *policy, c *compiled, o Options, blank bool) (*version, error) {
	log := p.host.env.Log
	if p.standIn {
		log = nil // nothing of a rehearsal is written to the broker's log
	}
	s := &policy{host: p.host, name: p.name, origin: Loaded, standIn: true, report: trialReport(log, p.name)}
	v, err := newVersion(s, c, o, func(v *version) { v.blank, v.absent = blank, map[string]bool{} })
	if err == nil {
		s.active.Store(v)
	}
	return v, err
}

// readsText reports whether a module reads its configuration as text. The host cannot
// observe that directly. But guests are deterministic: with a different text, a module that
// reads it fails, or uses a different amount of fuel.
func readsText(p *policy, c *compiled, o Options, profile []int64) bool {
	if !c.exports[abi.ExportBuffer] {
		return false
	}
	v, err := standIn(p, c, o, true)
	if err != nil {
		return true
	}
	defer v.pool.retire()
	x := newExam(v)
	x.questions()
	return x.err != nil || !slices.Equal(profile, x.profile())
}

// exam is one series of calls of a version.
type exam struct {
	v     *version
	hooks hook.Hooks
	now   hook.Instant
	costs []HookCost
	err   error // why the module is refused; no more calls are made then
}

func newExam(v *version) *exam {
	return &exam{v: v, hooks: bind(trialQueue{prefix + v.policy.name}, v.policy, nil), now: trialStart}
}

// spent returns the fuel that calls have used.
func (x *exam) spent() int64 {
	x.v.pool.countInstances() // adds the counts of all instances
	return int64(x.v.stats.fuel.Load())
}

// exhausted reports whether to make no more calls.
func (x *exam) exhausted() bool { return x.err != nil || x.spent() >= trialFuel }

// profile returns the fuel that each part has used so far.
func (x *exam) profile() []int64 {
	p := []int64{x.v.initFuel}
	for _, c := range x.costs {
		p = append(p, c.One, c.Each)
	}
	return append(p, x.spent())
}

// questions calls each hook that the module uses: all of them about one message first, so
// that an expensive hook does not prevent others from being tried.
func (x *exam) questions() {
	var used []abi.Hook
	for h := range abi.Hooks {
		if !x.v.hooks.has(h) {
			continue
		}
		c := HookCost{Hook: h.String(), Untried: x.exhausted()}
		if !c.Untried {
			c.One = x.cost(h, 1)
		}
		used, x.costs = append(used, h), append(x.costs, c)
	}
	for i, h := range used {
		x.measure(h, &x.costs[i])
	}
}

// measure calls a hook again about one message, and twice about many.
func (x *exam) measure(h abi.Hook, c *HookCost) {
	if x.exhausted() {
		return
	}
	c.One = x.cost(h, 1)
	if h == abi.OnIdle {
		return
	}
	for range 2 {
		if x.exhausted() {
			return
		}
		c.Each = x.cost(h, trialMany) / trialMany
	}
}

// cost calls a hook about n messages and returns the fuel used.
func (x *exam) cost(h abi.Hook, n int) int64 {
	before := x.spent()
	x.ask(h, n)
	return x.spent() - before
}

// barrage makes a call about many messages, of the hook for entering messages, or otherwise of the first hook in use.
func (x *exam) barrage() {
	for _, h := range []abi.Hook{abi.OnEnqueue, abi.Deadline, abi.OnDeadline, abi.OnHead, abi.OnRequeue} {
		if !x.v.hooks.has(h) {
			continue
		}
		for n := 0; n < trialMessages && !x.exhausted(); n += trialMany {
			x.now = x.now.AddMillis(1)
			x.ask(h, trialMany)
		}
		return
	}
}

// ask calls a hook about n ordinary messages.
func (x *exam) ask(h abi.Hook, n int) {
	if x.err != nil {
		return
	}
	if h == abi.OnIdle {
		var v hook.Verdict
		x.hooks.OnIdle(x.now, time.Minute, &v)
	} else {
		ask, why := x.callback(h)
		ms, vs := x.messages(why, n)
		ask(x.now, ms, vs)
	}
	x.err = x.v.failure()
}

func (x *exam) callback(h abi.Hook) (func(hook.Instant, []hook.Message, []hook.Verdict), hook.Why) {
	switch h {
	case abi.OnDeadline:
		return x.hooks.OnHead, hook.WhyDue
	case abi.OnHead:
		return x.hooks.OnHead, hook.WhyHead
	case abi.OnRequeue:
		return x.hooks.OnRequeue, hook.WhyRequeue
	}
	return x.hooks.OnEnqueue, hook.WhyEnqueue
}

// messages returns ordinary messages, with the broker's verdicts about them.
func (x *exam) messages(why hook.Why, n int) ([]hook.Message, []hook.Verdict) {
	ms, vs := make([]hook.Message, n), make([]hook.Verdict, n)
	for i := range ms {
		m := &ms[i]
		*m = hook.Message{Why: why, Enqueued: x.now, Size: 1024, Expiration: hook.LimitOf(30_000)}
		switch why {
		case hook.WhyDue:
			m.Enqueued, m.Deadline = x.now.Add(-time.Minute), x.now
		case hook.WhyHead, hook.WhyRequeue:
			m.Enqueued, m.Deadline = x.now.Add(-time.Second), x.now.Add(time.Minute)
		}
		m.Bind(bare{}, i)
		vs[i].Deadline = m.Deadline
	}
	return ms, vs
}

// failure returns the version's failures as an error; nil if there are none.
func (v *version) failure() error {
	for k := range kinds {
		if v.stats.failures[k].Load() == 0 {
			continue
		}
		if f := v.stats.last.Load(); f != nil {
			return fmt.Errorf("the policy failed: %w%s", f, v.contentHint(f))
		}
		return errors.New("the policy failed: no instance of it could be made")
	}
	return nil
}

// contentHint returns a hint for a failed trial if the module may have lacked the content of its messages.
func (v *version) contentHint(f *failure) string {
	reads := slices.ContainsFunc(v.options.Grants, func(g string) bool { return g == string(abi.Headers) || g == string(abi.Body) })
	if !reads || f.what == abi.OnIdle.String() || f.kind == outOfFuel {
		return ""
	}
	return "; messages of the trial have no headers, properties and body, and publishers may send such"
}

// fuelHint returns a hint for a failure for lack of fuel.
func (v *version) fuelHint(k kind) string {
	switch {
	case k != outOfFuel || v.options.Fuel >= LargeFuel:
		return ""
	case v.module.Go:
		return "; it is built with Go's compiler, whose garbage collector needs --fuel large (or fuel: large)"
	}
	return "; a policy in a language with a garbage collector, such as Go, needs --fuel large (or fuel: large)"
}

// warnings returns warnings about a version that works.
func (v *version) warnings() []string {
	all := append(v.twiceWarnings(), v.unreadWarnings()...)
	if v.module.Go && v.options.Fuel.base() == int64(DefaultFuel) { // a different number would have been chosen for this module
		all = append(all, fmt.Sprintf("fuel: the module is built with Go's compiler, whose garbage collector may use more in one call than the %d that it has; "+
			"load it with --fuel large (or fuel: large)", v.options.Fuel.base()))
	}
	if v.trial == nil {
		return all
	}
	if has := v.budget(trialMany); v.trial.most > has/2 {
		all = append(all, fmt.Sprintf("fuel: a call of the trial used %d of %d; with other messages it may not be enough", v.trial.most, has))
	}
	for _, c := range v.trial.costs {
		if c.Untried {
			all = append(all, fmt.Sprintf("%s was not tried: the hooks before it used the fuel of the trial, %d", c.Hook, int64(trialFuel)))
		}
	}
	if v.trial.failed != nil {
		all = append(all, fmt.Sprintf("the module would be refused if it were loaded now: %v", v.trial.failed))
	}
	return all
}
