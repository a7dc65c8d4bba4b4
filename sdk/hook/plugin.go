package hook

import (
	"fmt"
	"math"
	"strconv"
)

// Plugin is one configured plugin. The broker calls it from one goroutine at a
// time per queue; what it shares between queues it must not change.
type Plugin interface {
	// Arguments lists the queue arguments the plugin gives a meaning to. They
	// are checked at declaration and compared on redeclaration.
	Arguments() []Argument
	// Attach is called when a queue comes to be or its settings change. The
	// settings have passed the checks of Arguments.
	Attach(q Queue) Hooks
}

// Strategist is a plugin that offers expiry strategies.
type Strategist interface {
	Plugin
	// Strategies lists the names that x-expiry-strategy may have.
	Strategies() []string
	// DefaultStrategy is the one of a queue that names none; "" leaves the
	// choice to another plugin.
	DefaultStrategy() string
}

// Dynamic is a Strategist whose strategies come and go while the broker runs.
// Strategies may be called from any goroutine.
type Dynamic interface {
	Strategist
	// OnChange is called once, when the broker starts, with what is to be called
	// when a strategy came, went, or became another. It may be called from any
	// goroutine but a queue's turn, that is not from Attach or a callback. When it
	// returns, the queues that chose the strategy were attached anew; recompute
	// also begins to ask OnRestamp for the messages they hold.
	OnChange(changed func(strategy string, recompute bool))
}

// Argument is a queue argument that a plugin understands.
type Argument struct {
	// Name as clients write it, "x-message-ttl".
	Name string
	// Check refuses a value; all holds every argument of the declaration. Its
	// error is an [ArgError] or [ArgTypeError].
	Check func(v any, all Args) error
	// QueueTypes limits the argument to these types ("classic", "quorum"); nil means both.
	QueueTypes []string
}

// Args are the arguments of a declaration in the order they were sent. Values
// have the Go type that stands for their AMQP type: bool, int8 to int64, uint8
// to uint32, float32, float64, string, []byte, nil, and the broker's own types
// for decimals, timestamps, arrays and tables.
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

// ArgError refuses an argument's value. The client reads it as
// "invalid arg 'NAME' for queue 'Q' in vhost 'V': TERM".
type ArgError struct{ Term string }

func (e *ArgError) Error() string { return e.Term }

// ArgTypeError refuses an argument's type where RabbitMQ words it differently:
// "invalid type 'TYPE' for arg 'NAME' in queue 'Q' in vhost 'V'".
type ArgTypeError struct{ Type string }

func (e *ArgTypeError) Error() string { return "invalid type '" + e.Type + "'" }

// Int returns v as an integer when it has one of AMQP's integer types.
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

// HeaderInt returns the value of a header as [Source] has it where that is decoded
// already: an integer, 1 or 0 for a truth value, a float that is whole, text that is
// decimal digits.
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

// WholeFloat returns f as an integer if it is one.
func WholeFloat(f float64) (int64, bool) {
	const limit = 1 << 63
	if f != math.Trunc(f) || f < -limit || f >= limit {
		return 0, false
	}
	return int64(f), true
}

// WholeText returns decimal digits, with a minus in front or without, as an
// integer.
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

// TypeName returns RabbitMQ's name for the AMQP type of v, as its error texts
// have it.
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
	// Name is how the chain and the section call it.
	Name string
	// New decodes the section over the plugin's defaults and builds it. decode
	// fills the struct it is given (fields tagged `koanf:"name"`, and explained
	// to the operator with `doc:"one sentence"`) and refuses unknown keys; it
	// may leave everything as it was. config is the struct as it came out, for
	// printing the effective configuration.
	New func(decode func(into any) error) (p Plugin, config any, err error)
}

// NewFactory returns the factory of a plugin whose configuration is a C.
// defaults is what an absent section means; build checks the values and its
// error is "KEY: " and the value and what would be accepted, or several of
// these joined.
func NewFactory[C any](name string, defaults C, build func(C) (Plugin, error)) Factory {
	return Factory{Name: name, New: func(decode func(any) error) (Plugin, any, error) {
		c := defaults
		if err := decode(&c); err != nil {
			return nil, nil, err
		}
		p, err := build(c)
		return p, c, err
	}}
}
