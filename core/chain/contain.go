package chain

import (
	"runtime/debug"
	"sync/atomic"
	"time"

	"github.com/curfewmq/curfew/sdk/hook"
)

// hookPoint is one of the broker's calls into a plugin.
type hookPoint uint8

const (
	onEnqueue hookPoint = iota
	onHead
	onRequeue
	onRestamp
	onIdle
	onGone
	onStay
	onReturn
	onAttach
	onCheck
	onNew
	onBind
	onUnbind
	onPrepare
	onRoute
	onFilter
	onExpiration
	onSchedule
	onPlan
	onReleased
	onReadHold
	hookPoints
)

func (p hookPoint) String() string {
	return [hookPoints]string{
		"OnEnqueue", "OnHead", "OnRequeue", "OnRestamp", "OnIdle", "OnGone", "OnStay", "OnReturn", "Attach", "Check",
		"New", "Bind", "Unbind", "Prepare", "Route", "Filter", "CheckExpiration",
		"Schedule", "Plan", "Released", "ReadHold",
	}[p]
}

// pluginEntry is one plugin of the chain. Any goroutine may use it.
type pluginEntry struct {
	name    string
	plugin  hook.Plugin
	dynamic bool // a [guest.Dynamic]
	onPanic func(plugin, point string, v any, stack []byte)

	expiration *pluginEntry // the plugin that reads the expiration property, if any

	panics  [hookPoints]atomic.Uint64
	invalid [hookPoints]atomic.Uint64 // verdicts that were replaced by the previous ones, and nonexistent destinations

	filtered atomic.Uint64 // messages that its filters did not admit
}

// Fault counts a plugin's faults at one hook point since the start.
type Fault struct {
	Plugin, Point string
	Panics        uint64 // calls that panicked
	Verdicts      uint64 // invalid verdicts, which were replaced by the previous ones, and nonexistent destinations
}

// Faults returns the hook points at which a plugin had faults.
func (c *Chain) Faults() []Fault {
	var fs []Fault
	for i := range c.plugins {
		p := &c.plugins[i]
		for at := range hookPoints {
			f := Fault{Plugin: p.name, Point: at.String(), Panics: p.panics[at].Load(), Verdicts: p.invalid[at].Load()}
			if f.Panics > 0 || f.Verdicts > 0 {
				fs = append(fs, f)
			}
		}
	}
	return fs
}

// contain is deferred around a call into the plugin. It recovers and counts a panic.
func (p *pluginEntry) contain(at hookPoint) {
	v := recover()
	if v == nil {
		return
	}
	p.panics[at].Add(1)
	if p.onPanic != nil {
		p.onPanic(p.name, at.String(), v, debug.Stack())
	}
}

// run calls the plugin and reports whether it returned. After a panic, vs contains arbitrary values.
func (t *step) run(p hookPoint, now hook.Instant, ms []hook.Message, vs []hook.Verdict) (returned bool) {
	defer t.plugin.contain(p)
	if scribbles {
		lent := lend(ms)
		defer scribble(lent)
		ms = lent
	}
	t.call(now, ms, vs)
	return true
}

func (t *rareStep) runIdle(now hook.Instant, idle time.Duration, v *hook.Verdict) (returned bool) {
	defer t.plugin.contain(onIdle)
	t.idle(now, idle, v)
	return true
}

func (t *rareStep) runReturn(now hook.Instant, ms []hook.Message, vs []hook.Verdict) (returned bool) {
	return (&step{call: t.onReturn, plugin: t.plugin}).run(onReturn, now, ms, vs)
}

func (t *rareStep) runStay(now hook.Instant, ms []hook.Message, vs []hook.Verdict) (returned bool) {
	return (&step{call: t.stay, plugin: t.plugin}).run(onStay, now, ms, vs)
}

func (t *rareStep) runGone(ms []hook.Message) {
	defer t.plugin.contain(onGone)
	if scribbles {
		lent := lend(ms)
		defer scribble(lent)
		ms = lent
	}
	t.gone(ms)
}

// attach asks the plugin for its hooks. After a panic there are none.
func (p *pluginEntry) attach(q hook.Queue) (hs hook.Hooks) {
	defer p.contain(onAttach)
	return p.plugin.Attach(q)
}

// strategies returns the strategies that the plugin offers at present; none after a panic.
func (p *pluginEntry) strategies() []string {
	defer p.contain(onAttach)
	return p.plugin.(hook.Strategist).Strategies() //nolint:forcetypeassert // called for plugins in dynamic
}
