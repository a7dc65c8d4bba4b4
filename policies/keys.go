package policies

import (
	"errors"
	"math"
	"slices"
	"strings"

	"github.com/curfewmq/curfew/sdk/hook"
)

// keyRule is a setting that policies may have. Unlike in a plugin's key, nil QueueTypes always means all types, not those of an argument.
type keyRule struct {
	name string
	hook.PolicyKey
}

// argument says how to combine a policy's value with that of the argument "x-"+name.
func (k *keyRule) argument(queueType string) hook.Merge {
	if k.QuorumArgument != nil && queueType == Quorum {
		return *k.QuorumArgument
	}
	return k.Argument
}

func (k *keyRule) types() typeSet {
	if k.QueueTypes == nil {
		return onAll
	}
	return typesOf(k.QueueTypes...) | onExchange
}

// key is a short name for the table of keys.
type key = hook.PolicyKey

// expiryStrategyKey names the key that chooses a queue's expiry strategy.
const expiryStrategyKey = "expiry-strategy"

// maxName is the maximum length of an exchange's name or a routing key, in bytes: AMQP encodes them as short strings.
const maxName = 255

// maxSegment is RabbitMQ's limit of a stream's segments, in bytes.
const maxSegment = 3_000_000_000

// builtin returns the keys of RabbitMQ 4 that none of our plugins has, and keys that occur in definitions files of RabbitMQ 3. It
// also returns our own delivery-lease, but not expiry-strategy, which depends on the loaded plugins. Queue types are as in RabbitMQ.
func builtin() []keyRule {
	var (
		classic = []string{Classic}
		quorum  = []string{Quorum}
		stream  = []string{Stream}
		copied  = []string{Quorum, Stream}

		classicOrQuorum = []string{Classic, Quorum}

		lower, higher, lowerLimit, weaker = hook.TakeLower, hook.TakeHigher, hook.TakeLowerLimit, hook.TakeWeaker
	)
	const (
		alternate     = "alternate exchange name"
		deliveryLease = "delivery lease. Valid range is 1-315360000000"
		inMemory      = "maximum memory in bytes"
		locator       = "queue leader locator value"
		filterSize    = "filter size. Valid range is 16-255"
	)
	return []keyRule{
		{"alternate-exchange", key{Check: hook.PolicyString(maxName, alternate), Argument: weaker}},
		{"consumer-disconnected-timeout", key{Check: atLeast(0, "consumer disconnected timeout"), Argument: lower, QueueTypes: quorum}},
		{"consumer-timeout", key{Check: atLeast(0, "consumer timeout"), Argument: lower}},
		{"delivery-lease", key{Check: hook.PolicyInt(1, hook.MaxMillis, deliveryLease), Operator: true, Merge: lower, Argument: lower, QueueTypes: classicOrQuorum}},
		{"delivery-limit", key{Check: atLeast(math.MinInt64, "delivery limit"), Operator: true, Merge: lowerLimit, Argument: lowerLimit, QueueTypes: quorum}},
		{"federation-upstream", key{Check: hook.PolicyString(math.MaxInt, "federation upstream name")}},
		{"federation-upstream-pattern", key{Check: hook.PolicyString(math.MaxInt, "federation upstream pattern")}},
		{"federation-upstream-set", key{Check: hook.PolicyString(math.MaxInt, "federation upstream set name")}},
		{"ha-mode", key{Check: hook.PolicyOneOf("ha-mode value", "all", "exactly", "nodes"), QueueTypes: classic}},
		{"ha-params", key{QueueTypes: classic}},
		{"ha-promote-on-failure", key{Check: quoted("ha-promote-on-failure", "always", "when-synced"), QueueTypes: classic}},
		{"ha-promote-on-shutdown", key{Check: quoted("ha-promote-on-shutdown", "always", "when-synced"), QueueTypes: classic}},
		{"ha-sync-batch-size", key{Check: batchSize, QueueTypes: classic}},
		{"ha-sync-mode", key{Check: quoted("ha-sync-mode", "manual", "automatic"), QueueTypes: classic}},
		{"initial-cluster-size", key{Check: atLeast(0, "cluster size"), QueueTypes: stream}},
		{"max-age", key{Check: checkAge, QueueTypes: stream}},
		{"max-in-memory-bytes", key{Check: atLeast(0, inMemory), Operator: true, Merge: lower, Argument: lower, QueueTypes: quorum}},
		{"max-in-memory-length", key{Check: atLeast(0, inMemory), Operator: true, Merge: lower, Argument: lower, QueueTypes: quorum}},
		{"member-placement-tag", key{Check: hook.PolicyString(math.MaxInt, "member placement tag"), Operator: true, QueueTypes: copied}},
		{"queue-leader-locator", key{Check: hook.PolicyOneOf(locator, "client-local", "balanced", "random", "least-leaders"), Argument: weaker}},
		{"queue-master-locator", key{Check: masterLocator, Argument: weaker, QueueTypes: classic}},
		{"queue-mode", key{Check: hook.PolicyOneOf("queue-mode value", "default", "lazy"), Argument: weaker, QueueTypes: classic}},
		{"queue-version", key{Check: hook.PolicyInt(1, 2, "queue-version value"), Operator: true, Argument: weaker}},
		{"routing-key", key{Check: hook.PolicyString(maxName, "routing key")}},
		{"shards-per-node", key{Check: atLeast(0, "number of shards per node")}},
		{"stream-filter-size-bytes", key{Check: hook.PolicyInt(16, 255, filterSize), QueueTypes: stream}},
		{"stream-max-segment-size-bytes", key{Check: hook.PolicyInt(0, maxSegment, "segment size"), QueueTypes: stream}},
		{"target-group-size", key{Check: atLeast(1, "target group size"), Operator: true, Merge: higher, QueueTypes: copied}},
	}
}

// withoutEffect are keys that change RabbitMQ's behaviour, and that this broker accepts without acting on them, so that RabbitMQ's
// definitions can be imported. Other keys without effect here, such as queue-mode, only concern RabbitMQ's implementation.
var withoutEffect = []string{
	"federation-upstream", "federation-upstream-pattern", "federation-upstream-set", "ha-mode", "routing-key", "shards-per-node",
}

// WithoutEffect returns the keys that the policy sets and that this broker accepts without acting on them.
func (p *Policy) WithoutEffect() (keys []string) {
	for _, e := range p.Definition {
		if slices.Contains(withoutEffect, e.Key) {
			keys = append(keys, e.Key)
		}
	}
	return keys
}

// expiryStrategy returns the key expiry-strategy. strategies returns the accepted names; a nil strategies accepts any name.
func expiryStrategy(strategies func() []string) keyRule {
	return keyRule{expiryStrategyKey, key{
		Operator: true, QueueTypes: []string{Classic, Quorum},
		Check: func(v any) error { return checkStrategy(v, strategies) },
	}}
}

func checkStrategy(v any, strategies func() []string) error {
	name, ok := v.(string)
	if strategies == nil && ok && name != "" {
		return nil
	}
	if strategies == nil {
		return &hook.InvalidError{What: "expiry strategy"}
	}
	known := strategies()
	switch {
	case ok && slices.Contains(known, name):
		return nil
	case !ok:
		return &hook.InvalidError{What: "expiry strategy, expected one of " + strings.Join(known, ", ")}
	}
	return errors.New("unknown expiry strategy '" + shorten(name) + "', expected one of " + strings.Join(known, ", "))
}

func atLeast(low int64, what string) func(any) error { return hook.PolicyInt(low, math.MaxInt64, what) }

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

// checkAge accepts a positive number with a unit: "7D".
func checkAge(v any) error {
	s, _ := v.(string)
	number := strings.TrimRight(s, "YMDhms")
	if len(number) == len(s)-1 && strings.Trim(number, "0123456789") == "" && strings.Trim(number, "0") != "" {
		return nil
	}
	return &hook.InvalidError{What: "max age"}
}
