package vhost

import (
	"errors"
	"slices"
	"strings"

	"github.com/curfewmq/curfew/core/amqp"
	"github.com/curfewmq/curfew/core/chain"
	"github.com/curfewmq/curfew/core/queue"
	"github.com/curfewmq/curfew/core/rabbit"
	"github.com/curfewmq/curfew/core/route"
	"github.com/curfewmq/curfew/sdk/hook"
)

// Validator checks whether objects could be created in a vhost, which need not exist. It creates nothing.
type Validator struct {
	chain     *chain.Chain
	arguments []hook.Argument
}

// NewValidator returns a validator for queues and exchanges with these plugins.
func NewValidator(c *chain.Chain) *Validator {
	return &Validator{c, sortArguments(slices.Concat(coreArguments, c.Arguments()))}
}

func (c *Validator) rulesOf(vhost string) rules { return rules{vhost, c.chain, c.arguments} }

// Queue checks the declaration of a queue with a name.
func (c *Validator) Queue(vhost string, d QueueDeclare) error {
	r := c.rulesOf(vhost)
	if err := d.checkName(); err != nil {
		return err
	}
	args := hookArgs(d.Args)
	if err := r.checkArguments(d.Name, args); err != nil {
		return err
	}
	return r.checkProperties(d, queueType(args))
}

// Exchange checks the declaration of an exchange.
func (c *Validator) Exchange(vhost string, d Exchange) error {
	r := c.rulesOf(vhost)
	d.Type = r.chain.TypeName(d.Type)
	if err := r.checkExchangeType(d.Type); err != nil {
		return err
	}
	return r.checkNewExchange(d, nil)
}

// Binding checks the key and the arguments of a binding from an exchange.
func (c *Validator) Binding(vhost string, from Exchange, b Binding) error {
	r := c.rulesOf(vhost)
	from.Type = r.chain.TypeName(from.Type)
	return r.checkBinding(&from, &b)
}

// Parameters checks the number and the total size of parameters, each of which was checked by itself. Of several with the same name the
// last counts.
func (*Validator) Parameters(vhost string, all []Parameter) error {
	last := make(map[parameterKey]int, len(all))
	size := 0
	for _, p := range all {
		k, n := parameterKey{p.Component, p.Name}, len(p.Component)+len(p.Name)+len(p.Value)
		size += n - last[k]
		last[k] = n
	}
	if len(last) > maxParameters {
		return refuse(Precondition, "%d parameters in vhost '%s': at most %d are allowed", len(last), vhost, maxParameters)
	}
	if size > MaxParameters {
		return refuse(Precondition, "the parameters in vhost '%s' have %d bytes: at most %d are allowed", vhost, size, MaxParameters)
	}
	return nil
}

// rules checks declarations in one vhost.
type rules struct {
	name      string // of the vhost, for error texts
	chain     *chain.Chain
	arguments []hook.Argument // known ones, the core's and the plugins', in the order they are checked
}

// checkArguments refuses invalid values of known arguments, and known arguments that the type of queue does not support.
// Unknown arguments are ignored.
func (r *rules) checkArguments(name string, args hook.Args) error {
	// The type first: it decides which arguments are supported.
	if err := r.checkArgument(r.argument(argQueueType), name, args); err != nil {
		return err
	}
	of := queueType(args)
	for i := range r.arguments {
		a := &r.arguments[i]
		if !supports(a, of) {
			continue
		}
		if err := r.checkArgument(a, name, args); err != nil {
			return err
		}
	}
	for _, arg := range args {
		if a := r.argument(arg.Name); a != nil && !supports(a, of) {
			return refuse(Precondition, "invalid arg '%s' for %s of queue type rabbit_%s_queue", arg.Name, r.queueName(name), of)
		}
	}
	return nil
}

func (r *rules) checkArgument(a *hook.Argument, name string, args hook.Args) error {
	value, ok := args.Lookup(a.Name)
	if !ok {
		return nil
	}
	err := a.Check(value, args)
	if wrong, ok := errors.AsType[*hook.ArgTypeError](err); ok {
		return refuse(Precondition, "invalid type '%s' for arg '%s' in %s", wrong.Type, a.Name, r.queueName(name))
	}
	if err != nil {
		return refuse(Precondition, "invalid arg '%s' for %s: %v", a.Name, r.queueName(name), err)
	}
	return nil
}

// argument returns a known argument; nil if it is unknown.
func (r *rules) argument(name string) *hook.Argument {
	i := slices.IndexFunc(r.arguments, func(a hook.Argument) bool { return a.Name == name })
	if i < 0 {
		return nil
	}
	return &r.arguments[i]
}

// exchangesIn returns the exchanges that arguments name as targets for the queue's messages.
func (r *rules) exchangesIn(args hook.Args) []string {
	var names []string
	for i := range r.arguments {
		if !r.arguments[i].NamesExchange {
			continue
		}
		v, _ := args.Lookup(r.arguments[i].Name)
		if name, ok := v.(string); ok {
			names = append(names, name)
		}
	}
	return names
}

// checkProperties refuses streams, and properties that a quorum queue cannot have.
func (r *rules) checkProperties(d QueueDeclare, of string) error {
	const wrong = "invalid property '%s' for %s"
	name := r.queueName(d.Name)
	switch {
	case of == typeStream:
		return refuse(NotImplemented, "%s: queue type 'stream' is not offered, only 'classic' and 'quorum'", name)
	case of != queue.Quorum:
		return nil
	case d.AutoDelete:
		return refuse(Precondition, wrong, "auto-delete", name)
	case d.Exclusive:
		return refuse(Precondition, wrong, "exclusive-owner", name)
	case !d.Durable:
		return refuse(Precondition, wrong, "non-durable", name)
	}
	return nil
}

// checkNewExchange checks name and arguments of an exchange that does not exist. See [VHost.DeclareExchange] for allow.
func (r *rules) checkNewExchange(d Exchange, allow func(alternate string) error) error {
	if err := checkNewName("exchange", d.Name); err != nil {
		return err
	}
	if err := r.checkAlternate(&d, allow); err != nil {
		return err
	}
	if err := r.chain.CheckExchange(r.hookExchange(&d)); err != nil {
		return refuse(Precondition, "%v", err)
	}
	return nil
}

func (r *rules) checkAlternate(d *Exchange, allow func(alternate string) error) error {
	alternate, ok := d.Args.Lookup(argAlternate)
	if !ok {
		return nil
	}
	name, ok := alternate.(string)
	if !ok {
		return refuse(Precondition, "invalid type '%s' for arg '%s' in %s", amqp.TypeName(alternate), argAlternate, r.exchangeName(d.Name))
	}
	if allow == nil {
		return nil
	}
	return allow(name)
}

// checkExchangeType refuses the name of a type that neither the broker nor a plugin offers.
func (r *rules) checkExchangeType(name string) error {
	if _, ok := route.ParseKind(name); !ok && r.chain.ExchangeType(name) == nil {
		return refuse(Precondition, "unknown exchange type '%s'", name)
	}
	return nil
}

// checkBinding refuses keys and arguments that bindings from an exchange cannot have. An exchange of a type that no plugin offers accepts
// any.
func (r *rules) checkBinding(x *Exchange, b *Binding) error {
	described := r.hookExchange(x)
	if t := r.chain.ExchangeType(x.Type); t != nil && t.Schedule != nil {
		s, err := r.chain.NewSchedule(described)
		if err != nil {
			return refuse(Precondition, "%v", err)
		}
		described.Type = s.Inner()
	}
	if kind, ok := route.ParseKind(described.Type); ok {
		return checkBindingArguments(kind, b.Args)
	}
	t := r.chain.ExchangeType(described.Type)
	if t == nil {
		return nil
	}
	if err := t.CheckBinding(described, b.Key, hookArgs(b.Args)); err != nil {
		return refuse(Precondition, "%v", err)
	}
	return nil
}

// checkName refuses names that the queue cannot have.
func (d *QueueDeclare) checkName() error {
	if d.Restored {
		return checkNameLength("queue", d.Name)
	}
	return checkNewName("queue", d.Name)
}

// checkNewName refuses names that only existing objects may have. The error text calls the object what, "queue" or "exchange".
func checkNewName(what, name string) error {
	if strings.HasPrefix(name, rabbit.ReservedPrefix) {
		return refuse(AccessRefused, "%s name '%s' contains reserved prefix 'amq.*'", what, name)
	}
	return checkNameLength(what, name)
}

func checkNameLength(what, name string) error {
	if len(name) > rabbit.MaxName {
		return refuse(Precondition, "%s name of %d bytes: at most %d are allowed", what, len(name), rabbit.MaxName)
	}
	return nil
}

// supports reports whether queues of this type have an argument. Plugins do not know streams: an argument without types is for all other
// types.
func supports(a *hook.Argument, queueType string) bool {
	if a.QueueTypes == nil {
		return queueType != typeStream
	}
	return slices.Contains(a.QueueTypes, queueType)
}

// queueType returns the type that arguments ask for. They need not have been checked.
func queueType(args hook.Args) string {
	if t, ok := args.Lookup(argQueueType); ok {
		s, _ := t.(string)
		return s
	}
	return queue.Classic
}
