package hook

import "slices"

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
