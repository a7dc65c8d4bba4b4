// Package retry holds messages that come back to their queue before they are delivered again, each time for longer.
package retry

import (
	"math"

	"github.com/curfewmq/curfew/sdk/hook"
)

// Config is the section plugins.retry; it has no keys.
type Config struct{}

// Factory makes the plugin.
var Factory = hook.NewFactory("retry", Config{}, func(Config) (hook.Plugin, error) { return plugin{}, nil })

type plugin struct{}

// Attach implements [hook.Plugin]. It has no hooks for a queue without retries.
func (plugin) Attach(q hook.Queue) hook.Hooks {
	hs := hook.Hooks{Shared: true}
	if b, ok := backoffOf(q); ok {
		hs.OnReturn = b.hold
	}
	return hs
}

// backoff describes how long the messages of a queue wait.
type backoff struct {
	failed, nacked bool    // messages that came back in these ways wait
	min, max       int64   // milliseconds; max may be lower than min
	multiplier     float64 // 0 = the wait grows by min each time
}

// backoffOf reads a queue's settings; ok is false if its messages do not wait. Arguments and policies are checked separately,
// so their combination may violate the checks.
func backoffOf(q hook.Queue) (b backoff, ok bool) {
	switch kind, _ := hook.StringSetting(q, keyType); kind {
	case retryAll:
		b.failed, b.nacked = true, true
	case retryFailed:
		b.failed = true
	case retryReturned:
		b.nacked = true
	default:
		return b, false
	}
	least, most := hook.IntSetting(q, keyMin), hook.IntSetting(q, keyMax)
	if !least.Set() || least.N() == 0 {
		return b, false
	}
	b.min = least.N()
	if v, ok := q.Setting(keyMultiplier); ok {
		b.multiplier, _ = multiplier(v)
	}
	b.max = b.min // RabbitMQ's default
	if b.multiplier != 0 {
		b.max = hook.MaxMillis
	}
	if most.Set() {
		b.max = most.N()
	}
	return b, true
}

// hold is the callback.
func (b backoff) hold(now hook.Instant, ms []hook.Message, vs []hook.Verdict) {
	for i := range ms {
		if m := &ms[i]; m.Return == hook.ReturnFailed && b.failed || m.Return == hook.ReturnNacked && b.nacked {
			vs[i].Hold = max(vs[i].Hold, now.AddMillis(b.wait(m.Returns)))
		}
	}
}

// wait returns how many milliseconds a message waits that has come back n times.
func (b backoff) wait(n uint32) int64 {
	n = max(n, 1)
	if b.multiplier == 0 {
		if b.min > b.max/int64(n) { // avoids an overflow
			return b.max
		}
		return b.min * int64(n)
	}
	const rounding = 1e-12 // of the powers: 1.1 squared is slightly more than 1.21
	ms := math.Ceil(float64(b.min) * math.Pow(b.multiplier, float64(n-1)) * (1 - rounding))
	if ms >= float64(b.max) { // true for infinity, too
		return b.max
	}
	return int64(ms)
}

// The settings' names in policies. The first three are RabbitMQ's, for its quorum queues
// [RabbitMQ: quorum-queues.html#delayed-retry].
const (
	keyType       = "delayed-retry-type"
	keyMin        = "delayed-retry-min"
	keyMax        = "delayed-retry-max"
	keyMultiplier = "delayed-retry-multiplier"
)

// The values of the setting delayed-retry-type.
const (
	retryDisabled = "disabled"
	retryAll      = "all"
	retryFailed   = "failed"
	retryReturned = "returned"
)

// maxMultiplier is the highest multiplier. With multiplier m, the wait before the second retry is m times the first wait.
const maxMultiplier = 1000

// Arguments implements [hook.Plugin]. RabbitMQ has no retries for classic queues. As there, a policy with these keys does not apply to
// them.
func (plugin) Arguments() []hook.Argument {
	quorum := []string{"quorum"}
	return []hook.Argument{
		{Name: "x-" + keyType, Check: checkType, Policy: &hook.PolicyKey{
			Check:     hook.PolicyOneOf("delayed retry type", retryDisabled, retryAll, retryFailed, retryReturned),
			CheckWith: needsMin, Operator: true, QueueTypes: quorum,
		}},
		{Name: "x-" + keyMin, Check: checkWait, Policy: &hook.PolicyKey{
			Check:    hook.PolicyInt(0, math.MaxInt64, "delayed retry minimum"),
			Operator: true, Merge: hook.TakeHigher, Argument: hook.TakeLower, QueueTypes: quorum,
		}},
		{Name: "x-" + keyMax, Check: checkMax, Policy: &hook.PolicyKey{
			Check:     hook.PolicyInt(0, math.MaxInt64, "delayed retry maximum"),
			CheckWith: notBelowMin,
			Operator:  true, Merge: hook.TakeLower, Argument: hook.TakeLower, QueueTypes: quorum,
		}},
		{Name: "x-" + keyMultiplier, Check: checkMultiplier, Policy: &hook.PolicyKey{Check: validMultiplier}},
	}
}

func checkType(v any, all hook.Args) error {
	if err := hook.CheckOneOf(v, `"expected one of disabled, all, failed, returned"`, retryDisabled, retryAll, retryFailed, retryReturned); err != nil {
		return err
	}
	return term(needsMin(v, argument(all)))
}

func checkWait(v any, _ hook.Args) error { return hook.CheckInt(v, 0, hook.MaxMillis) }

func checkMax(v any, all hook.Args) error {
	if err := checkWait(v, all); err != nil {
		return err
	}
	return term(notBelowMin(v, argument(all)))
}

func checkMultiplier(v any, _ hook.Args) error {
	if _, ok := multiplier(v); !ok {
		return &hook.ArgError{Term: `"expected a number from 1 to 1000"`}
	}
	return nil
}

func validMultiplier(v any) error {
	if _, ok := multiplier(v); !ok {
		return &hook.InvalidError{What: "delayed retry multiplier, expected a number from 1 to 1000"}
	}
	return nil
}

// multiplier returns v if it is a valid multiplier.
func multiplier(v any) (m float64, ok bool) {
	switch f := v.(type) {
	case float32:
		m = float64(f)
	case float64:
		m = f
	default:
		n, isInt := hook.Int(v)
		if !isInt {
			return 0, false
		}
		m = float64(n)
	}
	return m, m >= 1 && m <= maxMultiplier // false for NaN
}

// lookup finds a setting in the same declaration or policy.
type lookup = func(key string) (any, bool)

func argument(all hook.Args) lookup {
	return func(key string) (any, bool) { return all.Lookup("x-" + key) }
}

// conflict is an error about two settings that contradict each other.
type conflict string

func (c conflict) Error() string { return string(c) }

// term converts an error into the error of an argument.
func term(err error) error {
	if err == nil {
		return nil
	}
	return &hook.ArgError{Term: err.Error()}
}

// needsMin refuses a type that holds messages if no minimum time is given.
func needsMin(v any, of lookup) error {
	if _, ok := of(keyMin); !ok && v != retryDisabled {
		return conflict(keyMin + " is required")
	}
	return nil
}

// notBelowMin refuses a maximum below the minimum.
func notBelowMin(v any, of lookup) error {
	least, _ := of(keyMin)
	low, hasLow := hook.Int(least)
	if high, ok := hook.Int(v); ok && hasLow && high < low {
		return conflict(keyMax + " is below " + keyMin)
	}
	return nil
}
