package wasm

import (
	"time"

	"github.com/curfewmq/curfew/sdk/abi"
	"github.com/curfewmq/curfew/sdk/hook"
	"github.com/curfewmq/curfew/sdk/hook/guest"
)

// binding ties a policy to a queue or, if the policy does not look at the queue itself, to all queues with equal settings. It does
// not change.
type binding struct {
	policy  *policy // nil: the strategy belongs to another plugin
	shadow  *policy // nil: none
	queue   hook.Queue
	ttl     hook.Limit // milliseconds
	dlx     byte       // [abi.FlagDLX] if the queue has a dead-letter exchange
	recheck *recheck   // selects the queued messages about which the policy is called; nil: all
}

// bind makes the hooks of a queue. policy and shadow are not both nil.
func bind(q hook.Queue, p, shadow *policy) hook.Hooks {
	b := &binding{policy: p, shadow: shadow, queue: q, ttl: hook.IntSetting(q, "message-ttl")}
	if _, ok := hook.StringSetting(q, "dead-letter-exchange"); ok {
		b.dlx = abi.FlagDLX
	}
	shared := !p.looksAtQueue() && shadow == nil // a shadow's differences name the queue
	if p == nil {
		return hook.Hooks{OnEnqueue: b.watchEnqueue, OnHead: b.watchHead, Shared: shared}
	}
	b.recheck = p.recheck.Load()
	hs := hook.Hooks{
		Strategy: true, Scan: hook.ScanAnywhere, Shared: shared,
		DeadlineFromReady: true, // those of TTLs: the others have a digest
		OnEnqueue:         b.enqueue, OnHead: b.head, OnRestamp: b.restamp,
	}
	v := p.active.Load()
	if v == nil {
		return hs
	}
	if v.hooks.has(abi.OnRequeue) {
		hs.OnRequeue = b.requeue
	}
	if v.hooks.has(abi.OnIdle) {
		hs.OnIdle = b.idle
	}
	return hs
}

// looksAtQueue reports whether a policy's module uses more of a queue than its settings.
func (p *policy) looksAtQueue() bool {
	if p == nil {
		return false
	}
	v := p.active.Load()
	return v != nil && (v.hooks.has(abi.OnIdle) || v.module.imports("queue_arg_i64", "queue_arg_str"))
}

// answer calls the policy's active version, and its shadow if there is one.
func answer(c call) {
	others := c.holdsBefore()
	if v := c.policy.active.Load(); v != nil {
		v.ask(&c)
	} else {
		c.withoutModule()
	}
	if c.shadow != nil {
		c.shadow.compare(c, others)
	}
}

// withoutModule decides by on-error, because the module could not be loaded, or has not been loaded yet.
func (c *call) withoutModule() {
	absent := c.policy.absent()
	c.failed(absent)
	c.watch(absent, hooksOf[c.at]).report(c, absent, unavailable, "it is not loaded")
	if c.policy.active.Load() != nil { // it is loaded by now, and may have been reviewed before this was counted
		c.policy.host.recovered(c.policy)
	}
}

func (b *binding) enqueue(now hook.Instant, ms []hook.Message, vs []hook.Verdict) {
	c := call{binding: b, at: atEnqueue, now: now, ms: ms, vs: vs}
	for i := range vs {
		if vs[i].Action != hook.Keep {
			c.forEachRun(entering, answer)
			return
		}
	}
	answer(c)
}

// head calls the policy about messages that are due, or flagged for a call at the head, but not about messages being removed for another
// reason.
func (b *binding) head(now hook.Instant, ms []hook.Message, vs []hook.Verdict) {
	c := call{binding: b, now: now, ms: ms, vs: vs}
	c.forEachRun(dueOrHead, answer)
}

// classifier returns on which occasion the policy is called about a message; false if it is not called.
type classifier func(now hook.Instant, m *hook.Message, v *hook.Verdict) (callReason, bool)

// entering skips messages about which a previous plugin has decided.
func entering(_ hook.Instant, _ *hook.Message, v *hook.Verdict) (callReason, bool) {
	return atEnqueue, v.Action == hook.Keep
}

func dueOrHead(now hook.Instant, m *hook.Message, v *hook.Verdict) (callReason, bool) {
	if v.Action != hook.Keep {
		return 0, false
	}
	return whenThere(now, m, v)
}

// whenThere classifies only by the message.
func whenThere(now hook.Instant, m *hook.Message, _ *hook.Verdict) (callReason, bool) {
	switch {
	case m.Why == hook.WhyLeaving:
		return 0, false
	case m.Deadline != 0 && now >= m.Deadline:
		return atDue, true
	}
	return atHead, m.Why == hook.WhyHead
}

// forEachRun calls put for each run of messages with the same occasion. Nearly always there is a single run.
func (c *call) forEachRun(classify classifier, put func(call)) {
	for from := 0; from < len(c.ms); {
		at, wanted := classify(c.now, &c.ms[from], &c.vs[from])
		to := from + 1
		for ; to < len(c.ms); to++ {
			if next, too := classify(c.now, &c.ms[to], &c.vs[to]); next != at || too != wanted {
				break
			}
		}
		if wanted {
			run := c.slice(from, to)
			run.at = at
			put(run)
		}
		from = to
	}
}

func (b *binding) requeue(now hook.Instant, ms []hook.Message, vs []hook.Verdict) {
	c := call{binding: b, at: atRequeue, now: now, ms: ms, vs: vs}
	if len(ms) > 0 && ms[0].Why == hook.WhyAgain {
		c.tryAgain()
		return
	}
	answer(c)
}

func (b *binding) restamp(now hook.Instant, ms []hook.Message, vs []hook.Verdict) {
	for i := range vs {
		guest.Restore(&vs[i], &ms[i])
	}
	c := call{binding: b, at: atChange, now: now, ms: ms, vs: vs}
	v := b.policy.active.Load()
	switch {
	case len(ms) > 0 && ms[0].Why == hook.WhyAgain:
		c.tryAgain()
	case b.recheck != nil:
		c.reconsider()
	case v == nil:
		c.fallBack(b.policy.absent())
	default:
		v.ask(&c)
	}
}

// idle asks the policy whether the queue may stay.
func (b *binding) idle(now hook.Instant, idle time.Duration, d *hook.Verdict) {
	v := b.policy.active.Load()
	if v == nil || !v.hooks.has(abi.OnIdle) {
		return
	}
	c := call{binding: b, now: now}
	in := v.borrow(now)
	if in == nil {
		v.stats.failures[unavailable].Add(1)
		c.failedIdle(v, d)
		return
	}
	in.begin(&c, nil)
	in.stack[0], in.stack[1] = uint64(millis(now)), uint64(idle.Milliseconds())
	in.stack[2], in.stack[3], in.stack[4] = uint64(b.queue.Ready()), uint64(b.queue.Unacked()), uint64(b.queue.Consumers())
	var r fuelBudget
	f := in.run(abi.OnIdle, now, &r, 1)
	in.end()
	if f != nil {
		v.giveUp(in, &c, f)
		c.failedIdle(v, d)
		return
	}
	said := int64(in.stack[0])
	v.giveBack(in)
	c.decideIdle(v, said, d)
}

// failedIdle leaves the decision to other plugins, unless on-error is keep. If the queue stays, the policy is called again later.
func (c *call) failedIdle(v *version, d *hook.Verdict) {
	if v.options.OnError == Keep {
		*d = hook.Verdict{}
	}
	if d.Action == hook.Keep && d.Deadline == 0 {
		d.Deadline = max(c.now.AddMillis(retryMillis), hook.Instant(v.breaker.until.Load()))
	}
}

// decideIdle applies a guest's answer about an idle queue.
func (c *call) decideIdle(v *version, said int64, d *hook.Verdict) {
	switch {
	case said == abi.IdleNoOpinion:
	case said == abi.IdleDelete:
		d.Action, d.Reason = hook.Drop, hook.ReasonQueueExpired
	case said == abi.IdleNever:
		*d = hook.Verdict{}
	case plausible(said):
		at := c.instant(&hook.Message{}, said)
		*d = hook.Verdict{Deadline: max(at, c.now.AddMillis(retryMillis))}
	default:
		v.stats.failures[invalidVerdict].Add(1)
		a := verdict{until: said}
		f := &failure{kind: invalidVerdict, what: abi.OnIdle.String(), reason: mistakes{what: invalidUntil, verdict: a}.String()}
		v.stats.last.Store(f)
		v.policy.report.failed(c.now, v.module.Digest, f)
	}
}
