package policies

import "github.com/curfewmq/curfew/sdk/hook"

// pick returns one of the values. If integers are to be compared and a value is not an integer, which checked policies and
// declarations rule out, it returns stronger.
func pick(m hook.Merge, stronger, weaker any) any {
	if m == hook.TakeStronger {
		return stronger
	}
	if m == hook.TakeWeaker {
		return weaker
	}
	s, ok := hook.Int(stronger)
	if !ok {
		return stronger
	}
	w, ok := hook.Int(weaker)
	if !ok || !prefers(m, w, s) {
		return stronger
	}
	return weaker
}

// prefers reports whether a takes precedence over b.
func prefers(m hook.Merge, a, b int64) bool {
	if m == hook.TakeHigher || m == hook.TakeLowerLimit && (a < 0 || b < 0) {
		return a > b
	}
	return a < b
}

// Applied are the policies that apply to one object; nil means none. Values of Applied are comparable with ==.
type Applied struct {
	User     *Policy
	Operator *Policy
}

// Definition returns the merged settings of both policies, RabbitMQ's effective policy definition; nil if none applies.
func (a Applied) Definition() Definition {
	switch {
	case a.User == nil && a.Operator == nil:
		return nil
	case a.User == nil:
		return a.Operator.Definition
	case a.Operator == nil:
		return a.User.Definition
	}
	return a.merged()
}

// merged merges the two sorted definitions.
func (a Applied) merged() Definition {
	user, operator := a.User.Definition, a.Operator.Definition
	d := make(Definition, 0, len(user)+len(operator))
	for len(user) > 0 || len(operator) > 0 {
		switch {
		case len(operator) == 0 || len(user) > 0 && user[0].Key < operator[0].Key:
			d, user = append(d, user[0]), user[1:]
		case len(user) == 0 || operator[0].Key < user[0].Key:
			d, operator = append(d, operator[0]), operator[1:]
		default:
			e := operator[0] // unchanged if the key is not known
			if v, _, ok := a.setting(e.Key); ok {
				e.Value = v
			}
			d, user, operator = append(d, e), user[1:], operator[1:]
		}
	}
	return d
}

// Setting returns the effective value of a queue's or exchange's setting, by its key in
// policies. If hasArg is set, arg is the declaration's argument "x-"+key
// ("alternate-exchange" for an exchange); if it applies, it is returned unchanged. Integers
// of policies are int64.
func (a Applied) Setting(key string, arg any, hasArg bool, queueType string) (any, bool) {
	v, rule, ok := a.setting(key)
	switch {
	case !ok:
		return arg, hasArg
	case !hasArg:
		return v, true
	}
	return pick(rule.argument(queueType), v, arg), true
}

// setting returns the policies' value for a known key, and the key.
func (a Applied) setting(key string) (any, *keyRule, bool) {
	user, rule, inUser := a.User.setting(key)
	operator, operatorRule, inOperator := a.Operator.setting(key)
	switch {
	case !inOperator:
		return user, rule, inUser
	case !inUser:
		return operator, operatorRule, true
	}
	return pick(operatorRule.Merge, operator, user), operatorRule, true
}

func (p *Policy) setting(key string) (any, *keyRule, bool) {
	if p == nil {
		return nil, nil, false
	}
	at := p.Definition.index(key)
	if at < 0 || p.keys[at] == nil {
		return nil, nil, false
	}
	return p.Definition[at].Value, p.keys[at], true
}
