package mgmt

import (
	"slices"
	"strings"

	"github.com/curfewmq/curfew/core/mgmt/definitions"
	"github.com/curfewmq/curfew/core/mgmt/jsonobj"
	"github.com/curfewmq/curfew/core/mgmt/rows"
	"github.com/curfewmq/curfew/core/queue"
)

const (
	// someApplied is how many queues are listed with the effects of policies on them.
	someApplied = 100
	// appliedEvery is the number of queues between two checks that the request has not ended.
	appliedEvery = 1024
)

// policyKey names a policy.
type policyKey struct {
	vhost, name string
	operator    bool
}

// policyUse counts how many queues have each policy. It reads the configurations of queues, and asks none of the queues.
type policyUse struct {
	queues  int // all
	counts  map[policyKey]int
	matches []*queue.Config // that pass
}

// usedPolicies counts the queues of each policy, and lists some with their effective settings, see the package's documentation.
func (a *API) usedPolicies(c *request) error {
	if err := c.enterParameter(); err != nil {
		return err
	}
	raw := c.query.raw
	passes := func(cfg *queue.Config) bool {
		user, operator := cfg.Policies.User, cfg.Policies.Operator
		return (user != nil || operator != nil) &&
			(!raw.Has("policy") || user != nil && user.Name == raw.Get("policy")) &&
			(!raw.Has("operator_policy") || operator != nil && operator.Name == raw.Get("operator_policy"))
	}
	use := policyUse{counts: map[policyKey]int{}}
	for _, v := range c.visible() {
		from := len(use.matches)
		for i, m := range v.Mailboxes() {
			if i%appliedEvery == 0 && c.r.Context().Err() != nil {
				return c.r.Context().Err()
			}
			use.add(m.Config(), passes)
		}
		slices.SortFunc(use.matches[from:], func(x, y *queue.Config) int { return strings.Compare(x.Name, y.Name) })
	}
	return c.reply(use.object())
}

func (c *request) checkPolicyUse() error {
	return onlyParameters(c.query.raw, []string{"vhost", "policy", "operator_policy", "columns"})
}

func (u *policyUse) add(cfg *queue.Config, passes func(*queue.Config) bool) {
	u.queues++
	if p := cfg.Policies.User; p != nil {
		u.counts[policyKey{cfg.VHost, p.Name, false}]++
	}
	if p := cfg.Policies.Operator; p != nil {
		u.counts[policyKey{cfg.VHost, p.Name, true}]++
	}
	if passes(cfg) {
		u.matches = append(u.matches, cfg)
	}
}

func (u *policyUse) object() object {
	counts, some := []object{}, []object{}
	for key, n := range u.counts {
		counts = append(counts, object{{"vhost", key.vhost}, {"name", key.name}, {"operator", key.operator}, {"queues", n}})
	}
	slices.SortFunc(counts, comparePolicies)
	for _, cfg := range u.matches[:min(len(u.matches), someApplied)] {
		some = append(some, describeApplied(cfg))
	}
	return object{{"queues", u.queues}, {"matching", len(u.matches)}, {"policies", counts}, {"some", some}}
}

// comparePolicies orders the counts of policies.
func comparePolicies(x, y object) int {
	for _, name := range []string{"vhost", "operator", "name"} {
		if order := rows.Compare(valueOf(x, name), valueOf(y, name)); order != 0 {
			return order
		}
	}
	return 0
}

// describeApplied returns a queue with the settings that policies give it, and its arguments of the same names.
func describeApplied(cfg *queue.Config) object {
	definition := cfg.Policies.Definition()
	arguments, own := jsonobj.OfArgs(cfg.Args), object{}
	for _, e := range definition {
		if v, ok := arguments.Value("x-" + e.Key); ok {
			own = append(own, member{"x-" + e.Key, v})
		}
	}
	return object{
		{"vhost", cfg.VHost},
		{"name", cfg.Name},
		{"policy", policyName(cfg.Policies.User)},
		{"operator_policy", policyName(cfg.Policies.Operator)},
		{"effective_policy_definition", definitions.PolicyDefinition(definition)},
		{"expiry_strategy", cfg.Strategy},
		{"arguments", own},
	}
}

// mergeUsedPolicies joins the parts of the vhosts' owners. No vhost is in two of them.
func mergeUsedPolicies(parts []object) object {
	o := parts[0]
	for _, other := range parts[1:] {
		for _, name := range []string{"queues", "matching"} {
			set(o, name, addValues(valueOf(o, name), valueOf(other, name)))
		}
	}
	var counts, some []object
	for _, other := range parts {
		own, _ := valueOf(other, "policies").([]object)
		counts = append(counts, own...)
		own, _ = valueOf(other, "some").([]object)
		some = append(some, own...)
	}
	slices.SortFunc(counts, comparePolicies)
	slices.SortStableFunc(some, func(x, y object) int { return rows.Compare(valueOf(x, "vhost"), valueOf(y, "vhost")) })
	set(o, "policies", nonNil(counts))
	set(o, "some", nonNil(some[:min(len(some), someApplied)]))
	return o
}
