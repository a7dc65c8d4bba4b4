package chain

import (
	"slices"

	"github.com/curfewmq/curfew/sdk/hook"
)

// Rehearsal configures the differences between the chain of a simulation and the chain of queues.
type Rehearsal struct {
	// Replace returns a replacement for a plugin of the chain; nil keeps the plugin. A nil Replace keeps all plugins.
	Replace func(hook.Plugin) hook.Plugin
	// Observe is called after a plugin has decided about messages, with the verdicts before and after it. The chain has not
	// checked the latter yet. The slices are valid during the call. nil means no call.
	Observe func(plugin string, before, after []hook.Verdict)
	// OnPanic is as in [Options].
	OnPanic func(plugin, point string, v any, stack []byte)
}

// Rehearse returns a chain with the plugins of c, for queues that do not exist. It decides like c, and counts its faults separately.
// It has no exchange types and no filters.
func (c *Chain) Rehearse(o Rehearsal) *Chain {
	r := &Chain{
		plugins: make([]pluginEntry, len(c.plugins)), arguments: c.arguments, argumentOwners: c.argumentOwners, strategies: c.strategies,
		owners: make(map[string]*pluginEntry, len(c.owners)), defaultStrategy: c.defaultStrategy, holdHeaders: c.holdHeaders, observe: o.Observe,
	}
	twins := make(map[*pluginEntry]*pluginEntry, len(c.plugins)) // maps nil to nil
	for i := range c.plugins {
		p, was := &r.plugins[i], &c.plugins[i]
		twins[was] = p
		p.name, p.plugin, p.dynamic, p.onPanic = was.name, was.plugin, was.dynamic, o.OnPanic
		if o.Replace == nil {
			continue
		}
		if other := o.Replace(was.plugin); other != nil {
			p.plugin = other
		}
	}
	r.expiration, r.holdReader = twins[c.expiration], twins[c.holdReader]
	for i := range r.plugins {
		r.plugins[i].expiration = r.expiration
	}
	for name, p := range c.owners {
		r.owners[name] = twins[p]
	}
	for _, p := range c.dynamic {
		r.dynamic = append(r.dynamic, twins[p])
	}
	return r
}

// watched returns a plugin's hooks, wrapped so that they report their decisions.
func (c *Chain) watched(p *pluginEntry, hs hook.Hooks) hook.Hooks {
	watch := func(call batchFunc) batchFunc {
		if call == nil {
			return nil
		}
		return func(now hook.Instant, ms []hook.Message, vs []hook.Verdict) {
			before := slices.Clone(vs)
			call(now, ms, vs)
			c.observe(p.name, before, vs)
		}
	}
	hs.OnEnqueue, hs.OnHead, hs.OnRequeue, hs.OnReturn = watch(hs.OnEnqueue), watch(hs.OnHead), watch(hs.OnRequeue), watch(hs.OnReturn)
	return hs
}
