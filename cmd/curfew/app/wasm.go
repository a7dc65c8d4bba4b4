package app

import (
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/curfewmq/curfew/core/clock"
	"github.com/curfewmq/curfew/core/config"
	"github.com/curfewmq/curfew/core/mgmt"
	"github.com/curfewmq/curfew/core/store"
	"github.com/curfewmq/curfew/core/telemetry"
	"github.com/curfewmq/curfew/plugins/wasm"
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
		Log:      s.log.With(slog.String("plugin", "wasm")),
		Store:    wasm.Dir(filepath.Join(s.Data.Dir, "policies")),
		CacheDir: filepath.Join(s.Data.Dir, "policies", "compiled"),
		Go:       p.work.Go,
		Queues:   p.queues,
		Clock:    clock.New(),
		Nearest:  config.Nearest,
		Notice:   noticeTo(s.telemetry),
	})
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
func (p *policyHost) queues(strategy string) int {
	st := p.store.Load()
	if st == nil {
		return 0
	}
	n := 0
	for _, v := range st.VHosts() {
		for _, q := range v.Queues() {
			if q.Config().Strategy == strategy {
				n++
			}
		}
	}
	return n
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

var _ mgmt.Modules = moduleAdmin{}

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

// Load implements [mgmt.Modules].
func (a moduleAdmin) Load(m mgmt.Module) (fresh bool, warnings []string, err error) {
	o := wasm.Options{Config: m.Config, Grants: m.Grants, Digest: m.Digest, Recompute: m.Recompute}
	if err := o.Fuel.UnmarshalText([]byte(m.Fuel)); err != nil {
		return false, nil, &mgmt.ModuleError{Text: "fuel: " + err.Error()}
	}
	if err := o.OnError.UnmarshalText([]byte(m.OnError)); err != nil {
		return false, nil, &mgmt.ModuleError{Text: "on_error: " + err.Error()}
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
