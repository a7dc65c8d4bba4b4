package metrics

import (
	"maps"
	"slices"
)

// Policy is an expiry policy in WebAssembly, with its counts since its module was loaded.
type Policy struct {
	Name, Digest          string
	Loaded                bool
	Calls, Messages, Fuel uint64
	Failures              map[string]uint64 // by kind
	Open                  bool              // its breaker is open: it is not called
	Instances, Slots      int               // existing instances, and the limit on them
	Memory                int64             // bytes
	Shadow                bool
	Compared, Differing   uint64           // of a shadow: number of verdicts
	FuelLimit             int64            // most fuel that one call may use
	Own                   map[string]int64 // the policy's own counters, by name: the host bounds their number
}

// policyKey is a module of a policy.
type policyKey struct{ name, digest string }

// policyCounts are the counts of a module. Each count starts again when the module is reloaded.
type policyCounts struct {
	counts   [len(policyCounters)]resettable
	failures map[string]resettable
}

// resettable is a count that sometimes restarts from 0, and its sum before the last restart.
type resettable struct{ last, before uint64 }

// update takes the present count and returns the total.
func (r *resettable) update(now uint64) float64 {
	if now < r.last {
		r.before += r.last
	}
	r.last = now
	return r.total()
}

func (r *resettable) total() float64 { return float64(r.before + r.last) }

var policyCounters = [...]struct {
	name, help string
	shadow     bool // only for policies that are shadows
	value      func(*Policy) uint64
}{
	{"curfew_wasm_calls_total", "Calls of the policy that went well", false, func(p *Policy) uint64 { return p.Calls }},
	{"curfew_wasm_messages_total", "Messages that the policy was asked about", false, func(p *Policy) uint64 { return p.Messages }},
	{"curfew_wasm_fuel_total", "Fuel that calls of the policy used", false, func(p *Policy) uint64 { return p.Fuel }},
	{
		"curfew_wasm_shadow_verdicts_total", "Verdicts of the policy that were compared with those in force", true,
		func(p *Policy) uint64 { return p.Compared },
	},
	{
		"curfew_wasm_shadow_differing_verdicts_total", "Verdicts of the policy that were others than those in force", true,
		func(p *Policy) uint64 { return p.Differing },
	},
}

var policyGauges = [...]struct {
	name, help string
	value      func(*Policy) float64
}{
	{"curfew_wasm_breaker_open", "Whether the policy is not asked because it failed too often", func(p *Policy) float64 { return truth(p.Open) }},
	{"curfew_wasm_loaded", "Whether the policy could be loaded", func(p *Policy) float64 { return truth(p.Loaded) }},
	{"curfew_wasm_instances", "Instances of the policy", func(p *Policy) float64 { return float64(p.Instances) }},
	{"curfew_wasm_instances_limit", "Instances of the policy that there may be", func(p *Policy) float64 { return float64(p.Slots) }},
	{"curfew_wasm_memory_bytes", "Memory of all instances of the policy", func(p *Policy) float64 { return float64(p.Memory) }},
	{"curfew_wasm_fuel_limit", "Fuel that one call of the policy may use", func(p *Policy) float64 { return float64(p.FuelLimit) }},
}

// policyRow is a policy with the counts of its module and its labels.
type policyRow struct {
	Policy
	*policyCounts
	labels *Labels
}

// policyRows returns all policies. It forgets the counts of modules that are no longer loaded.
func (c *Collector) policyRows() []policyRow {
	var rows []policyRow
	counts := map[policyKey]*policyCounts{}
	for _, p := range c.Policies() {
		key := policyKey{p.Name, p.Digest}
		if counts[key] = c.policies[key]; counts[key] == nil {
			counts[key] = &policyCounts{failures: map[string]resettable{}}
		}
		rows = append(rows, policyRow{p, counts[key], label("policy", p.Name, "digest", p.Digest)})
	}
	c.policies = counts
	return rows
}

// gatherPolicies adds the policies in WebAssembly.
func (c *Collector) gatherPolicies(b *builder) {
	if c.Policies == nil {
		return
	}
	rows := c.policyRows()
	for i, f := range policyCounters {
		family := b.family(Counter, f.name, f.help)
		for _, r := range rows {
			if sum := r.counts[i].update(f.value(&r.Policy)); r.Shadow || !f.shadow {
				family.add(r.labels, sum)
			}
		}
	}
	failures := b.family(Counter, "curfew_wasm_failures_total", "Calls of the policy that failed")
	for _, r := range rows {
		r.addFailures(failures)
	}
	own := b.family(Counter, "curfew_policy_metric_total", "What the policy counts itself")
	for _, r := range rows {
		for _, name := range slices.Sorted(maps.Keys(r.Own)) {
			own.add(label("policy", r.Name, "name", name), float64(r.Own[name]))
		}
	}
	for _, f := range policyGauges {
		family := b.family(Gauge, f.name, f.help)
		for _, r := range rows {
			family.add(r.labels, f.value(&r.Policy))
		}
	}
}

// addFailures adds a series for each kind of failure that has occurred.
func (r *policyRow) addFailures(f *Family) {
	for kind, n := range r.Failures {
		sum := r.failures[kind]
		sum.update(n)
		r.failures[kind] = sum
	}
	for _, kind := range slices.Sorted(maps.Keys(r.failures)) {
		sum := r.failures[kind]
		f.add(label("policy", r.Name, "digest", r.Digest, "kind", kind), sum.total())
	}
}

// gatherPlugins adds the plugins' faults, and the messages that their filters kept out. A series appears when its count is no
// longer 0.
func (c *Collector) gatherPlugins(b *builder) {
	if c.Filtered != nil {
		filtered := b.family(Counter, "curfew_plugin_filtered_messages_total", "Messages that a plugin's filter kept out of an exchange")
		counts := c.Filtered()
		for _, plugin := range slices.Sorted(maps.Keys(counts)) {
			filtered.add(label("plugin", plugin), float64(counts[plugin]))
		}
	}
	if c.Faults == nil {
		return
	}
	panics := b.family(Counter, "curfew_plugin_panics_total", "Calls of a plugin that panicked")
	verdicts := b.family(Counter, "curfew_plugin_invalid_verdicts_total", "Verdicts of a plugin that were invalid and put back")
	for _, f := range c.Faults() {
		l := label("plugin", f.Plugin, "hook", f.Point)
		if f.Panics > 0 {
			panics.add(l, float64(f.Panics))
		}
		if f.Verdicts > 0 {
			verdicts.add(l, float64(f.Verdicts))
		}
	}
}
