package delay

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/curfewmq/curfew/sdk/hook"
)

const (
	exchangeType = "x-delayed-message"
	lavinType    = "x-delayed-exchange" // LavinMQ's name
)

// The arguments of exchanges. All except the first are also keys of policies, without "x-".
const (
	innerArgument    = "x-delayed-type"
	delayArgument    = "x-delay"
	maxDelayArgument = "x-max-delay"
	maxHeldArgument  = "x-max-held"
)

var _ hook.ExchangeTyper = (*plugin)(nil)

// ExchangeTypes implements [hook.ExchangeTyper].
func (p *plugin) ExchangeTypes() []hook.ExchangeType {
	return []hook.ExchangeType{{
		Name:        exchangeType,
		Aliases:     []string{lavinType},
		Description: "Delayed Message Exchange.", // as the plugin for RabbitMQ has it
		Arguments: []hook.ExchangeArgument{
			{Name: innerArgument, Compared: true},
			bounded(delayArgument, 0, p.max, "milliseconds", hook.PolicyKey{Argument: hook.TakeWeaker}),
			bounded(maxDelayArgument, 1, p.max, "milliseconds", hook.PolicyKey{Operator: true, Merge: hook.TakeLower, Argument: hook.TakeLower}),
			bounded(maxHeldArgument, 1, math.MaxInt64, "messages", hook.PolicyKey{Operator: true, Merge: hook.TakeLower, Argument: hook.TakeLower}),
		},
		Check:    checkInner,
		Schedule: p.schedule,
	}}
}

// bounded returns an argument, which is also a key of policies, whose value is an integer from low to high.
func bounded(name string, low, high int64, unit string, key hook.PolicyKey) hook.ExchangeArgument {
	accepted := fmt.Sprintf("%d to %d %s", low, high, unit)
	key.Check = hook.PolicyInt(low, high, strings.TrimPrefix(name, "x-")+", expected "+accepted)
	return hook.ExchangeArgument{Name: name, Policy: &key, Check: func(x *hook.Exchange, v any) error {
		n, ok := hook.Int(v)
		switch {
		case !ok:
			return refuse(x, name, "expected "+accepted+", got "+hook.TypeName(v))
		case n < low || n > high:
			return refuse(x, name, "expected "+accepted+", got "+strconv.FormatInt(n, 10))
		}
		return nil
	}}
}

// checkInner refuses an exchange that names no type for routing the messages that it releases.
func checkInner(x *hook.Exchange) error {
	v, _ := x.Args.Lookup(innerArgument)
	if inner, ok := v.(string); ok && slices.Contains(x.Types, inner) {
		return nil
	}
	return refuse(x, innerArgument, "expected one of "+strings.Join(x.Types, ", "))
}

func refuse(x *hook.Exchange, argument, why string) error {
	return fmt.Errorf("invalid arg '%s' for exchange '%s' in vhost '%s': %s", argument, x.Name, x.VHost, why)
}

// schedule returns the schedule of an exchange. Settings that were accepted under higher limits are lowered.
func (p *plugin) schedule(x *hook.Exchange) hook.Schedule {
	v, _ := x.Args.Lookup(innerArgument)
	inner, _ := v.(string)
	s := &scheduler{max: p.max, timetables: &p.timetables}
	if n, ok := setting(x, maxDelayArgument); ok {
		s.max = min(s.max, n)
	}
	if n, ok := setting(x, delayArgument); ok {
		s.delay = min(s.max, n)
	}
	held := p.maxHeld
	if n, ok := setting(x, maxHeldArgument); ok {
		held = held.Min(hook.LimitOf(n))
	}
	return hook.Schedule{Inner: inner, Plan: s.plan, Released: s.released, Negates: delayHeader, MaxHeld: held}
}

func setting(x *hook.Exchange, argument string) (int64, bool) {
	v, _ := x.Setting(strings.TrimPrefix(argument, "x-"))
	return hook.Int(v)
}
