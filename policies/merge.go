package policies

// Merge says which of two values is in force: of a user and an operator policy's, or of a policy's and an argument's.
type Merge uint8

// The ways to merge.
const (
	// Stronger takes the operator policy's value over the user policy's, and a policy's over an argument.
	Stronger Merge = iota
	// Weaker takes an argument over a policy's value.
	Weaker
	// Lower takes the lower number.
	Lower
	// Higher takes the higher number.
	Higher
	// LowerLimit takes the lower number, where a negative one stands for no limit.
	LowerLimit
)

// pick returns one of its arguments. Values that are no integers where integers are compared cannot come from a checked
// policy or declaration; the stronger wins.
func (m Merge) pick(stronger, weaker any) any {
	if m == Stronger {
		return stronger
	}
	if m == Weaker {
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

// prefers reports whether a is in force rather than b.
func (m Merge) prefers(a, b int64) bool {
	if m == Higher || m == LowerLimit && (a < 0 || b < 0) {
		return a > b
	}
	return a < b
}

// integer returns v as a number if it is an integer of a policy or of an AMQP table.
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

// Applied are the policies that apply to one object; each may be nil. Two of them are equal with == if the same
// policies apply.
type Applied struct {
	User     *Policy
	Operator *Policy
}

// Definition returns what both policies together set, nil if none applies: what RabbitMQ calls the effective policy
// definition.
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

// merged walks both definitions, which are sorted, at once.
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

// Setting returns the value in force of a setting of a queue or an exchange, named as policies name it. arg is the
// argument "x-"+key of its declaration ("alternate-exchange" of an exchange's), if it has one; where that wins it is
// returned as it is. Integers of policies are int64.
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

// setting returns what the policies set a key to, and the rules for it.
func (a Applied) setting(key string) (any, *Key, bool) {
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

func (p *Policy) setting(key string) (any, *Key, bool) {
	if p == nil {
		return nil, nil, false
	}
	at := p.Definition.index(key)
	if at < 0 {
		return nil, nil, false
	}
	return p.Definition[at].Value, p.keys[at], true
}
