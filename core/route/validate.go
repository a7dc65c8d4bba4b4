package route

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/curfewmq/curfew/core/amqp"
)

const matchArg = "x-match"

// Validate checks the arguments of a binding to an exchange of this kind. The
// error is an [*amqp.Error] with RabbitMQ's text [RabbitMQ: exchanges.html#headers].
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
		return amqp.Errorf(amqp.ReplyPreconditionFailed, "Invalid x-match field type %s (value %s); expected longstr", amqp.TypeName(v), term(v))
	}
	switch mode {
	case "all", "any", "all-with-x", "any-with-x":
		return nil
	}
	return amqp.Errorf(amqp.ReplyPreconditionFailed, "Invalid x-match field value %s; expected all, any, all-with-x, or any-with-x", term(v))
}

// term writes a value as RabbitMQ's texts do: as an Erlang term.
func term(v any) string {
	switch v := v.(type) {
	case string:
		return binaryTerm(v)
	case []byte:
		return binaryTerm(string(v))
	case nil:
		return "undefined"
	}
	return fmt.Sprint(v)
}

// binaryTerm quotes printable text and spells out anything else as numbers.
func binaryTerm(s string) string {
	if s == "" {
		return "<<>>"
	}
	if !strings.ContainsFunc(s, unprintable) {
		return "<<" + strconv.Quote(s) + ">>"
	}
	octets := make([]string, len(s))
	for i := range len(s) {
		octets[i] = strconv.Itoa(int(s[i]))
	}
	return "<<" + strings.Join(octets, ",") + ">>"
}

func unprintable(r rune) bool {
	return (r < ' ' || r > '~') && !strings.ContainsRune("\b\t\n\v\f\r", r)
}
