package retry

import (
	"math"

	"github.com/curfewmq/curfew/sdk/hook"
)

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

// argument returns the lookup for a declaration.
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
