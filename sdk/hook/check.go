package hook

import (
	"slices"
	"strconv"
)

// MaxMillis is the longest TTL or lease that an argument can set: ten years, as in RabbitMQ. Policies have no such limit.
const MaxMillis = 315_360_000_000

// CheckInt accepts AMQP's integer types from low to high; low is 0 or 1. Other values get RabbitMQ's terms.
func CheckInt(v any, low, high int64) error {
	n, ok := Int(v)
	switch {
	case !ok:
		return &ArgError{Term: `"expected integer, got ` + TypeName(v) + `"`}
	case n > high:
		return &ArgError{Term: "{value_too_large," + strconv.FormatInt(n, 10) + "}"}
	case n >= low:
		return nil
	case n == 0:
		return &ArgError{Term: "{value_zero,0}"}
	}
	return &ArgError{Term: "{value_negative," + strconv.FormatInt(n, 10) + "}"}
}

// CheckString accepts strings; other types get RabbitMQ's term.
func CheckString(v any) error {
	if _, ok := v.(string); !ok {
		return &ArgError{Term: "{unacceptable_type," + TypeName(v) + "}"}
	}
	return nil
}

// CheckOneOf accepts the given strings; other strings get term.
func CheckOneOf(v any, term string, accepted ...string) error {
	if err := CheckString(v); err != nil {
		return err
	}
	if s, _ := v.(string); !slices.Contains(accepted, s) {
		return &ArgError{Term: term}
	}
	return nil
}

// PolicyInt returns a [PolicyKey.Check] that accepts integers from low to high. As in RabbitMQ it refuses floats, even without a fraction.
// Other values get [InvalidError] with what.
func PolicyInt(low, high int64, what string) func(v any) error {
	return policyCheck(what, func(n int64) bool { return low <= n && n <= high })
}

// PolicyString returns a check that accepts strings of at most longest bytes.
func PolicyString(longest int, what string) func(v any) error {
	return policyCheck(what, func(s string) bool { return len(s) <= longest })
}

// PolicyOneOf returns a check that accepts the given strings.
func PolicyOneOf(what string, accepted ...string) func(v any) error {
	return policyCheck(what, func(s string) bool { return slices.Contains(accepted, s) })
}

// PolicyBool returns a check that accepts true and false.
func PolicyBool(what string) func(v any) error {
	return policyCheck(what, func(bool) bool { return true })
}

// policyCheck returns a check that accepts values of type T for which ok is true.
func policyCheck[T any](what string, ok func(T) bool) func(any) error {
	return func(v any) error {
		if t, isT := v.(T); isT && ok(t) {
			return nil
		}
		return &InvalidError{What: what}
	}
}
