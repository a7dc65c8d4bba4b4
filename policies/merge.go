package policies

// mergeRule decides which of two values applies: of a user and an operator policy, or of a policy and an argument.
type mergeRule uint8

// The ways to merge.
const (
	// takeStronger takes the operator policy's value over the user policy's, and a policy's over an argument.
	takeStronger mergeRule = iota
	// takeWeaker takes an argument over a policy's value.
	takeWeaker
	// takeLower takes the lower number.
	takeLower
	// takeHigher takes the higher number.
	takeHigher
	// takeLowerLimit takes the lower number; a negative number means no limit.
	takeLowerLimit
)

// pick returns one of the values. Where integers are compared, another value cannot come from a checked policy or
// declaration; stronger is returned then.
func (m mergeRule) pick(stronger, weaker any) any {
	if m == takeStronger {
		return stronger
	}
	if m == takeWeaker {
		return weaker
	}
	s, ok := integer(stronger)
	if !ok {
		return stronger
	}
	w, ok := integer(weaker)
	if !ok || !m.prefers(w, s) {
		return stronger
	}
	return weaker
}

// prefers reports whether a applies rather than b.
func (m mergeRule) prefers(a, b int64) bool {
	if m == takeHigher || m == takeLowerLimit && (a < 0 || b < 0) {
		return a > b
	}
	return a < b
}

// integer returns an integer of a policy or of an AMQP table.
func integer(v any) (int64, bool) {
	switch n := v.(type) {
	case int64:
		return n, true
	case int32:
		return int64(n), true
	case int16:
		return int64(n), true
	case int8:
		return int64(n), true
	case uint8:
		return int64(n), true
	case uint16:
		return int64(n), true
	case uint32:
		return int64(n), true
	}
	return 0, false
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
			v, _, _ := a.setting(user[0].Key)
			d, user, operator = append(d, Entry{Key: user[0].Key, Value: v}), user[1:], operator[1:]
		}
	}
	return d
}

// Setting returns the effective value of a queue's or exchange's setting, by its key in policies. arg is the declaration's
// argument "x-"+key ("alternate-exchange" for an exchange), if hasArg; it is returned unchanged if it applies. Integers of
// policies are int64.
func (a Applied) Setting(key string, arg any, hasArg bool, queueType string) (any, bool) {
	v, rule, ok := a.setting(key)
	switch {
	case !ok:
		return arg, hasArg
	case !hasArg:
		return v, true
	}
	return rule.argument(queueType).pick(v, arg), true
}

// setting returns the policies' value of a key, and the key.
func (a Applied) setting(key string) (any, *keyRule, bool) {
	user, rule, inUser := a.User.setting(key)
	operator, operatorRule, inOperator := a.Operator.setting(key)
	switch {
	case !inOperator:
		return user, rule, inUser
	case !inUser:
		return operator, operatorRule, true
	}
	return operatorRule.Merge.pick(operator, user), operatorRule, true
}

func (p *Policy) setting(key string) (any, *keyRule, bool) {
	if p == nil {
		return nil, nil, false
	}
	at := p.Definition.index(key)
	if at < 0 {
		return nil, nil, false
	}
	return p.Definition[at].Value, p.keys[at], true
}
