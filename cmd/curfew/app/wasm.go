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
	"sync/atomic"

	"github.com/curfewmq/curfew/core/backup"
	"github.com/curfewmq/curfew/core/clock"
	"github.com/curfewmq/curfew/core/config"
	"github.com/curfewmq/curfew/core/mgmt"
	"github.com/curfewmq/curfew/core/mgmt/definitions"
	"github.com/curfewmq/curfew/core/queue"
	"github.com/curfewmq/curfew/core/store"
	"github.com/curfewmq/curfew/core/telemetry"
	"github.com/curfewmq/curfew/plugins/wasm"
	"github.com/curfewmq/curfew/sdk/hook"
)

// policyHost is the host of WebAssembly policies, and its work outside queues' turns. The host is nil if the plugin is not in the
// chain.
type policyHost struct {
	*wasm.Host
	strategies func() []string             // all current ones
	store      atomic.Pointer[store.Store] // nil: it is not open yet
	work       sync.WaitGroup
}

// openPolicies loads the policies of the configuration and those that were loaded at runtime. It comes before the data directory
// is opened, so that queues find the strategies they chose.
func openPolicies(s setup) (*policyHost, error) {
	p := &policyHost{strategies: s.chain.Strategies}
	for _, plugin := range s.Plugins {
		if h, ok := plugin.Plugin.(*wasm.Host); ok {
			p.Host = h
		}
	}
	if p.Host == nil {
		return p, nil
	}
	return p, p.Open(wasm.Env{
		Log:       s.log.With(slog.String("plugin", "wasm")),
		Store:     p.modulesStore(s),
		Shared:    s.Cluster.On(),
		CacheDir:  filepath.Join(policyFolder(s.Data.Dir), "compiled"),
		Go:        p.work.Go,
		Queues:    p.queues,
		Undecided: p.undecided,
		Clock:     clock.New(),
		MaxHold:   longestHold(s.Plugins),
		Nearest:   config.Nearest,
		Notice:    noticeTo(s.telemetry),
	})
}

// modulesStore returns where the modules are saved that are loaded at runtime.
func (p *policyHost) modulesStore(s setup) wasm.Store {
	if s.Cluster.On() {
		return clusterModules{&p.store}
	}
	return wasm.Dir(policyFolder(s.Data.Dir))
}

// policyFolder returns the folder of a data directory with the policies that were loaded at runtime.
func policyFolder(dir string) string { return filepath.Join(dir, backup.PolicyFolder) }

// longestHold returns how long messages may be held, in milliseconds, by the plugin that limits it; absent without such a plugin.
func longestHold(plugins []config.Plugin) (most hook.Limit) {
	for _, p := range plugins {
		if l, ok := p.Plugin.(interface{ MaxHold() hook.Limit }); ok {
			most = most.Min(l.MaxHold())
		}
	}
	return most
}

// changes are the events for changes of a policy.
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

// undecided counts the messages in the queues of a strategy that it is to be asked about again.
func (p *policyHost) undecided(strategy string) (n int) {
	look := func(q *queue.Queue) { n += q.Stats().Undecided } // one closure for all queues
	for q := range p.queuesOf(strategy) {
		_ = q.Look(look) // it fails for a queue that was deleted
	}
	return n
}

// queuesOf yields the queues that chose a strategy.
func (p *policyHost) queuesOf(strategy string) iter.Seq[*queue.Mailbox] {
	return func(yield func(*queue.Mailbox) bool) {
		st := p.store.Load()
		if st == nil {
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

// close ends the host after the queues.
func (p *policyHost) close() error {
	if p == nil || p.Host == nil {
		return nil
	}
	p.work.Wait()
	if err := p.Close(); err != nil {
		return errors.Join(errors.New("plugins.wasm"), err)
	}
	return nil
}

// modules returns the management API's access to policies; nil without a host.
func (p *policyHost) modules() mgmt.Modules {
	if p == nil || p.Host == nil {
		return nil
	}
	return moduleAdmin{p.Host, p.strategies}
}

// moduleAdmin adapts a host to the management API.
type moduleAdmin struct {
	*wasm.Host
	strategies func() []string
}

var (
	_ mgmt.Modules        = moduleAdmin{}
	_ definitions.Modules = moduleAdmin{}
)

// List implements [mgmt.Modules].
func (a moduleAdmin) List() []json.RawMessage {
	var all []json.RawMessage
	for _, i := range a.Host.List() {
		b, err := json.Marshal(i)
		if err != nil {
			panic(fmt.Errorf("what is known of a policy: %w", err)) // its fields are plain, or were checked
		}
		all = append(all, b)
	}
	return all
}

// Carried implements [definitions.Modules].
func (a moduleAdmin) Carried() []definitions.Carried {
	var all []definitions.Carried
	for _, c := range a.Host.Carried() {
		fuel, err := c.Options.Fuel.MarshalText()
		if err != nil {
			panic(fmt.Errorf("fuel: %w", err)) // it never fails
		}
		all = append(all, definitions.Carried{Fixed: c.Origin == wasm.Configured, Module: mgmt.Module{
			Name: c.Name, Module: c.Module, Digest: c.Options.Digest, Config: c.Options.Config, Grants: c.Options.Grants,
			Fuel: string(fuel), OnError: c.Options.OnError.String(),
		}})
	}
	return all
}

// Canonical implements [definitions.Modules].
func (moduleAdmin) Canonical(m mgmt.Module) mgmt.Module {
	o, err := optionsOf(&m)
	if err != nil {
		return m
	}
	fuel, err := o.Fuel.MarshalText()
	if err != nil {
		panic(fmt.Errorf("fuel: %w", err)) // it never fails
	}
	m.Fuel, m.OnError = string(fuel), o.OnError.String()
	return m
}

// Load implements [mgmt.Modules].
func (a moduleAdmin) Load(m mgmt.Module) (fresh bool, warnings []string, err error) {
	o, err := optionsOf(&m)
	if err != nil {
		return false, nil, err
	}
	if all := a.strategies(); m.Shadow != "" && !slices.Contains(all, m.Shadow) {
		const enough = 64 // of a name
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

// optionsOf returns the settings of an upload.
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

// Reload implements [mgmt.Modules].
func (a moduleAdmin) Reload(name string, recompute bool) (warnings []string, err error) {
	i, err := a.Host.Reload(name, recompute)
	return i.Warnings, moduleError(err)
}

// Unload implements [mgmt.Modules].
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
