package policies

import (
	"errors"
	"math"
	"slices"
	"strings"
)

// keyRule is a setting that policies may have.
type keyRule struct {
	Name string
	// Check refuses invalid values. Its error is a line of the reply, so it names the value. nil accepts any value.
	Check func(v any) error
	// Operator means that operator policies may have the key, too.
	Operator bool
	// Merge combines the values of a user and an operator policy.
	Merge mergeRule
	// Argument combines the value of a policy with that of the argument "x-"+Name.
	Argument mergeRule
	// QueueTypes are the types that know the key; nil means all. A policy with the key does not apply to queues of other
	// types.
	QueueTypes []string

	// quorum replaces Argument for quorum queues; nil means no difference.
	quorum *mergeRule
}

func (k *keyRule) argument(queueType string) mergeRule {
	if k.quorum != nil && queueType == Quorum {
		return *k.quorum
	}
	return k.Argument
}

func (k *keyRule) types() typeSet {
	if k.QueueTypes == nil {
		return onAll
	}
	return typesOf(k.QueueTypes...) | onExchange
}

// expiryStrategyKey names the key that chooses a queue's expiry strategy.
const expiryStrategyKey = "expiry-strategy"

// maxName is the longest name of an exchange or routing key, in bytes: AMQP encodes them as short strings.
const maxName = 255

// maxSegment is RabbitMQ's limit of a stream's segments, in bytes.
const maxSegment = 3_000_000_000

// builtin returns the keys of RabbitMQ 4, and those of RabbitMQ 3 that its definitions files have. It does not return our own
// expiry-strategy, which depends on the loaded plugins. Queue types are as in RabbitMQ.
func builtin() []keyRule {
	var (
		classic = []string{Classic}
		quorum  = []string{Quorum}
		stream  = []string{Stream}
		queues  = []string{Classic, Quorum}
		copied  = []string{Quorum, Stream}
		policy  = takeStronger
	)
	return []keyRule{
		{Name: "alternate-exchange", Check: shortString("alternate exchange name"), Argument: takeWeaker},
		{Name: "consumer-disconnected-timeout", Check: atLeast(0, "consumer disconnected timeout"), Argument: takeLower, QueueTypes: quorum},
		{Name: "consumer-timeout", Check: atLeast(0, "consumer timeout"), Argument: takeLower},
		{Name: "dead-letter-exchange", Check: shortString("dead letter exchange name"), Argument: takeWeaker, QueueTypes: queues},
		{Name: "dead-letter-routing-key", Check: shortString("dead letter routing key"), Argument: takeWeaker, QueueTypes: queues},
		{Name: "dead-letter-strategy", Check: oneOf("dead letter strategy", "at-most-once", "at-least-once"), Argument: takeWeaker, QueueTypes: quorum},
		{Name: "delayed-retry-max", Check: atLeast(0, "delayed retry maximum"), Operator: true, Merge: takeLower, Argument: takeLower, QueueTypes: quorum},
		{Name: "delayed-retry-min", Check: atLeast(0, "delayed retry minimum"), Operator: true, Merge: takeHigher, Argument: takeLower, QueueTypes: quorum},
		{Name: "delayed-retry-type", Check: oneOf("delayed retry type", "disabled", "all", "failed", "returned"), Operator: true, QueueTypes: quorum},
		{Name: "delivery-limit", Check: atLeast(math.MinInt64, "delivery limit"), Operator: true, Merge: takeLowerLimit, Argument: takeLowerLimit, QueueTypes: quorum},
		{Name: "expires", Check: atLeast(1, "queue expiry"), Operator: true, Merge: takeLower, Argument: takeLower, QueueTypes: queues},
		{Name: "ha-mode", Check: oneOf("ha-mode value", "all", "exactly", "nodes"), QueueTypes: classic},
		{Name: "ha-params", QueueTypes: classic},
		{Name: "ha-promote-on-failure", Check: quoted("ha-promote-on-failure", "always", "when-synced"), QueueTypes: classic},
		{Name: "ha-promote-on-shutdown", Check: quoted("ha-promote-on-shutdown", "always", "when-synced"), QueueTypes: classic},
		{Name: "ha-sync-batch-size", Check: batchSize, QueueTypes: classic},
		{Name: "ha-sync-mode", Check: quoted("ha-sync-mode", "manual", "automatic"), QueueTypes: classic},
		{Name: "initial-cluster-size", Check: atLeast(0, "cluster size"), QueueTypes: stream},
		{Name: "max-age", Check: is("max age", isAge), QueueTypes: stream},
		{Name: "max-in-memory-bytes", Check: atLeast(0, "maximum memory in bytes"), Operator: true, Merge: takeLower, Argument: takeLower, QueueTypes: quorum},
		{Name: "max-in-memory-length", Check: atLeast(0, "maximum memory in bytes"), Operator: true, Merge: takeLower, Argument: takeLower, QueueTypes: quorum},
		{Name: "max-length", Check: atLeast(0, "maximum length"), Operator: true, Merge: takeLower, Argument: takeLower, QueueTypes: queues},
		{Name: "max-length-bytes", Check: atLeast(0, "maximum length in bytes"), Operator: true, Merge: takeLower, Argument: takeLower},
		{Name: "member-placement-tag", Check: text("member placement tag"), Operator: true, QueueTypes: copied},
		{Name: "message-ttl", Check: atLeast(0, "message TTL"), Operator: true, Merge: takeLower, Argument: takeLower, QueueTypes: queues},
		{
			Name: "overflow", Check: oneOf("overflow value", "drop-head", "reject-publish", "reject-publish-dlx"),
			Operator: true, Argument: takeWeaker, quorum: &policy, QueueTypes: queues,
		},
		{Name: "queue-leader-locator", Check: oneOf("queue leader locator value", "client-local", "balanced", "random", "least-leaders"), Argument: takeWeaker},
		{Name: "queue-master-locator", Check: masterLocator, Argument: takeWeaker, QueueTypes: classic},
		{Name: "queue-mode", Check: oneOf("queue-mode value", "default", "lazy"), Argument: takeWeaker, QueueTypes: classic},
		{Name: "queue-version", Check: between(1, 2, "queue-version value"), Operator: true, Argument: takeWeaker},
		{Name: "stream-filter-size-bytes", Check: between(16, 255, "filter size. Valid range is 16-255"), QueueTypes: stream},
		{Name: "stream-max-segment-size-bytes", Check: between(0, maxSegment, "segment size"), QueueTypes: stream},
		{Name: "target-group-size", Check: atLeast(1, "target group size"), Operator: true, Merge: takeHigher, QueueTypes: copied},
	}
}

// expiryStrategy returns the key expiry-strategy. strategies returns the accepted names; nil accepts any name.
func expiryStrategy(strategies func() []string) keyRule {
	return keyRule{
		Name: expiryStrategyKey, Operator: true, QueueTypes: []string{Classic, Quorum},
		Check: func(v any) error { return checkStrategy(v, strategies) },
	}
}

func checkStrategy(v any, strategies func() []string) error {
	name, ok := v.(string)
	if strategies == nil && ok && name != "" {
		return nil
	}
	if strategies == nil {
		return invalid(v, "expiry strategy")
	}
	known := strategies()
	switch {
	case ok && slices.Contains(known, name):
		return nil
	case !ok:
		return errors.New(term(v) + " is not a valid expiry strategy, expected one of " + strings.Join(known, ", "))
	}
	return errors.New("unknown expiry strategy '" + shorten(name) + "', expected one of " + strings.Join(known, ", "))
}

// invalid returns RabbitMQ's error for an invalid value.
func invalid(v any, what string) error {
	return errors.New(term(v) + " is not a valid " + what)
}

func atLeast(low int64, what string) func(any) error {
	return between(low, math.MaxInt64, what)
}

// is returns a check for values of type T that ok accepts.
func is[T any](what string, ok func(T) bool) func(any) error {
	return func(v any) error {
		if t, isT := v.(T); isT && ok(t) {
			return nil
		}
		return invalid(v, what)
	}
}

func between(low, high int64, what string) func(any) error {
	return is(what, func(n int64) bool { return low <= n && n <= high })
}

func text(what string) func(any) error { return is(what, func(string) bool { return true }) }

func shortString(what string) func(any) error {
	return is(what, func(s string) bool { return len(s) <= maxName })
}

func oneOf(what string, accepted ...string) func(any) error {
	return is(what, func(s string) bool { return slices.Contains(accepted, s) })
}

func quoted(key, one, other string) func(any) error {
	return func(v any) error {
		if v == one || v == other {
			return nil
		}
		return errors.New(key + ` must be "` + one + `" or "` + other + `", got ` + term(v))
	}
}

func batchSize(v any) error {
	if n, ok := v.(int64); ok && n > 0 {
		return nil
	}
	return errors.New("ha-sync-batch-size takes an integer greater than 0, " + term(v) + " given")
}

func masterLocator(v any) error {
	if v == "min-masters" || v == "client-local" || v == "random" {
		return nil
	}
	return errors.New(term(v) + " invalid queue-master-locator value")
}

// isAge accepts a positive number with a unit: "7D".
func isAge(s string) bool {
	number := strings.TrimRight(s, "YMDhms")
	return len(number) == len(s)-1 && strings.Trim(number, "0123456789") == "" && strings.Trim(number, "0") != ""
}
