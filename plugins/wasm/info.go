package wasm

import (
	"encoding/json"
	"maps"
	"slices"
	"time"

	"github.com/curfewmq/curfew/sdk/hook"
)

// Info describes a policy and what it did since its module was loaded. Fields are
// zero where there is no module: the policy could not be loaded.
type Info struct {
	Name     string `json:"name"`
	Strategy string `json:"strategy"` // as queues choose it; "" of a shadow
	Origin   Origin `json:"origin"`
	Path     string `json:"path,omitempty"` // of a configured one
	Loaded   bool   `json:"loaded"`

	Digest   string          `json:"digest"` // SHA-256 in hexadecimal
	Size     int             `json:"size"`   // bytes
	Config   json.RawMessage `json:"config,omitempty"`
	Grants   []string        `json:"grants"`
	Imports  []string        `json:"imports"`
	Hooks    []string        `json:"hooks"`    // in use
	Capacity int             `json:"capacity"` // messages at once; 0: each by itself
	OnError  OnError         `json:"on_error"`

	Fuel       Fuel          `json:"fuel"`
	InitFuel   int64         `json:"init_fuel"`   // that an instance took to get ready
	MaxFuel    int64         `json:"max_fuel"`    // that one call may use
	WorstPause time.Duration `json:"worst_pause"` // what that comes to at the most, nanoseconds in JSON

	Calls       uint64            `json:"calls"` // that went well
	Messages    uint64            `json:"messages"`
	FuelUsed    uint64            `json:"fuel_used"`
	FuelPerCall uint64            `json:"fuel_per_call"` // the most that a call used
	Errors      map[string]uint64 `json:"errors"`        // by kind: trap, fuel, memory, fail, verdict, unavailable
	LastError   string            `json:"last_error,omitempty"`
	Counters    map[string]int64  `json:"counters,omitempty"` // the policy's own

	Breaker    string    `json:"breaker"` // closed or open
	OpenUntil  time.Time `json:"open_until,omitzero"`
	RolledBack string    `json:"rolled_back,omitempty"` // digest of the version that had to go
	// RolledBackFor is the error that that version ended with.
	RolledBackFor string `json:"rolled_back_for,omitempty"`

	Undecided  uint64 `json:"undecided"`   // messages that entered without the policy, as it failed, and may wait for ever
	AskedAgain uint64 `json:"asked_again"` // messages that were undecided, or decided about by a version that had to go, and asked about again
	Renewed    uint64 `json:"renewed"`     // of those, with another deadline since

	Instances int   `json:"instances"`
	Slots     int   `json:"slots"`  // instances that there may be
	Memory    int64 `json:"memory"` // bytes, of all instances

	Shadow *ShadowInfo `json:"shadow,omitempty"`
}

// ShadowInfo is what came of a shadow.
type ShadowInfo struct {
	Strategy  string `json:"strategy"` // that it runs beside
	Compared  uint64 `json:"compared"` // verdicts
	Differing uint64 `json:"differing"`
}

// worstUnit is how long a unit of fuel takes at the most.
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

// Info describes a policy, and reports whether there is one of that name.
func (h *Host) Info(name string) (Info, bool) {
	p := h.table.Load().policies[name]
	if p == nil {
		return Info{}, false
	}
	return p.info(), true
}

// Alarms names the policies that do not do their work.
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
	if p.fault != nil {
		i.RolledBackFor = p.fault.Error()
	}
	p.mu.Unlock()
	i.Undecided, i.AskedAgain, i.Renewed = p.undecided.Load(), p.asked.Load(), p.renewed.Load()
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
