// Package route decides where messages go: it holds the bindings of an exchange, and matches routing keys and headers against
// them.
//
// It does no I/O and reads no clock. A destination is any comparable value: a queue, an exchange, a tagged union of both.
package route

import (
	"github.com/curfewmq/curfew/core/amqp"
	"github.com/curfewmq/curfew/core/rabbit"
)

// Kind is how an exchange matches messages.
type Kind uint8

// The exchange types [AMQP 3.1.3], and Plugin for all others, whose bindings are only stored and numbered.
const (
	Direct Kind = iota
	Fanout
	Topic
	Headers
	Plugin
)

var kinds = [...]string{"direct", "fanout", "topic", "headers"}

// String returns the type's name in exchange.declare. The names of plugins' types are not known here.
func (k Kind) String() string {
	if k == Plugin {
		return "plugin"
	}
	return kinds[k]
}

// ParseKind returns the kind of exchange for the name of a type. ok is false if the protocol has no such type.
func ParseKind(name string) (Kind, bool) {
	for k, n := range kinds {
		if n == name {
			return Kind(k), true
		}
	}
	return 0, false
}

const matchArg = "x-match"

// Validate checks the arguments of a binding to an exchange of this type. The error is an [*amqp.Error] with RabbitMQ's text
// [RabbitMQ: exchanges.html#headers].
func Validate(kind Kind, args amqp.Table) error {
	if kind != Headers {
		return nil
	}
	v, ok := args.Lookup(matchArg)
	if !ok {
		return nil
	}
	mode, ok := v.(string)
	if !ok {
		return amqp.Errorf(amqp.ReplyPreconditionFailed, "Invalid x-match field type %s (value %s); expected longstr", amqp.TypeName(v), rabbit.Term(v))
	}
	switch mode {
	case "all", "any", "all-with-x", "any-with-x":
		return nil
	}
	return amqp.Errorf(amqp.ReplyPreconditionFailed, "Invalid x-match field value %s; expected all, any, all-with-x, or any-with-x", rabbit.Term(v))
}
