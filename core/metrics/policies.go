package metrics

import (
	"maps"
	"slices"
)

// Policy is an expiry policy in WebAssembly, and what it did since its module was loaded.
type Policy struct {
	Name, Digest          string
	Loaded                bool
	Calls, Messages, Fuel uint64
	Failures              map[string]uint64 // by kind
	Open                  bool              // its breaker: it is not asked
	Instances, Slots      int               // that there are, and may be
	Memory                int64             // bytes
	Shadow                bool
	Compared, Differing   uint64 // of a shadow: verdicts
	FuelLimit             int64  // fuel that one call may use
}

// policyKey is a module of a policy.
type policyKey struct{ name, digest string }

// policyCounts are counts of a module, which begin anew each time that it is loaded.
type policyCounts struct {
	last, past [policySums]uint64
	failures   map[string]sum
}

type sum struct{ last, past uint64 }

// policySums is how many counts there are besides failures: calls, messages, fuel, compared, differing.
const policySums = 5

// take takes the present counts in.
func (n *policyCounts) take(p *Policy) {
	now := [policySums]uint64{p.Calls, p.Messages, p.Fuel, p.Compared, p.Differing}
	for i := range now {
		if now[i] < n.last[i] {
			n.past[i] += n.last[i]
		}
	}
	n.last = now
	if n.failures == nil {
		n.failures = map[string]sum{}
	}
	for kind, is := range p.Failures {
		s := n.failures[kind]
		if is < s.last {
			s.past += s.last
		}
		s.last = is
		n.failures[kind] = s
	}
}

func (n *policyCounts) sum(i int) float64 { return float64(n.last[i] + n.past[i]) }

// gatherPolicies tells of the policies in WebAssembly.
func (c *Collector) gatherPolicies(b *builder) {
	if c.Policies == nil {
		return
	}
	f := newPolicyFamilies(b)
	now := map[policyKey]policyCounts{}
	for _, p := range c.Policies() {
		key := policyKey{p.Name, p.Digest}
		n := c.policies[key]
		n.take(&p)
		now[key] = n
		f.add(&p, &n)
	}
	c.policies = now
}

// policyFamilies are the families of policies while they are filled.
type policyFamilies struct {
	sums                            [policySums]*Family
	failures, open, loaded          *Family
	instances, slots, memory, limit *Family
}

func newPolicyFamilies(b *builder) policyFamilies {
	return policyFamilies{
		sums: [policySums]*Family{
			b.family(Counter, "curfew_wasm_calls_total", "Calls of the policy that went well"),
			b.family(Counter, "curfew_wasm_messages_total", "Messages that the policy was asked about"),
			b.family(Counter, "curfew_wasm_fuel_total", "Fuel that calls of the policy used"),
			b.family(Counter, "curfew_wasm_shadow_verdicts_total", "Verdicts of the policy that were compared with those in force"),
			b.family(Counter, "curfew_wasm_shadow_differing_verdicts_total", "Verdicts of the policy that were others than those in force"),
		},
		failures:  b.family(Counter, "curfew_wasm_failures_total", "Calls of the policy that failed"),
		open:      b.family(Gauge, "curfew_wasm_breaker_open", "Whether the policy is not asked because it failed too often"),
		loaded:    b.family(Gauge, "curfew_wasm_loaded", "Whether the policy could be loaded"),
		instances: b.family(Gauge, "curfew_wasm_instances", "Instances of the policy"),
		slots:     b.family(Gauge, "curfew_wasm_instances_limit", "Instances of the policy that there may be"),
		memory:    b.family(Gauge, "curfew_wasm_memory_bytes", "Memory of all instances of the policy"),
		limit:     b.family(Gauge, "curfew_wasm_fuel_limit", "Fuel that one call of the policy may use"),
	}
}

func (f *policyFamilies) add(p *Policy, n *policyCounts) {
	l := label("policy", p.Name, "digest", p.Digest)
	sums := len(f.sums)
	if !p.Shadow {
		sums -= 2
	}
	for i, family := range f.sums[:sums] {
		family.add(l, n.sum(i))
	}
	for _, kind := range slices.Sorted(maps.Keys(n.failures)) {
		s := n.failures[kind]
		f.failures.add(label("policy", p.Name, "digest", p.Digest, "kind", kind), float64(s.last+s.past))
	}
	f.open.add(l, truth(p.Open))
	f.loaded.add(l, truth(p.Loaded))
	f.instances.add(l, float64(p.Instances))
	f.slots.add(l, float64(p.Slots))
	f.memory.add(l, float64(p.Memory))
	f.limit.add(l, float64(p.FuelLimit))
}
