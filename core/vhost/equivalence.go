package vhost

import (
	"fmt"
	"strings"

	"github.com/curfewmq/curfew/core/amqp"
	"github.com/curfewmq/curfew/core/queue"
	"github.com/curfewmq/curfew/core/rabbit"
	"github.com/curfewmq/curfew/sdk/hook"
)

// A redeclaration must mean the same as the declaration. Arguments are compared by value within a class of types: 10 equals 10 of
// any other integer type, and differs from 10.0 [RabbitMQ: queues.html#property-equivalence].

// property is a property of an existing object and of its redeclaration.
type property struct {
	name              string
	current, received any
}

// checkEquivalent compares properties. The error text calls the object what.
func checkEquivalent(what string, ps ...property) error {
	for _, p := range ps {
		if p.current != p.received {
			return inequivalent(what, p.name, fmt.Sprintf("'%v'", p.current), fmt.Sprintf("'%v'", p.received))
		}
	}
	return nil
}

func inequivalent(what, name, current, received string) error {
	return refuse(Precondition, "inequivalent arg '%s' for %s: received %s but current is %s", name, what, received, current)
}

// argument is an optional argument.
type argument struct {
	value any
	given bool
}

func optional(value any, given bool) argument { return argument{value, given} }

// checkEquivalentArgument compares an argument.
func checkEquivalentArgument(what, name string, current, received argument) error {
	if current.given == received.given && (!current.given || sameValue(current.value, received.value)) {
		return nil
	}
	if name == argQueueType && current.meansClassic() && received.meansClassic() {
		return nil
	}
	if current.given && received.given {
		return inequivalent(what, name, "'"+term(current.value)+"'", "'"+term(received.value)+"'")
	}
	return inequivalent(what, name, current.String(), received.String())
}

func (a argument) meansClassic() bool { return !a.given || a.value == queue.Classic }

// String shows an argument that only one side has in an error text.
func (a argument) String() string {
	if !a.given {
		return "none"
	}
	return "the value '" + term(a.value) + "' of type '" + amqp.TypeName(a.value) + "'"
}

func sameValue(a, b any) bool {
	if n, ok := amqp.Integer(a); ok {
		m, ok := amqp.Integer(b)
		return ok && n == m
	}
	if f, ok := float(a); ok {
		g, ok := float(b)
		return ok && f == g
	}
	return amqp.TypeName(a) == amqp.TypeName(b) && string(encode(a)) == string(encode(b))
}

func float(v any) (float64, bool) {
	switch f := v.(type) {
	case float32:
		return float64(f), true
	case float64:
		return f, true
	}
	return 0, false
}

// encode encodes a value for comparison.
func encode(v any) []byte {
	return amqp.AppendTable(nil, amqp.Table{{Value: v}})
}

// maxTerm limits a value in an error text, in bytes: reply texts have 255 at most.
const maxTerm = 200

// term prints a value as RabbitMQ does, truncated.
func term(v any) string {
	s := rabbit.Text(v)
	if len(s) > maxTerm {
		return strings.ToValidUTF8(s[:maxTerm], "") + "..."
	}
	return s
}

// CompareQueue returns the error that a declaration of an existing queue would get; nil if the queue does not exist. It is no use of the
// queue.
func (qs *queues) CompareQueue(d QueueDeclare) error {
	qs.description.applyDefaultType(&d)
	e, exists := qs.topology.lookup(d.Name)
	if !exists {
		return nil
	}
	return qs.checkEquivalentQueue(e, d, hookArgs(d.Args))
}

// CompareExchange returns the error that a declaration of an existing exchange would get; nil if the exchange does not exist.
func (xs *exchanges) CompareExchange(d Exchange) error {
	d.Type = xs.chain.TypeName(d.Type)
	current, exists := xs.topology.Exchange(d.Name)
	if !exists {
		return nil
	}
	return xs.checkEquivalentExchange(current, d)
}

// checkEquivalentQueue compares a declaration with the existing queue.
func (r *rules) checkEquivalentQueue(e queueEntry, d QueueDeclare, args hook.Args) error {
	if e.owner() != d.exclusiveOwner() {
		return r.locked(d.Name)
	}
	what, cfg := r.queueName(d.Name), e.mailbox.Config()
	if err := checkEquivalent(what, property{"durable", cfg.Durable, d.Durable}, property{"auto_delete", cfg.AutoDelete, d.AutoDelete}); err != nil {
		return err
	}
	for i := range r.arguments {
		a := &r.arguments[i]
		if !supports(a, cfg.Kind) {
			continue
		}
		if err := checkEquivalentArgument(what, a.Name, optional(cfg.Args.Lookup(a.Name)), optional(args.Lookup(a.Name))); err != nil {
			return err
		}
	}
	return nil
}

// checkEquivalentExchange compares a declaration with the existing exchange. Of the arguments only the alternate exchange counts, and
// arguments that a plugin wants to be compared.
func (r *rules) checkEquivalentExchange(current, received Exchange) error {
	what := r.exchangeName(current.Name)
	if err := checkEquivalent(what,
		property{"type", current.Type, received.Type},
		property{"durable", current.Durable, received.Durable},
		property{"auto_delete", current.AutoDelete, received.AutoDelete},
		property{"internal", current.Internal, received.Internal},
	); err != nil {
		return err
	}
	for _, name := range append([]string{argAlternate}, r.chain.ComparedArguments(current.Type)...) {
		if err := checkEquivalentArgument(what, name, optional(current.Args.Lookup(name)), optional(received.Args.Lookup(name))); err != nil {
			return err
		}
	}
	return nil
}
