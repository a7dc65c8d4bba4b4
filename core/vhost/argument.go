package vhost

import (
	"cmp"
	"errors"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/curfewmq/curfew/core/queue"
	"github.com/curfewmq/curfew/core/rabbit"
	"github.com/curfewmq/curfew/sdk/hook"
)

// typeStream is the queue type that is known so that it can be refused in words.
const typeStream = "stream"

// The arguments that the core itself acts on, wherever their checks are.
const (
	argQueueType     = "x-queue-type"
	argMaxPriority   = "x-max-priority"
	argSingleActive  = "x-single-active-consumer"
	argDeliveryLimit = "x-delivery-limit"
	argNamePrefix    = "x-name-prefix"
	argDeadLetter    = "x-dead-letter-exchange"
)

// settingStrategy is the expiry strategy, as policies name it; the argument is the chain's.
const settingStrategy = "expiry-strategy"

const (
	maxPriority   = 255
	maxNamePrefix = 64
	// defaultDeliveryLimit is that of a quorum queue that names none [RabbitMQ: quorum-queues.html#poison-message-handling].
	defaultDeliveryLimit = 20
)

var (
	onlyClassic = []string{queue.Classic}
	onlyQuorum  = []string{queue.Quorum}
	onlyStream  = []string{typeStream}
	notStream   = []string{queue.Classic, queue.Quorum}
	every       = []string{queue.Classic, queue.Quorum, typeStream}
)

// coreArguments are the arguments that no plugin has to bring. Some mean nothing here, such as those about replicas; they
// are still checked, and compared when a queue is declared again.
var coreArguments = []hook.Argument{
	{Name: argQueueType, QueueTypes: every, Check: oneOf("unsupported queue type", every...)},
	{Name: argMaxPriority, QueueTypes: onlyClassic, Check: checkMaxPriority},
	{Name: "x-queue-mode", QueueTypes: onlyClassic, Check: oneOf("unsupported queue mode", "default", "lazy")},
	{Name: "x-queue-version", QueueTypes: onlyClassic, Check: checkVersion},
	{Name: "x-queue-master-locator", QueueTypes: onlyClassic, Check: checkString},
	{Name: "x-queue-leader-locator", QueueTypes: every, Check: checkLocator},
	{Name: argSingleActive, QueueTypes: notStream, Check: checkBool},
	{Name: argDeliveryLimit, QueueTypes: onlyQuorum, Check: from(math.MinInt64)},
	{Name: "x-max-in-memory-length", QueueTypes: onlyQuorum, Check: from(0)},
	{Name: "x-max-in-memory-bytes", QueueTypes: onlyQuorum, Check: from(0)},
	{Name: "x-quorum-initial-group-size", QueueTypes: onlyQuorum, Check: from(1)},
	{Name: "x-quorum-target-group-size", QueueTypes: onlyQuorum, Check: from(1)},
	{Name: "x-consumer-timeout", QueueTypes: notStream, Check: from(0)},
	{Name: argNamePrefix, QueueTypes: notStream, Check: checkNamePrefix},
	{Name: "x-initial-cluster-size", QueueTypes: onlyStream, Check: from(1)},
	{Name: "x-max-age", QueueTypes: onlyStream, Check: checkString},
	{Name: "x-stream-max-segment-size-bytes", QueueTypes: onlyStream, Check: from(0)},
	{Name: "x-stream-filter-size-bytes", QueueTypes: onlyStream, Check: from(0)},
}

// argumentOrder is the order in which RabbitMQ compares arguments, and checks them once it has checked the queue's type: of
// several that are wrong, the first one is what the client is told about.
var argumentOrder = []string{
	"x-expires", "x-message-ttl", argDeadLetter, "x-dead-letter-routing-key", "x-dead-letter-strategy",
	"x-max-length", "x-max-length-bytes", "x-max-in-memory-length", "x-max-in-memory-bytes",
	argMaxPriority, "x-overflow", "x-queue-mode", "x-queue-version", argSingleActive, argQueueType,
}

// ordered puts known arguments into the order in which they are checked and compared; what RabbitMQ has no place for stays
// behind, as it comes.
func ordered(arguments []hook.Argument) []hook.Argument {
	place := func(a hook.Argument) int {
		if i := slices.Index(argumentOrder, a.Name); i >= 0 {
			return i
		}
		return len(argumentOrder)
	}
	slices.SortStableFunc(arguments, func(a, b hook.Argument) int { return cmp.Compare(place(a), place(b)) })
	return arguments
}

// supports says whether an argument means anything for queues of this type. Plugins know nothing of streams: what they
// leave open is for the others.
func supports(a *hook.Argument, queueType string) bool {
	if a.QueueTypes == nil {
		return queueType != typeStream
	}
	return slices.Contains(a.QueueTypes, queueType)
}

// queueType is what the arguments ask for; they need not have been checked.
func queueType(args hook.Args) string {
	if t, ok := args.Lookup(argQueueType); ok {
		s, _ := t.(string)
		return s
	}
	return queue.Classic
}

// checkArguments refuses values that an argument cannot have, and arguments that queues of the type do not have. What
// nobody knows is left alone.
func (v *VHost) checkArguments(name string, args hook.Args) error {
	// Its type says what else a queue may have.
	if err := v.checkArgument(v.argument(argQueueType), name, args); err != nil {
		return err
	}
	of := queueType(args)
	for i := range v.arguments {
		a := &v.arguments[i]
		if !supports(a, of) {
			continue
		}
		if err := v.checkArgument(a, name, args); err != nil {
			return err
		}
	}
	for _, arg := range args {
		if a := v.argument(arg.Name); a != nil && !supports(a, of) {
			return refuse(Precondition, "invalid arg '%s' for %s of queue type rabbit_%s_queue", arg.Name, v.queueName(name), of)
		}
	}
	return nil
}

// checkArgument refuses a value that an argument cannot have.
func (v *VHost) checkArgument(a *hook.Argument, name string, args hook.Args) error {
	value, ok := args.Lookup(a.Name)
	if !ok {
		return nil
	}
	if err := a.Check(value, args); err != nil {
		return v.invalidArgument(a.Name, name, err)
	}
	return nil
}

// argument finds what is known of an argument.
func (v *VHost) argument(name string) *hook.Argument {
	i := slices.IndexFunc(v.arguments, func(a hook.Argument) bool { return a.Name == name })
	if i < 0 {
		return nil
	}
	return &v.arguments[i]
}

func (v *VHost) invalidArgument(argument, name string, err error) error {
	if wrong, ok := errors.AsType[*hook.ArgTypeError](err); ok {
		return refuse(Precondition, "invalid type '%s' for arg '%s' in %s", wrong.Type, argument, v.queueName(name))
	}
	return refuse(Precondition, "invalid arg '%s' for %s: %v", argument, v.queueName(name), err)
}

// The checks. What they say is what clients of RabbitMQ read: text in quotes, {reason,value} pairs.

func invalid(term string) error { return &hook.ArgError{Term: term} }

// from checks for an integer that is not below low.
func from(low int64) func(any, hook.Args) error {
	return func(v any, _ hook.Args) error { return hook.CheckInt(v, low, math.MaxInt64) }
}

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

// oneOf checks for one of a few words; complaint says what any other is.
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
