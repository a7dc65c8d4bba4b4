package mgmt

import (
	"reflect"
	"slices"
	"strings"

	"github.com/curfewmq/curfew/core/mgmt/jsonobj"
	"github.com/curfewmq/curfew/core/queue"
	"github.com/curfewmq/curfew/policies"
)

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
