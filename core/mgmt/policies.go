package mgmt

import (
	"net/http"
	"reflect"
	"slices"
	"strings"

	"github.com/curfewmq/curfew/core/mgmt/definitions"
	"github.com/curfewmq/curfew/core/mgmt/jsonobj"
	"github.com/curfewmq/curfew/core/mgmt/rows"
	"github.com/curfewmq/curfew/core/queue"
	"github.com/curfewmq/curfew/policies"
)

// policyHandlers are the handlers for user policies, or for operator policies.
type policyHandlers struct {
	kind  policies.Kind
	rules *policies.Rules
	fixed bool // the policies can be read only
}

func (p policyHandlers) list(c *request) error {
	var all []object
	for _, v := range c.visible() {
		for _, it := range v.Policies().List(p.kind) {
			all = append(all, definitions.Policy(v.Name(), it))
		}
	}
	return listObjects(c, all)
}

func (p policyHandlers) one(c *request) error {
	it, ok := c.vhost.Policies().Lookup(p.kind, c.vars["policy"])
	if !ok {
		return errNotFound
	}
	return c.reply(definitions.Policy(c.vhost.Name(), it))
}

var errFixedOperators = &failure{http.StatusMethodNotAllowed, "method_not_allowed", "Broker settings disallow editing of operator policies."}

func (p policyHandlers) put(c *request) error {
	if p.fixed {
		return errFixedOperators
	}
	b, err := c.read(maxSmallBody)
	if err != nil {
		return err
	}
	policy, err := definitions.ReadPolicy(p.rules, p.kind, c.vars["policy"], b)
	if err != nil {
		return err
	}
	return c.created(c.vhost.SetPolicy(p.kind, policy))
}

func (p policyHandlers) delete(c *request) error {
	if p.fixed {
		return errFixedOperators
	}
	return c.removed(c.vhost.ClearPolicy(p.kind, c.vars["policy"]))
}

const (
	// someApplied is how many queues are listed with the effects of policies on them.
	someApplied = 100
	// appliedEvery is the number of queues between two checks that the request has not ended.
	appliedEvery = 1024
)

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
func usedPolicies(c *request) error {
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

func checkPolicyUse(c *request) error {
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

// effectiveSettings lists the values that a queue's argument and policies give for each setting, the value in effect, and its origin. Of
// equal values, the argument's counts, then the policy's.
func effectiveSettings(cfg *queue.Config) []object {
	list, arguments := []object{}, jsonobj.OfArgs(cfg.Args)
	for _, key := range settingsOf(cfg) {
		argument, hasArgument := cfg.Args.Lookup("x-" + key)
		shown, _ := arguments.Value("x-" + key)
		user, inUser := policyValue(cfg.Policies.User, key)
		operator, _ := policyValue(cfg.Policies.Operator, key)
		o := object{
			{"key", key},
			{"value", nil},
			{"from", nil},
			{"argument", shown},
			{"policy", jsonobj.FromParsed(user)},
			{"operator_policy", jsonobj.FromParsed(operator)},
		}
		from := "operator_policy"
		switch value, ok := cfg.Settings(key); {
		case !ok: // no present plugin knows the key, or queues of this type do not have it
			from = ""
		case hasArgument && reflect.DeepEqual(value, argument):
			from = "argument"
		case inUser && reflect.DeepEqual(value, user):
			from = "policy"
		}
		if from != "" {
			value, _ := o.Value(from)
			set(o, "value", value)
			set(o, "from", from)
		}
		list = append(list, o)
	}
	return list
}

// settingsOf returns the names of the settings that a queue's arguments and policies have, sorted. The queue's type is none.
func settingsOf(cfg *queue.Config) []string {
	var keys []string
	for _, a := range cfg.Args {
		if key, ok := strings.CutPrefix(a.Name, "x-"); ok && key != "queue-type" {
			keys = append(keys, key)
		}
	}
	for _, p := range []*policies.Policy{cfg.Policies.User, cfg.Policies.Operator} {
		if p == nil {
			continue
		}
		for _, e := range p.Definition {
			keys = append(keys, e.Key)
		}
	}
	slices.Sort(keys)
	return slices.Compact(keys)
}

func policyValue(p *policies.Policy, key string) (any, bool) {
	if p != nil {
		for _, e := range p.Definition {
			if e.Key == key {
				return e.Value, true
			}
		}
	}
	return nil, false
}
