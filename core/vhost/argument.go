package vhost

import (
	"cmp"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/curfewmq/curfew/core/queue"
	"github.com/curfewmq/curfew/core/rabbit"
	"github.com/curfewmq/curfew/sdk/hook"
)

// typeStream is known, so that it can be refused with a text of its own.
const typeStream = "stream"

// The arguments that the core itself reads. Plugins check some of them.
const (
	argQueueType     = "x-queue-type"
	argMaxPriority   = "x-max-priority"
	argSingleActive  = "x-single-active-consumer"
	argDeliveryLimit = "x-delivery-limit"
	argDeliveryLease = "x-delivery-lease"
	argNamePrefix    = "x-name-prefix"
)

// settingStrategy is the expiry strategy in policies. The chain has the argument.
const settingStrategy = "expiry-strategy"

const (
	maxPriority   = 255
	maxNamePrefix = 64
	// defaultDeliveryLimit is the delivery limit of quorum queues that set none [RabbitMQ: quorum-queues.html#poison-message-handling].
	defaultDeliveryLimit = 20
)

var (
	onlyClassic = []string{queue.Classic}
	onlyQuorum  = []string{queue.Quorum}
	onlyStream  = []string{typeStream}
	notStream   = []string{queue.Classic, queue.Quorum}
	every       = []string{queue.Classic, queue.Quorum, typeStream}
)

// coreArguments are the arguments that are known without plugins. Some, such as replica counts, have no effect here. They are still
// checked, and compared when a queue is redeclared. Order is RabbitMQ's; plugins' arguments stand between.
var coreArguments = []hook.Argument{
	{Name: "x-max-in-memory-length", QueueTypes: onlyQuorum, Order: 80, Check: atLeast(0)},
	{Name: "x-max-in-memory-bytes", QueueTypes: onlyQuorum, Order: 90, Check: atLeast(0)},
	{Name: argMaxPriority, QueueTypes: onlyClassic, Order: 100, Check: checkMaxPriority},
	{Name: "x-queue-mode", QueueTypes: onlyClassic, Order: 120, Check: oneOf("unsupported queue mode", "default", "lazy")},
	{Name: "x-queue-version", QueueTypes: onlyClassic, Order: 130, Check: checkVersion},
	{Name: argSingleActive, QueueTypes: notStream, Order: 140, Check: checkBool},
	{Name: argQueueType, QueueTypes: every, Order: 150, Check: oneOf("unsupported queue type", every...)},

	{Name: "x-queue-master-locator", QueueTypes: onlyClassic, Check: checkString},
	{Name: "x-queue-leader-locator", QueueTypes: every, Check: checkLocator},
	{Name: argDeliveryLimit, QueueTypes: onlyQuorum, Check: atLeast(math.MinInt64)},
	{Name: "x-quorum-initial-group-size", QueueTypes: onlyQuorum, Check: atLeast(1)},
	{Name: "x-quorum-target-group-size", QueueTypes: onlyQuorum, Check: atLeast(1)},
	{Name: "x-consumer-timeout", QueueTypes: notStream, Check: atLeast(0)},
	{Name: argDeliveryLease, QueueTypes: notStream, Check: checkLease},
	{Name: argNamePrefix, QueueTypes: notStream, Check: checkNamePrefix},
	{Name: "x-initial-cluster-size", QueueTypes: onlyStream, Check: atLeast(1)},
	{Name: "x-max-age", QueueTypes: onlyStream, Check: checkString},
	{Name: "x-stream-max-segment-size-bytes", QueueTypes: onlyStream, Check: atLeast(0)},
	{Name: "x-stream-filter-size-bytes", QueueTypes: onlyStream, Check: atLeast(0)},
}

// Arguments returns the names of the queue arguments that plugins cannot have, because the broker knows them without plugins.
func Arguments() []string {
	names := make([]string, len(coreArguments))
	for i := range coreArguments {
		names[i] = coreArguments[i].Name
	}
	return names
}

// sortArguments sorts arguments by the order in which they are checked and compared. Arguments without an Order come last, in their present
// order.
func sortArguments(arguments []hook.Argument) []hook.Argument {
	order := func(a hook.Argument) int {
		if a.Order == 0 {
			return math.MaxInt
		}
		return a.Order
	}
	slices.SortStableFunc(arguments, func(a, b hook.Argument) int { return cmp.Compare(order(a), order(b)) })
	return arguments
}

// The checks report errors in RabbitMQ's terms: quoted text, {reason,value} pairs.

func invalid(term string) error { return &hook.ArgError{Term: term} }

// atLeast checks for an integer that is not below low.
func atLeast(low int64) func(any, hook.Args) error {
	return func(v any, _ hook.Args) error { return hook.CheckInt(v, low, math.MaxInt64) }
}

func checkLease(v any, _ hook.Args) error { return hook.CheckInt(v, 1, hook.MaxMillis) }

func checkString(v any, _ hook.Args) error { return hook.CheckString(v) }

func checkMaxPriority(v any, _ hook.Args) error {
	if n, _ := hook.Int(v); n > maxPriority {
		return invalid("{max_value_exceeded," + strconv.FormatInt(n, 10) + "}")
	}
	return hook.CheckInt(v, 0, maxPriority)
}

func checkVersion(v any, _ hook.Args) error {
	n, _ := hook.Int(v)
	if err := hook.CheckInt(v, 0, math.MaxInt64); err != nil || n == 1 || n == 2 {
		return err
	}
	return invalid(`"unsupported queue version '` + strconv.FormatInt(n, 10) + `'"`)
}

func checkBool(v any, _ hook.Args) error {
	if _, ok := v.(bool); !ok {
		return invalid("{unacceptable_type," + hook.TypeName(v) + "}")
	}
	return nil
}

// oneOf checks for one of a few words. complaint is the error for any other.
func oneOf(complaint string, words ...string) func(any, hook.Args) error {
	return func(v any, _ hook.Args) error {
		s, _ := v.(string)
		return hook.CheckOneOf(v, `"`+complaint+` '`+s+`'"`, words...)
	}
}

func checkLocator(v any, _ hook.Args) error {
	return hook.CheckOneOf(v, "invalid_queue_locator_arg", "client-local", "balanced")
}

func checkNamePrefix(v any, _ hook.Args) error {
	if err := hook.CheckString(v); err != nil {
		return err
	}
	switch s, _ := v.(string); {
	case len(s) == 0 || len(s) > maxNamePrefix:
		return invalid(`"expected 1 to ` + strconv.Itoa(maxNamePrefix) + ` bytes, got ` + strconv.Itoa(len(s)) + `"`)
	case strings.HasPrefix(s, rabbit.ReservedPrefix):
		return invalid(`"the prefix 'amq.' is reserved"`)
	}
	return nil
}
