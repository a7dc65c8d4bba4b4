// Package chain combines the hooks of the configured plugins into one set per queue.
//
// Plugins are asked in the order of the configuration, and each sees the
// verdicts of the plugins before it. Refuse ends the chain for a message;
// otherwise the last plugin's verdict applies. Only the queue's expiry strategy
// may move a deadline later or set a message's state. Panics and invalid
// verdicts are counted, and the previous verdicts stay: no message is lost or
// expires early because a plugin failed.
package chain

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/curfewmq/curfew/sdk/hook"
	"github.com/curfewmq/curfew/sdk/hook/guest"
)

// strategyArgument is the queue argument that chooses an expiry strategy.
const strategyArgument = "x-expiry-strategy"

// Named is a plugin and its name in the configuration.
type Named struct {
	Name   string
	Plugin hook.Plugin
}

// Options configure a chain.
type Options struct {
	// OnPanic is called for every contained panic, on the goroutine that panicked; v is the
	// panic's value. nil means no call. A plugin may panic with every batch, so a callback
	// that logs must limit the rate.
	OnPanic func(plugin, point string, v any, stack []byte)
	// Reserved are arguments that plugins cannot declare, because the core uses them.
	Reserved []string
}

// Chain holds the broker's plugins in their order. It does not change after [New]; any goroutine may use it.
type Chain struct {
	plugins         []pluginEntry
	arguments       []hook.Argument
	argumentOwners  map[string]string       // by argument: "plugins.NAME"
	strategies      []string                // of plugins whose strategies never change
	owners          map[string]*pluginEntry // by strategy
	dynamic         []*pluginEntry          // plugins that may add and remove strategies
	defaultStrategy string
	expiration      *pluginEntry // the plugin that reads the expiration property; nil: the property has no effect
	holdReader      *pluginEntry // the plugin that reads holdHeaders; nil: there are none
	holdHeaders     []string
	noHooks         Hooks                                             // shared by all queues for which no plugin has hooks
	observe         func(plugin string, before, after []hook.Verdict) // of a rehearsal; nil means no call
	exchanges
}

// New returns a chain of the plugins. Its error joins all problems.
func New(plugins []Named, o Options) (*Chain, error) {
	if len(plugins) > math.MaxInt8 { // Hooks counts steps in int8-sized fields
		return nil, fmt.Errorf("plugins.chain: %d plugins, at most %d", len(plugins), math.MaxInt8)
	}
	c := &Chain{plugins: make([]pluginEntry, len(plugins)), owners: make(map[string]*pluginEntry), argumentOwners: make(map[string]string)}
	var errs []error
	for i, n := range plugins {
		if n.Plugin == nil {
			return nil, fmt.Errorf("plugins.%s: no plugin", n.Name)
		}
		if slices.ContainsFunc(plugins[:i], func(o Named) bool { return o.Name == n.Name }) {
			errs = append(errs, fmt.Errorf("plugins.chain: %s is listed twice", n.Name))
			continue
		}
		p := &c.plugins[i]
		p.name, p.plugin, p.onPanic = n.Name, n.Plugin, o.OnPanic
		errs = append(errs, c.addArguments(p, o.Reserved), c.addStrategies(p), c.addExchanges(p), c.addExpiration(p), c.addHoldReader(p))
	}
	for i := range c.plugins {
		c.plugins[i].expiration = c.expiration
	}
	c.listInnerTypes()
	errs = append(errs, c.chooseDefault(), c.checkExchangeArguments(), c.chooseExchangeKeys(o.Reserved))
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	return c, nil
}

func (c *Chain) addStrategies(p *pluginEntry) error {
	s, ok := p.plugin.(hook.Strategist)
	if !ok {
		return nil
	}
	if _, ok := s.(guest.Dynamic); ok {
		c.dynamic, p.dynamic = append(c.dynamic, p), true
		return nil
	}
	var errs []error
	for _, name := range s.Strategies() {
		if o := c.owners[name]; o != nil {
			errs = append(errs, fmt.Errorf("plugins.%s: %s already offers the expiry strategy %q", p.name, o.name, name))
			continue
		}
		c.owners[name] = p
		c.strategies = append(c.strategies, name)
	}
	return errors.Join(errs...)
}

// chooseDefault takes the first default that a plugin names. It runs after all strategies are known, because one plugin's strategy may be
// the default of another.
func (c *Chain) chooseDefault() error {
	for i := range c.plugins {
		p := &c.plugins[i]
		s, ok := p.plugin.(hook.Strategist)
		if !ok {
			continue
		}
		name := s.DefaultStrategy()
		if name != "" && c.owner(name) == nil {
			return fmt.Errorf("plugins.%s: strategy: %q is not an expiry strategy, expected one of %s", p.name, name, strings.Join(c.Strategies(), ", "))
		}
		if c.defaultStrategy == "" {
			c.defaultStrategy = name
		}
	}
	if len(c.strategies)+len(c.dynamic) > 0 {
		c.arguments = append(c.arguments, hook.Argument{Name: strategyArgument, Check: c.checkStrategy})
	}
	return nil
}

func (c *Chain) checkStrategy(v any, _ hook.Args) error {
	if err := hook.CheckString(v); err != nil {
		return err
	}
	if name, _ := v.(string); c.owner(name) == nil {
		const maxQuoted = 64 // replies must be short
		return &hook.ArgError{Term: fmt.Sprintf("unknown expiry strategy '%.*s', expected one of %s", maxQuoted, name, strings.Join(c.Strategies(), ", "))}
	}
	return nil
}

// Arguments returns the plugins' queue arguments, and x-expiry-strategy if a plugin offers strategies. A Check that panics refuses the
// value. The slice belongs to the chain.
func (c *Chain) Arguments() []hook.Argument { return c.arguments }

// Strategies returns the present values of x-expiry-strategy. The slice belongs to the chain.
func (c *Chain) Strategies() []string {
	if len(c.dynamic) == 0 {
		return c.strategies
	}
	all := slices.Clone(c.strategies)
	for _, p := range c.dynamic {
		all = append(all, p.strategies()...)
	}
	return all
}

// Offers reports whether a plugin offers the strategy at present.
func (c *Chain) Offers(strategy string) bool { return c.owner(strategy) != nil }

// owner returns the plugin that offers a strategy; nil = none does.
func (c *Chain) owner(strategy string) *pluginEntry {
	if p := c.owners[strategy]; p != nil {
		return p
	}
	for _, p := range c.dynamic {
		if slices.Contains(p.strategies(), strategy) {
			return p
		}
	}
	return nil
}

// OnStrategyChange sets the callback for strategies that are added, removed or replaced; see [guest.Dynamic]. It must be called at most
// once.
func (c *Chain) OnStrategyChange(changed func(strategy string, recompute bool)) {
	for _, p := range c.dynamic {
		p.plugin.(guest.Dynamic).OnChange(changed) //nolint:forcetypeassert // dynamic has only these
	}
}

// DefaultStrategy is the strategy of queues that name none; "" means that no plugin offers one.
func (c *Chain) DefaultStrategy() string { return c.defaultStrategy }

// Memo caches the hooks of queues with equal settings. The zero value is empty;
// any goroutine may use it.
type Memo struct{ hooks atomic.Pointer[Hooks] }

// Attach asks the plugins for their hooks for q. It is called when a queue is created and again when its settings change. The plugins may
// retain q. Queues of the same vhost, type, strategy and settings pass the same memo: if every plugin allows it, they share one Hooks.
func (c *Chain) Attach(q hook.Queue, memo *Memo) *Hooks {
	if h := memo.hooks.Load(); h != nil {
		return h
	}
	h, shared := c.attach(q)
	if shared {
		memo.hooks.Store(h)
	}
	return h
}

// attach returns the hooks, and whether every plugin allows queues with equal settings to share them.
func (c *Chain) attach(q hook.Queue) (*Hooks, bool) {
	var h Hooks
	shared := true
	owner := c.owner(q.Strategy())
	var strategyIdle idleFunc         // asked last
	var head, requeue, restamp []step // separate, because the steps of one hook point must be adjacent
	for i := range c.plugins {
		p := &c.plugins[i]
		hs := p.attach(q)
		if c.observe != nil {
			hs = c.watched(p, hs)
		}
		shared = shared && hs.Shared
		h.Length, h.Bytes = h.Length.Min(hs.Length), h.Bytes.Min(hs.Bytes)
		h.steps = appendStep(h.steps, hs.OnEnqueue, p)
		head = appendStep(head, hs.OnHead, p)
		strategy := p == owner && hs.Strategy
		if hs.OnGone != nil {
			h.rare = append(h.rare, rareStep{gone: hs.OnGone, stay: hs.OnStay, plugin: p})
		}
		if hs.ReleaseLength.Set() || hs.ReleaseBytes.Set() {
			h.rare = append(h.rare, rareStep{release: &ReleaseLimits{hs.ReleaseLength, hs.ReleaseBytes, hs.DropReleased}, plugin: p})
		}
		if hs.Refuses {
			h.rare = append(h.rare, rareStep{refuses: true, plugin: p})
		}
		if hs.DeadLetters != nil {
			h.rare = append(h.rare, rareStep{deadLetters: hs.DeadLetters, plugin: p})
		}
		if hs.OnReturn != nil {
			h.rare = append(h.rare, rareStep{onReturn: hs.OnReturn, plugin: p})
		}
		if hs.OnIdle != nil && !strategy {
			h.rare = append(h.rare, rareStep{idle: hs.OnIdle, plugin: p})
		}
		if !strategy {
			continue
		}
		h.strategy, strategyIdle, h.DeadlineFromReady = p, hs.OnIdle, hs.DeadlineFromReady
		requeue = appendStep(requeue, hs.OnRequeue, p)
		restamp, h.Restamps = appendStep(restamp, hs.OnRestamp, p), restamps(&hs, p.dynamic)
		if hs.Scan <= hook.ScanLazy {
			h.Scan = hs.Scan
		}
	}
	if strategyIdle != nil {
		h.rare = append(h.rare, rareStep{idle: strategyIdle, plugin: h.strategy})
	}
	h.enqueues, h.heads = uint8(len(h.steps)), uint8(len(head))
	h.WantsEnqueue, h.WantsHead = len(h.steps) > 0, len(head) > 0
	h.WantsRequeue = len(requeue) > 0
	h.steps = slices.Concat(h.steps, head, requeue, restamp)
	h.rare = slices.Clip(h.rare)
	if len(h.steps)+len(h.rare) == 0 && h.Scan == 0 && !h.Length.Set() && !h.Bytes.Set() {
		return &c.noHooks, shared
	}
	return &h, shared
}

// restamps returns the occasions on which a strategy's OnRestamp is called.
func restamps(hs *hook.Hooks, dynamic bool) Restamps {
	switch {
	case hs.OnRestamp == nil:
		return NeverRestamp
	case dynamic:
		return WhenAsked
	}
	return OnChange
}

func appendStep(steps []step, call batchFunc, p *pluginEntry) []step {
	if call == nil {
		return steps
	}
	return append(steps, step{call: call, plugin: p})
}

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
