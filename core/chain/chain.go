// Package chain makes one set of callbacks out of the configured plugins.
//
// Plugins are asked in the order of the configuration, each seeing what its
// predecessor decided; Refuse ends the chain for a message, otherwise the last
// word wins. Only the queue's expiry strategy may move a deadline later or set
// a message's state. A plugin that panics, or says what its hook point has no
// use for, is counted and leaves the verdicts it was given: no message is lost
// or expires early because a plugin failed.
package chain

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/curfewmq/curfew/sdk/hook"
)

// strategyArgument is how a client chooses a queue's expiry strategy.
const strategyArgument = "x-expiry-strategy"

// Named is a configured plugin under the name the configuration gives it.
type Named struct {
	Name   string
	Plugin hook.Plugin
}

// Options are what a chain needs of its broker.
type Options struct {
	// OnPanic is told of every panic that was contained, from the goroutine it
	// happened on; v is what was panicked with. It may be nil. A plugin can
	// panic with every batch, so whoever logs limits the rate.
	OnPanic func(plugin, point string, v any, stack []byte)
}

// Chain is the plugins of a broker in their order. It does not change after
// [New] and may be used from any goroutine.
type Chain struct {
	parts      []pluginEntry
	arguments  []hook.Argument
	strategies []string                // those that are always there
	owners     map[string]*pluginEntry // of these
	dynamic    []*pluginEntry          // have others, which come and go
	fallback   string
	none       Hooks // for queues that no plugin has anything to do for
}

// New puts the plugins together. Its error joins everything that is wrong.
func New(plugins []Named, o Options) (*Chain, error) {
	if len(plugins) > math.MaxInt8 { // Hooks counts steps in bytes
		return nil, fmt.Errorf("plugins.chain: %d plugins, at most %d", len(plugins), math.MaxInt8)
	}
	c := &Chain{parts: make([]pluginEntry, len(plugins)), owners: make(map[string]*pluginEntry)}
	var errs []error
	for i, n := range plugins {
		if n.Plugin == nil {
			return nil, fmt.Errorf("plugins.%s: no plugin", n.Name)
		}
		if slices.ContainsFunc(plugins[:i], func(o Named) bool { return o.Name == n.Name }) {
			errs = append(errs, fmt.Errorf("plugins.chain: %s stands in it twice", n.Name))
			continue
		}
		p := &c.parts[i]
		p.name, p.plugin, p.onPanic = n.Name, n.Plugin, o.OnPanic
		errs = append(errs, c.addArguments(p), c.addStrategies(p))
	}
	errs = append(errs, c.chooseDefault())
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	return c, nil
}

func (c *Chain) addArguments(p *pluginEntry) error {
	var errs []error
	for _, a := range p.plugin.Arguments() {
		if a.Name == strategyArgument || slices.ContainsFunc(c.arguments, func(o hook.Argument) bool { return o.Name == a.Name }) {
			errs = append(errs, fmt.Errorf("plugins.%s: the argument %s already has a meaning", p.name, a.Name))
			continue
		}
		c.arguments = append(c.arguments, p.contained(a))
	}
	return errors.Join(errs...)
}

func (c *Chain) addStrategies(p *pluginEntry) error {
	s, ok := p.plugin.(hook.Strategist)
	if !ok {
		return nil
	}
	if _, ok := s.(hook.Dynamic); ok {
		c.dynamic = append(c.dynamic, p)
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

// chooseDefault takes the first default that a plugin names. Any plugin's
// strategy may be another's default, so all must be known by then.
func (c *Chain) chooseDefault() error {
	for i := range c.parts {
		p := &c.parts[i]
		s, ok := p.plugin.(hook.Strategist)
		if !ok {
			continue
		}
		name := s.DefaultStrategy()
		if name != "" && c.owner(name) == nil {
			return fmt.Errorf("plugins.%s: strategy: %q is not an expiry strategy; there are %s", p.name, name, strings.Join(c.Strategies(), ", "))
		}
		if c.fallback == "" {
			c.fallback = name
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
		const enough = 64 // a name is quoted no further: replies are short
		return &hook.ArgError{Term: fmt.Sprintf("unknown expiry strategy '%.*s', expected one of %s", enough, name, strings.Join(c.Strategies(), ", "))}
	}
	return nil
}

// Arguments lists the queue arguments the plugins give a meaning to, and
// x-expiry-strategy when one of them offers strategies. A Check that panics
// refuses the value. The slice belongs to the chain.
func (c *Chain) Arguments() []hook.Argument { return c.arguments }

// Strategies lists the names x-expiry-strategy may have at the moment. The slice
// belongs to the chain.
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

// Offers reports whether there is a strategy of that name at the moment.
func (c *Chain) Offers(strategy string) bool { return c.owner(strategy) != nil }

// owner finds who offers a strategy, nil if nobody does.
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

// OnStrategyChange sets what is called when a strategy came, went, or became
// another; see [hook.Dynamic]. It is called once.
func (c *Chain) OnStrategyChange(changed func(strategy string, recompute bool)) {
	for _, p := range c.dynamic {
		p.plugin.(hook.Dynamic).OnChange(changed) //nolint:forcetypeassert // that is why it is in the list
	}
}

// DefaultStrategy is the strategy of queues that name none; "" when no plugin
// offers one.
func (c *Chain) DefaultStrategy() string { return c.fallback }

// Attach asks the plugins what they do for q. It is called when a queue comes
// to be and again when its settings change. The plugins may keep q.
func (c *Chain) Attach(q hook.Queue) *Hooks {
	h, _ := c.attach(q)
	return h
}

// Memo remembers the hooks that one chain has for queues that are alike. The
// zero value is empty; any goroutine may use it.
type Memo struct{ hooks atomic.Pointer[Hooks] }

// AttachLike is Attach for one of several queues of the same vhost, type,
// strategy and settings, which share memo: if every plugin allows it, they
// share one Hooks.
func (c *Chain) AttachLike(q hook.Queue, memo *Memo) *Hooks {
	if h := memo.hooks.Load(); h != nil {
		return h
	}
	h, shared := c.attach(q)
	if shared {
		memo.hooks.Store(h)
	}
	return h
}

// attach also reports whether every plugin lets queues like q share the Hooks.
func (c *Chain) attach(q hook.Queue) (*Hooks, bool) {
	var h Hooks
	shared := true
	owner := c.owner(q.Strategy())
	var last idleFunc                 // the strategy's
	var head, requeue, restamp []step // collected apart: the steps of a point lie together
	for i := range c.parts {
		p := &c.parts[i]
		hs := p.attach(q)
		shared = shared && hs.Shared
		h.Length, h.Bytes = h.Length.Min(hs.Length), h.Bytes.Min(hs.Bytes)
		h.steps = appendStep(h.steps, hs.OnEnqueue, p)
		head = appendStep(head, hs.OnHead, p)
		strategy := p == owner && hs.Strategy
		if hs.OnIdle != nil && !strategy {
			h.idle = append(h.idle, idleStep{call: hs.OnIdle, part: p})
		}
		if !strategy {
			continue
		}
		h.strategy, last = p, hs.OnIdle
		requeue = appendStep(requeue, hs.OnRequeue, p)
		restamp, h.Restamps = appendStep(restamp, hs.OnRestamp, p), restamps(&hs)
		if hs.Scan <= hook.ScanLazy {
			h.Scan = hs.Scan
		}
	}
	if last != nil {
		h.idle = append(h.idle, idleStep{call: last, part: h.strategy})
	}
	return c.finish(h, head, requeue, restamp), shared
}

// restamps says when a strategy's OnRestamp is asked.
func restamps(hs *hook.Hooks) Restamps {
	switch {
	case hs.OnRestamp == nil:
		return NeverRestamp
	case hs.RestampAsked:
		return WhenAsked
	}
	return OnChange
}

func appendStep(steps []step, call batchFunc, p *pluginEntry) []step {
	if call == nil {
		return steps
	}
	return append(steps, step{call: call, part: p})
}

// finish lays the steps out; queues with nothing to do share one Hooks.
func (c *Chain) finish(h Hooks, head, requeue, restamp []step) *Hooks {
	h.enqueues, h.heads = uint8(len(h.steps)), uint8(len(head))
	h.WantsEnqueue, h.WantsHead = len(h.steps) > 0, len(head) > 0
	h.WantsRequeue, h.WantsIdle = len(requeue) > 0, len(h.idle) > 0
	h.steps = slices.Concat(h.steps, head, requeue, restamp)
	h.idle = slices.Clip(h.idle)
	if len(h.steps)+len(h.idle) == 0 && h.Scan == 0 && !h.Length.Set() && !h.Bytes.Set() {
		return &c.none
	}
	return &h
}
