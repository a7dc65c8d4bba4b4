package wasm

import (
	"github.com/curfewmq/curfew/sdk/hook"
)

// watchEnqueue and watchHead ask the shadow of another plugin's strategy. They do
// not change the verdicts.
func (b *binding) watchEnqueue(now hook.Instant, ms []hook.Message, vs []hook.Verdict) {
	b.shadow.compare(call{binding: b, at: atEnqueue, now: now, ms: ms, vs: vs})
}

func (b *binding) watchHead(now hook.Instant, ms []hook.Message, vs []hook.Verdict) {
	c := call{binding: b, now: now, ms: ms, vs: vs}
	c.forEachRun(whenThere, b.shadow.compare)
}

// compare asks a shadow, and counts verdicts that differ from those in force.
func (p *policy) compare(c call) {
	c.shadowing = true
	v := p.active.Load()
	if v == nil {
		return
	}
	const atOnce = 64
	for from := 0; from < len(c.ms); from += atOnce {
		v.compareSome(c.slice(from, min(from+atOnce, len(c.ms))))
	}
}

func (v *version) compareSome(c call) {
	var buf [64]hook.Verdict
	inForce := c.vs
	c.vs = buf[:len(c.ms)]
	if c.at != atEnqueue {
		for i := range c.ms {
			c.vs[i].Deadline, c.vs[i].State = c.ms[i].Deadline, c.ms[i].State
		}
	}
	v.ask(&c)
	differing := 0
	for i := range inForce {
		if !alike(&inForce[i], &c.vs[i]) {
			differing++
		}
	}
	v.policy.compared.Add(uint64(len(inForce)))
	v.policy.differing.Add(uint64(differing))
}

// alike reports whether two verdicts have the same effect. Deadlines in the same
// millisecond are equal.
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
		return millis(a.Deadline) == millis(b.Deadline) && a.AskHead == b.AskHead
	}
	return true
}
