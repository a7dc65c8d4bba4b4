package app

import (
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/curfewmq/curfew/core/broker"
	"github.com/curfewmq/curfew/core/clock"
	"github.com/curfewmq/curfew/core/config"
	"github.com/curfewmq/curfew/core/metrics"
	"github.com/curfewmq/curfew/core/mgmt"
	"github.com/curfewmq/curfew/core/mgmt/definitions"
	"github.com/curfewmq/curfew/core/queue"
	"github.com/curfewmq/curfew/core/store"
	"github.com/curfewmq/curfew/core/telemetry"
	"github.com/curfewmq/curfew/core/wlog"
	"github.com/curfewmq/curfew/plugins/wasm"
	"github.com/curfewmq/curfew/sdk/hook"
)

// policyHost adapts the host of WebAssembly policies to the broker, and runs its work outside queues' turns.
// It implements [broker.Policies].
type policyHost struct {
	host *wasm.Host
	env  broker.PolicyEnv
	work sync.WaitGroup
}

var _ broker.Policies = (*policyHost)(nil)

// hostOf returns the host in a chain; nil if the plugin is not in it.
func hostOf(plugins []config.Plugin) *wasm.Host {
	for _, p := range plugins {
		if h, ok := p.Plugin.(*wasm.Host); ok {
			return h
		}
	}
	return nil
}

func (p *policyHost) Open(env broker.PolicyEnv) error {
	p.env = env
	return p.host.Open(wasm.Env{
		Log:       env.Log.With(slog.String("plugin", "wasm")),
		Store:     p.modulesStore(),
		Shared:    env.Clustered,
		CacheDir:  filepath.Join(env.Dir, "compiled"),
		Go:        p.work.Go,
		Queues:    p.queues,
		Undecided: p.undecided,
		Clock:     clock.New(),
		MaxHold:   longestHold(env.Plugins),
		Nearest:   config.Nearest,
		Notice:    noticeTo(env.Recorder),
	})
}

// modulesStore returns the store for modules that are loaded at runtime.
func (p *policyHost) modulesStore() wasm.Store {
	if p.env.Clustered {
		return clusterModules{p.env.Store}
	}
	return wasm.Dir(p.env.Dir)
}

// longestHold returns how long messages may be held, in milliseconds, according to the plugin that limits it; absent without such a plugin.
func longestHold(plugins []config.Plugin) (most hook.Limit) {
	for _, p := range plugins {
		if l, ok := p.Plugin.(interface{ MaxHold() hook.Limit }); ok {
			most = most.Min(l.MaxHold())
		}
	}
	return most
}

// changes maps changes of a policy to events.
var changes = map[wasm.Change]telemetry.Kind{
	wasm.PolicyLoaded: telemetry.ModuleLoaded, wasm.PolicyReloaded: telemetry.ModuleReloaded, wasm.PolicyRolledBack: telemetry.ModuleRolledBack,
	wasm.PolicyUnloaded: telemetry.ModuleUnloaded, wasm.BreakerOpened: telemetry.BreakerOpened, wasm.BreakerClosed: telemetry.BreakerClosed,
}

// noticeTo returns a function that records changes of policies as events.
func noticeTo(r *telemetry.Recorder) func(wasm.Notice) {
	return func(n wasm.Notice) {
		r.Notice(telemetry.Notice{
			Kind: changes[n.Change], Name: n.Policy, Digest: n.Digest, Previous: n.Previous, Beside: n.Beside, Until: n.Until,
		})
	}
}

// queues counts the queues that chose a strategy.
func (p *policyHost) queues(strategy string) (n int) {
	for range p.queuesOf(strategy) {
		n++
	}
	return n
}

// undecided counts the messages in a strategy's queues about which the strategy still has to be called.
func (p *policyHost) undecided(strategy string) (n int) {
	look := func(q *queue.Queue) { n += q.Stats().Undecided } // one closure for all queues
	for q := range p.queuesOf(strategy) {
		_ = q.Look(look) // fails for a queue that was deleted
	}
	return n
}

// queuesOf yields the queues that chose a strategy.
func (p *policyHost) queuesOf(strategy string) iter.Seq[*queue.Mailbox] {
	return func(yield func(*queue.Mailbox) bool) {
		st, ok := p.env.Store()
		if !ok {
			return
		}
		for _, v := range st.VHosts() {
			for _, q := range v.Queues() {
				if q.Config().Strategy == strategy && !yield(q) {
					return
				}
			}
		}
	}
}

func (p *policyHost) Close() error {
	p.work.Wait()
	if err := p.host.Close(); err != nil {
		return errors.Join(errors.New("plugins.wasm"), err)
	}
	return nil
}

func (p *policyHost) Modules() mgmt.Modules { return moduleAdmin{p.host, p.env.Strategies} }

func (p *policyHost) Measure() (all []metrics.Policy) {
	for _, i := range p.host.List() {
		one := metrics.Policy{
			Name: i.Name, Digest: i.Digest, Loaded: i.Loaded, Calls: i.Calls, Messages: i.Messages, Fuel: i.FuelUsed, FuelLimit: i.MaxFuel,
			Failures: i.Errors, Open: i.Breaker == "open", Instances: i.Instances, Slots: i.Slots, Memory: i.Memory, Own: i.Counters,
		}
		if i.Shadow != nil {
			one.Shadow, one.Compared, one.Differing = true, i.Shadow.Compared, i.Shadow.Differing
		}
		all = append(all, one)
	}
	return all
}

// moduleAdmin adapts a host to the management API. It implements [definitions.Modules] and [mgmt.Modules].
type moduleAdmin struct {
	*wasm.Host
	strategies func() []string
}

var (
	_ mgmt.Modules        = moduleAdmin{}
	_ definitions.Modules = moduleAdmin{}
)

func (a moduleAdmin) List() []json.RawMessage {
	var all []json.RawMessage
	for _, i := range a.Host.List() {
		b, err := json.Marshal(i)
		if err != nil {
			panic(fmt.Errorf("what is known of a policy: %w", err)) // its fields are plain, or have been checked
		}
		all = append(all, b)
	}
	return all
}

func (a moduleAdmin) Carried() []definitions.Carried {
	var all []definitions.Carried
	for _, c := range a.Host.Carried() {
		fuel, err := c.Options.Fuel.MarshalText()
		if err != nil {
			panic(fmt.Errorf("fuel: %w", err)) // never fails
		}
		all = append(all, definitions.Carried{Fixed: c.Origin == wasm.Configured, Module: mgmt.Module{
			Name: c.Name, Module: c.Module, Digest: c.Options.Digest, Config: c.Options.Config, Grants: c.Options.Grants,
			Fuel: string(fuel), OnError: c.Options.OnError.String(),
		}})
	}
	return all
}

func (moduleAdmin) Canonical(m mgmt.Module) mgmt.Module {
	o, err := optionsOf(&m)
	if err != nil {
		return m
	}
	fuel, err := o.Fuel.MarshalText()
	if err != nil {
		panic(fmt.Errorf("fuel: %w", err)) // never fails
	}
	m.Fuel, m.OnError = string(fuel), o.OnError.String()
	return m
}

func (a moduleAdmin) Load(m mgmt.Module) (fresh bool, warnings []string, err error) {
	o, err := optionsOf(&m)
	if err != nil {
		return false, nil, err
	}
	if all := a.strategies(); m.Shadow != "" && !slices.Contains(all, m.Shadow) {
		const enough = 64 // bytes of a name
		return false, nil, &mgmt.ModuleError{Text: fmt.Sprintf("shadow: unknown expiry strategy '%.*s', expected one of %s", enough, m.Shadow, strings.Join(all, ", "))}
	}
	_, known := a.Info(m.Name)
	var i wasm.Info
	if m.Shadow != "" {
		i, err = a.Shadow(m.Name, m.Module, o, m.Shadow)
	} else {
		i, err = a.Host.Load(m.Name, m.Module, o)
	}
	return !known, i.Warnings, moduleError(err)
}

// optionsOf returns the options in an upload.
func optionsOf(m *mgmt.Module) (wasm.Options, error) {
	o := wasm.Options{Config: m.Config, Grants: m.Grants, Digest: m.Digest, Recompute: m.Recompute}
	if err := o.Fuel.UnmarshalText([]byte(m.Fuel)); err != nil {
		return o, &mgmt.ModuleError{Text: "fuel: " + err.Error()}
	}
	if err := o.OnError.UnmarshalText([]byte(m.OnError)); err != nil {
		return o, &mgmt.ModuleError{Text: "on_error: " + err.Error()}
	}
	return o, nil
}

func (a moduleAdmin) Reload(name string, recompute bool) (warnings []string, err error) {
	i, err := a.Host.Reload(name, recompute)
	return i.Warnings, moduleError(err)
}

func (a moduleAdmin) Unload(name string, force bool) error {
	return moduleError(a.Host.Unload(name, force))
}

// moduleError classifies an error for the management API.
func moduleError(err error) error {
	switch {
	case err == nil || errors.Is(err, wasm.ErrNotStored):
		return err
	case errors.Is(err, wasm.ErrUnknown):
		return &mgmt.ModuleError{Kind: mgmt.NoModule, Text: err.Error()}
	case errors.Is(err, wasm.ErrInUse), errors.Is(err, wasm.ErrConfigured):
		return &mgmt.ModuleError{Kind: mgmt.ModuleInUse, Text: err.Error()}
	}
	return &mgmt.ModuleError{Text: err.Error()}
}

// clusterModules is the [wasm.Store] of a node of a cluster: the registry, which all nodes
// follow. Only the registry's owner saves and deletes.
type clusterModules struct {
	store func() (st *store.Store, ok bool)
}

var _ wasm.Store = clusterModules{}

func (c clusterModules) registry() *store.Registry {
	if st, ok := c.store(); ok {
		return st.Registry()
	}
	return nil
}

type moduleOptions struct {
	wasm.Options
	// Recompute is not stored by a single broker for its next start. Here other nodes have to act on it.
	Recompute bool `json:"recompute,omitempty"`
}

func (c clusterModules) Save(k wasm.StoredPolicy) error {
	r := c.registry()
	if r == nil {
		return wlog.ErrUnwritten
	}
	options, err := json.Marshal(moduleOptions{k.Options, k.Options.Recompute})
	if err != nil {
		return err
	}
	return r.SaveModule(k.Name, options, k.Module)
}

func (c clusterModules) Delete(name string) error {
	r := c.registry()
	if r == nil {
		return wlog.ErrUnwritten
	}
	_, err := r.DeleteModule(name)
	return err
}

// LoadAll implements [wasm.Store]. It returns nothing, because the registry's modules are followed from the node's start on.
func (clusterModules) LoadAll() ([]wasm.StoredPolicy, error) { return nil, nil }

// Follow implements [broker.Policies].
func (p *policyHost) Follow(all []*store.Module) {
	p.host.Follow(func() []wasm.StoredPolicy {
		if r := (clusterModules{p.env.Store}).registry(); r != nil {
			all = r.Modules()
		}
		stored := make([]wasm.StoredPolicy, len(all))
		for i, m := range all {
			stored[i] = storedModule(m)
		}
		return stored
	})
}

// storedModule reads a module of the registry.
func storedModule(m *store.Module) wasm.StoredPolicy {
	var o moduleOptions
	if err := json.Unmarshal(m.Options, &o); err != nil {
		return wasm.StoredPolicy{Name: m.Name, Revision: m.Revision, Damage: fmt.Errorf("the settings of module %q: %w", m.Name, err)}
	}
	o.Options.Recompute = o.Recompute
	return wasm.StoredPolicy{Name: m.Name, Module: m.Bytes, Options: o.Options, Revision: m.Revision}
}
