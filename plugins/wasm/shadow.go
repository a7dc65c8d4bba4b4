package wasm

import (
	"slices"
	"sync"

	"github.com/curfewmq/curfew/sdk/hook"
)

// watchEnqueue and watchHead call the shadow of another plugin's strategy. They do not
// change the verdicts. A hold in force may come from any plugin, so only a later hold of
// the shadow counts as a difference.
func (b *binding) watchEnqueue(now hook.Instant, ms []hook.Message, vs []hook.Verdict) {
	c := call{binding: b, at: atEnqueue, now: now, ms: ms, vs: vs}
	b.shadow.compare(c, c.holdsBefore())
}

func (b *binding) watchHead(now hook.Instant, ms []hook.Message, vs []hook.Verdict) {
	c := call{binding: b, now: now, ms: ms, vs: vs}
	c.forEachRun(whenThere, func(run call) { b.shadow.compare(run, run.holdsBefore()) })
}

// holdsBefore returns the holds with which a shadow's verdicts begin; nil if there are none, or no shadow.
func (c *call) holdsBefore() []hook.Instant {
	if c.shadow == nil || !slices.ContainsFunc(c.vs, func(v hook.Verdict) bool { return v.Hold != 0 }) {
		return nil
	}
	holds := make([]hook.Instant, len(c.vs))
	for i := range holds {
		holds[i] = c.vs[i].Hold
	}
	return holds
}

// compare calls a shadow, and counts its verdicts that differ from those in force. holds are the holds of other plugins; nil means
// none.
func (p *policy) compare(c call, holds []hook.Instant) {
	c.shadowing = true
	v := p.active.Load()
	if v == nil {
		return
	}
	buf := shadowBuffers.Get().(*shadowBuffer)
	for from := 0; from < len(c.ms); from += len(buf) {
		to := min(from+len(buf), len(c.ms))
		v.compareSome(c.slice(from, to), buf, holds[min(from, len(holds)):min(to, len(holds))])
	}
	shadowBuffers.Put(buf)
}

// shadowBuffer holds the verdicts of a shadow, so that not every call allocates them on the heap.
type shadowBuffer [64]hook.Verdict

var shadowBuffers = sync.Pool{New: func() any { return new(shadowBuffer) }}

func (v *version) compareSome(c call, buf *shadowBuffer, holds []hook.Instant) {
	inForce := c.vs
	c.vs = buf[:len(c.ms)]
	clear(c.vs)
	if c.at != atEnqueue {
		for i := range c.ms {
			c.vs[i].Deadline, c.vs[i].State = c.ms[i].Deadline, c.ms[i].State
		}
	}
	for i := range holds {
		c.vs[i].Hold = holds[i]
	}
	v.ask(&c)
	differing := 0
	for i := range inForce {
		same := alike(&inForce[i], &c.vs[i])
		if o := v.policy.observer; o != nil {
			o(inForce[i], c.vs[i], !same)
		}
		if same {
			continue
		}
		if differing++; v.policy.differences.allows(c.now) {
			v.policy.differences.add(&c, i, &inForce[i], v)
		}
	}
	v.policy.compared.Add(uint64(len(inForce)))
	v.policy.differing.Add(uint64(differing))
}

// alike reports whether two verdicts have the same effect. Deadlines in the same millisecond count as equal.
func alike(a, b *hook.Verdict) bool {
	if a.Action != b.Action {
		return false
	}
	switch a.Action {
	case hook.Drop:
		return a.Final == b.Final
	case hook.Route:
		return a.Target != nil && b.Target != nil && *a.Target == *b.Target
	case hook.Keep:
		return millis(a.Deadline) == millis(b.Deadline) && a.AskHead == b.AskHead && millis(a.Hold) == millis(b.Hold)
	}
	return true
}
