package wasm

import (
	"encoding/json"
	"maps"
	"slices"
	"time"

	"github.com/curfewmq/curfew/sdk/hook"
)

// Info describes a policy, with counts since its module was loaded. If the module could not be loaded, most fields are zero.
type Info struct {
	Name     string `json:"name"`
	Strategy string `json:"strategy"` // "" for a shadow
	Origin   Origin `json:"origin"`
	Path     string `json:"path,omitempty"` // of a configured one
	Loaded   bool   `json:"loaded"`

	Digest   string          `json:"digest"`             // SHA-256 in hexadecimal
	Previous string          `json:"previous,omitempty"` // digest of the version before, which Back puts in force
	Size     int             `json:"size"`               // bytes
	Config   json.RawMessage `json:"config,omitempty"`
	Grants   []string        `json:"grants"`
	Imports  []string        `json:"imports"`
	Hooks    []string        `json:"hooks"`    // in use
	Capacity int             `json:"capacity"` // messages at once; 0: each by itself
	OnError  OnError         `json:"on_error"`

	Fuel       Fuel          `json:"fuel"`
	InitFuel   int64         `json:"init_fuel"`   // for preparing an instance
	MaxFuel    int64         `json:"max_fuel"`    // that one call may use
	WorstPause time.Duration `json:"worst_pause"` // the longest time of such a call, nanoseconds in JSON

	// Trial is the fuel that its hooks used when the module was tried.
	Trial []HookCost `json:"trial,omitempty"`
	// UnreadConfig are the configuration keys that the module has not read, as far as the host can tell. Warnings mention these and
	// other problems.
	UnreadConfig []string `json:"unread_config,omitempty"`
	Warnings     []string `json:"warnings,omitempty"`

	Calls       uint64            `json:"calls"` // successful ones
	Messages    uint64            `json:"messages"`
	FuelUsed    uint64            `json:"fuel_used"`
	FuelPerCall uint64            `json:"fuel_per_call"` // the most that a call used
	Errors      map[string]uint64 `json:"errors"`        // by kind: trap, fuel, memory, fail, verdict, unavailable
	LastError   string            `json:"last_error,omitempty"`
	Counters    map[string]int64  `json:"counters,omitempty"` // the policy's own

	Breaker    string    `json:"breaker"` // closed or open
	OpenUntil  time.Time `json:"open_until,omitzero"`
	RolledBack string    `json:"rolled_back,omitempty"` // digest of the version that was rolled back
	// RolledBackFor is the last error of that version.
	RolledBackFor string `json:"rolled_back_for,omitempty"`

	Undecided  uint64 `json:"undecided"`   // messages that entered or came back while the policy failed, and about which it still has to be called
	AskedAgain uint64 `json:"asked_again"` // messages about which it was called again, including those of a rolled-back version
	Renewed    uint64 `json:"renewed"`     // of the asked, messages that got another deadline

	Instances int   `json:"instances"`
	Slots     int   `json:"slots"`  // instances that there may be
	Memory    int64 `json:"memory"` // bytes, of all instances

	Shadow *ShadowInfo `json:"shadow,omitempty"`
}

// ShadowInfo has the counts of a shadow.
type ShadowInfo struct {
	Strategy  string `json:"strategy"` // the strategy that it runs beside
	Compared  uint64 `json:"compared"` // verdicts
	Differing uint64 `json:"differing"`
}

// worstUnit is the longest time that a unit of fuel takes.
const worstUnit = time.Nanosecond

// List describes all policies by name.
func (h *Host) List() []Info {
	t := h.table.Load()
	var all []Info
	for _, name := range slices.Sorted(maps.Keys(t.policies)) {
		all = append(all, t.policies[name].info())
	}
	return all
}

// Info describes a policy; false = there is none of that name.
func (h *Host) Info(name string) (Info, bool) {
	p := h.table.Load().policies[name]
	if p == nil {
		return Info{}, false
	}
	return p.info(), true
}

// Alarms returns the strategies of policies that are not loaded or have an open breaker.
func (h *Host) Alarms() []string {
	var names []string
	t := h.table.Load()
	for _, name := range slices.Sorted(maps.Keys(t.policies)) {
		if v := t.policies[name].active.Load(); v == nil || v.breaker.until.Load() != 0 {
			names = append(names, prefix+name)
		}
	}
	return names
}

func (p *policy) info() Info {
	i := Info{Name: p.name, Origin: p.origin, Path: p.path, Strategy: prefix + p.name, Counters: p.counters.read()}
	if p.origin == Shadow {
		i.Strategy = ""
		i.Shadow = &ShadowInfo{Strategy: p.beside, Compared: p.compared.Load(), Differing: p.differing.Load()}
	}
	p.mu.Lock()
	i.RolledBack = p.rolledBack
	if p.previous != nil && p.origin == Loaded {
		i.Previous = p.previous.module.Digest
	}
	if p.fault != nil {
		i.RolledBackFor = p.fault.Error()
	}
	p.mu.Unlock()
	i.Undecided, i.AskedAgain, i.Renewed = p.inDoubt(), p.asked.Load(), p.renewed.Load()
	if _, err := p.loadState(); err != nil {
		i.LastError = err.Error()
	}
	if v := p.active.Load(); v != nil {
		v.describe(&i)
	}
	return i
}

func (v *version) describe(i *Info) {
	i.Loaded, i.Digest, i.Size, i.Capacity = true, v.module.Digest, v.module.Size, v.capacity
	i.Config, i.Grants, i.Imports = v.options.Config, v.options.Grants, v.module.Imports
	for _, h := range v.module.Hooks {
		if v.hooks.has(h) {
			i.Hooks = append(i.Hooks, h.String())
		}
	}
	if v.trial != nil {
		i.Trial = v.trial.costs
	}
	i.UnreadConfig, i.Warnings = v.unread(), v.warnings()
	i.Fuel, i.OnError, i.InitFuel = v.options.Fuel, v.options.OnError, v.initFuel
	i.MaxFuel = v.budget(max(v.capacity, minBudgeted))
	i.WorstPause = time.Duration(i.MaxFuel) * worstUnit
	i.Slots, i.Instances = len(v.pool.slots), v.pool.countInstances()
	i.Memory = v.memory.Load()
	v.stats.describe(i)
	i.Breaker = "closed"
	if until := v.breaker.until.Load(); until != 0 {
		i.Breaker, i.OpenUntil = "open", hook.Instant(until).Time()
	}
}

func (s *stats) describe(i *Info) {
	i.Calls, i.Messages, i.FuelUsed, i.FuelPerCall = s.calls.Load(), s.messages.Load(), s.fuel.Load(), s.most.Load()
	i.Errors = make(map[string]uint64, kinds)
	for k := range kinds {
		i.Errors[k.String()] = s.failures[k].Load()
	}
	if f := s.last.Load(); f != nil {
		i.LastError = f.Error()
	}
}
