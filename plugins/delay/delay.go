// Package delay holds messages for as long as their publishers ask. It offers the exchange type x-delayed-message, which
// routes a message when its delay is over, and supports identities, cancellation and recurrence.
package delay

import (
	"errors"
	"fmt"
	"hash/maphash"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/curfewmq/curfew/sdk/hook"
)

// Config is the section plugins.delay.
type Config struct {
	// Max is the longest time for which a message may be held, in whole milliseconds, at most ten years.
	Max time.Duration `koanf:"max" range:"1ms..87600h" doc:"Longest time a message may be held, in whole milliseconds."`
	// MaxHeld is the maximum number of messages that an exchange may hold. 0 = no limit.
	MaxHeld int `koanf:"max-held" range:"0.." doc:"Messages that an exchange may hold; 0 = no limit."`
	// Headers makes x-deliver-after and x-deliver-at hold messages in queues.
	Headers bool `koanf:"headers" doc:"Whether the headers x-deliver-after and x-deliver-at hold messages in queues."`
}

// tenYears is the longest possible hold, and the default.
const tenYears = hook.MaxMillis * time.Millisecond

// Factory makes the plugin.
var Factory = hook.NewFactory("delay", Config{Max: tenYears, Headers: true}, build)

// plugin implements [hook.HoldReader].
type plugin struct {
	max        int64 // longest hold, in milliseconds
	maxHeld    hook.Limit
	headers    bool
	timetables timetables
}

func build(c Config) (hook.Plugin, error) {
	var errs []error
	if c.Max < time.Millisecond || c.Max > tenYears || c.Max%time.Millisecond != 0 {
		errs = append(errs, fmt.Errorf("max: %s is out of range; accepted are whole milliseconds from 1ms to %s", c.Max, tenYears))
	}
	if c.MaxHeld < 0 {
		errs = append(errs, fmt.Errorf("max-held: %d is out of range; accepted are 0 (no limit) and more", c.MaxHeld))
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	p := &plugin{max: c.Max.Milliseconds(), headers: c.Headers, timetables: timetables{seed: maphash.MakeSeed()}}
	if c.MaxHeld > 0 {
		p.maxHeld = hook.LimitOf(int64(c.MaxHeld))
	}
	return p, nil
}

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
