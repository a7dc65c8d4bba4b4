package hook

import (
	"fmt"
	"math"
	"reflect"
	"strconv"
)

// Plugin is one configured plugin. For each queue the broker calls it from one goroutine at a time; it must not change data that queues
// share.
type Plugin interface {
	// Arguments returns the plugin's queue arguments. They are checked when a queue is declared, and compared when it is declared again.
	Arguments() []Argument
	// Attach is called when a queue is created and when its settings change. The settings have passed the checks of Arguments.
	Attach(q Queue) Hooks
}

// Strategist is a plugin that offers expiry strategies.
type Strategist interface {
	Plugin
	// Strategies returns the values that x-expiry-strategy may have.
	Strategies() []string
	// DefaultStrategy returns the strategy of queues that name none; "" leaves the choice to another plugin.
	DefaultStrategy() string
}

// Argument is a queue argument that a plugin supports. With Policy it is also a key of policies.
type Argument struct {
	// Name is the name in declarations, such as "x-message-ttl". It must start with "x-". Policies and [Queue.Setting] use the name without
	// this prefix.
	Name string
	// Check refuses invalid values; all contains every argument of the declaration. Its error is an [ArgError] or [ArgTypeError].
	Check func(v any, all Args) error
	// QueueTypes limits the argument to these types ("classic", "quorum"); nil means both.
	QueueTypes []string
	// Order is the argument's position when arguments are checked and compared: the client
	// gets the error of the first wrong one. Arguments with 0 come last, in the order of
	// the chain. RabbitMQ's have x-expires 10, x-message-ttl 20, x-dead-letter-exchange 30,
	// -routing-key 40 and -strategy 50, x-max-length 60, x-max-length-bytes 70,
	// x-max-in-memory-length 80 and -bytes 90, x-max-priority 100, x-overflow 110,
	// x-queue-mode 120, x-queue-version 130, x-single-active-consumer 140, x-queue-type
	// 150.
	Order int
	// NamesExchange means that the value is the name of an exchange to which the broker
	// will publish the queue's messages. The user that creates the queue then needs
	// permission to write to the exchange, and to read from the queue. The broker refuses
	// values that are not strings, even if Check accepts them.
	NamesExchange bool
	// Policy makes the argument a key of policies, named like the argument without its
	// "x-". nil means that only declarations can set the argument.
	Policy *PolicyKey
}

// PolicyKey says how policies set an argument. Values of policies come from JSON: bool,
// int64, float64, string, []any, map[string]any or nil. A queue's effective value,
// [Queue.Setting], comes from the declaration or from a policy and has the Go type of
// either; [IntSetting] and [StringSetting] read both.
//
// A policy stays when the plugin is removed from the chain. The key then has no effect, and
// the broker logs a warning when it starts. Values are not checked again at start: Attach
// may see a value that an earlier version of the plugin accepted.
type PolicyKey struct {
	// Check refuses invalid values; see [PolicyInt] and its siblings. It must not change v.
	// Its error is an [InvalidError], or any other error whose text is a line of the reply
	// and names the value. nil accepts any value.
	Check func(v any) error
	// CheckWith refuses a value that Check accepts because of the other settings in the
	// same definition; of returns these by their keys. The rules of Check apply. A queue's
	// settings may come from several policies and its declaration. Each of these is checked
	// separately, so their combination may violate the check. nil accepts any value.
	CheckWith func(v any, of func(key string) (any, bool)) error
	// Operator means that operator policies may have the key, too. Otherwise it is unknown there.
	Operator bool
	// Merge says how to combine an operator policy's value with a user policy's.
	Merge Merge
	// Argument says how to combine the policies' value with the argument's.
	Argument Merge
	// QuorumArgument, if not nil, replaces Argument for quorum queues.
	QuorumArgument *Merge
	// QueueTypes are the types of queues ("classic", "quorum", "stream") to which a policy
	// with the key applies; nil means those of the argument.
	QueueTypes []string
}

// Merge says which of two values of a setting applies. The stronger value is the operator policy's or, if the other value is an argument's,
// the policies'.
type Merge uint8

// The ways to merge. Integers are compared; the checks have ruled out other values.
const (
	TakeStronger   Merge = iota // the operator policy's, and the policies' over the argument's
	TakeWeaker                  // the user policy's, and the argument's
	TakeLower                   // the lower integer
	TakeHigher                  // the higher integer
	TakeLowerLimit              // the lower integer; a negative one means no limit
)

// InvalidError refuses a value of a policy: "VALUE is not a valid WHAT", where the broker
// prints the value as RabbitMQ does. What should name the setting and the accepted range,
// such as "night shift, expected 0 to 23 hours".
type InvalidError struct{ What string }

func (e *InvalidError) Error() string { return "not a valid " + e.What }

// Args are the arguments of a declaration, in the order in which they were sent. The Go type of a value corresponds to its AMQP type: bool,
// int8 to int64, uint8 to uint32, float32, float64, string, []byte, nil, and the broker's own types for decimals, timestamps, arrays and
// tables.
type Args []Arg

// Arg is one argument.
type Arg struct {
	Name  string
	Value any
}

// Lookup returns the value of the first argument with that name.
func (a Args) Lookup(name string) (any, bool) {
	for i := range a {
		if a[i].Name == name {
			return a[i].Value, true
		}
	}
	return nil, false
}

// ArgError refuses an argument's value. The client gets
// "invalid arg 'NAME' for queue 'Q' in vhost 'V': TERM".
type ArgError struct{ Term string }

func (e *ArgError) Error() string { return e.Term }

// ArgTypeError refuses an argument's type, with RabbitMQ's other text: "invalid type 'TYPE' for arg 'NAME' in queue 'Q' in vhost 'V'".
type ArgTypeError struct{ Type string }

func (e *ArgTypeError) Error() string { return "invalid type '" + e.Type + "'" }

// Int returns v as an integer if it has one of AMQP's integer types.
func Int(v any) (int64, bool) {
	switch n := v.(type) {
	case int8:
		return int64(n), true
	case uint8:
		return int64(n), true
	case int16:
		return int64(n), true
	case uint16:
		return int64(n), true
	case int32:
		return int64(n), true
	case uint32:
		return int64(n), true
	case int64:
		return n, true
	}
	return 0, false
}

// HeaderInt converts a decoded header value for [Source]: an integer, 1 or 0 for a boolean, a float without a fraction, or decimal digits.
func HeaderInt(v any) (int64, bool) {
	switch v := v.(type) {
	case bool:
		if v {
			return 1, true
		}
		return 0, true
	case float64:
		return WholeFloat(v)
	case string:
		return WholeText([]byte(v))
	}
	return Int(v)
}

// WholeFloat returns f as an integer; false if it has a fraction.
func WholeFloat(f float64) (int64, bool) {
	const limit = 1 << 63
	if f != math.Trunc(f) || f < -limit || f >= limit {
		return 0, false
	}
	return int64(f), true
}

// WholeText parses decimal digits with an optional minus sign.
func WholeText(b []byte) (int64, bool) {
	const longest = 20 // a minus and 19 digits
	if len(b) == 0 || len(b) > longest || b[0] == '+' {
		return 0, false
	}
	n, err := strconv.ParseInt(string(b), 10, 64)
	if err != nil {
		return 0, false
	}
	return n, true
}

// TypeName returns the name of v's AMQP type in RabbitMQ's error texts.
func TypeName(v any) string {
	switch v.(type) {
	case nil:
		return "void"
	case bool:
		return "bool"
	case int8:
		return "byte"
	case uint8:
		return "unsignedbyte"
	case int16:
		return "short"
	case uint16:
		return "unsignedshort"
	case int32:
		return "signedint"
	case uint32:
		return "unsignedint"
	case int64:
		return "long"
	case float32:
		return "float"
	case float64:
		return "double"
	case string:
		return "longstr"
	case []byte:
		return "binary"
	}
	if n, ok := v.(interface{ AMQPType() string }); ok {
		return n.AMQPType()
	}
	return fmt.Sprintf("%T", v)
}

// Factory makes a plugin from its section of the configuration.
type Factory struct {
	// Name is the plugin's name in the chain, and the name of its section.
	Name string
	// New decodes the section over the plugin's defaults and builds the plugin. decode
	// fills the given struct and refuses unknown keys; it may leave everything unchanged.
	// The struct's fields are tagged `koanf:"name"`, explained to the operator with
	// `doc:"one sentence"`, and limited with `range:"0..100"`, `range:"1.."` or `oneof:"a
	// b"`; test kits do not check limits. If New itself checks more, `accepts:"whole
	// seconds"` describes the accepted values. config is the decoded struct, for printing
	// the effective configuration.
	New func(decode func(into any) error) (p Plugin, config any, err error)
	// Package is the import path of the plugin's package, which appears in errors and "curfew version". [NewFactory] sets it; "" = unknown.
	Package string
}

// NewFactory returns the factory of a plugin whose configuration is a C, a struct of the
// plugin's package. defaults applies without a section. build checks the values. Its error
// is "KEY: " with the value and the accepted values, or several of these joined.
func NewFactory[C any](name string, defaults C, build func(C) (Plugin, error)) Factory {
	return Factory{Name: name, Package: reflect.TypeFor[C]().PkgPath(), New: func(decode func(any) error) (Plugin, any, error) {
		c := defaults
		if err := decode(&c); err != nil {
			return nil, nil, err
		}
		p, err := build(c)
		return p, c, err
	}}
}

// ExpirationChecker is a plugin that reads the expiration property of messages. A chain has at most one. Without one the property has no
// effect: it is passed on unread, and [Message.Expiration] is never set.
type ExpirationChecker interface {
	Plugin
	// CheckExpiration returns how long a publisher lets a message stay in each queue, in
	// milliseconds from 0; not set means no limit. An error refuses the message: its
	// publisher gets "invalid expiration 'RAW': " and the error's text.
	//
	// The broker calls CheckExpiration when the properties differ from those of the
	// channel's previous message, and again when it restamps queued messages: the result
	// must depend only on the bytes. CheckExpiration may be called from many goroutines at
	// once, and must not retain raw.
	CheckExpiration(raw []byte) (Limit, error)
}

// HoldReader is a plugin that reads holds from headers: until when publishers want their messages held. A chain has at most one. The broker
// holds the message once in each queue to which it is routed, but not as a dead letter or after a redrive.
type HoldReader interface {
	Plugin
	// HoldHeaders returns the names of the headers that the plugin reads: 1 to 8. No names
	// mean that it reads nothing. It is called once, when the broker starts.
	HoldHeaders() []string
	// ReadHold is called for a message that has at least one of the headers. values are in
	// the order of HoldHeaders, with the types of [Args], except that a timestamp is a
	// [time.Time]; nil means a header without a value, or an absent header. The text of its
	// error becomes the text of the publisher's PRECONDITION_FAILED.
	//
	// The broker calls ReadHold when the properties differ from those of the channel's
	// previous message, so the result must depend only on the headers: now is for checking
	// Wait.Until. ReadHold may be called from many goroutines at once, and must not retain
	// values.
	ReadHold(now Instant, values []any) (Wait, error)
}

// Wait is how long a message is held. The zero value does not hold it.
type Wait struct {
	After int64   // milliseconds after it enters a queue
	Until Instant // the later one applies
}
