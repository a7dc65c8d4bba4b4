package route

import (
	"github.com/curfewmq/curfew/core/amqp"
	"github.com/curfewmq/curfew/core/rabbit"
)

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
