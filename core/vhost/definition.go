package vhost

import (
	"github.com/curfewmq/curfew/core/amqp"
	"github.com/curfewmq/curfew/core/definition"
	"github.com/curfewmq/curfew/core/queue"
)

// What is durable in a vhost is written as definitions, see core/definition. All have the field vhost; the others depend on op:
//
//	vhost             description, tags, default-queue-type, tracing: the vhost exists, with nothing in it but the exchanges
//	                  that every vhost has
//	vhost.describe    the same; what is in the vhost stays
//	vhost.delete      nothing more: everything in it goes with it
//	exchange.declare  name, type, auto-delete, internal, arguments
//	exchange.delete   name; its bindings, in both directions, go with it
//	queue.declare     name, id, auto-delete, arguments
//	queue.delete      name; its bindings go with it
//	bind              source, destination, to-exchange, key, arguments
//	unbind            the same
//	policy.set        kind ("policy" or "operator_policy"), name, value: the policy as a JSON object
//	policy.clear      kind, name
//	parameter.set     component, name, value: JSON
//	parameter.clear   component, name
//
// Arguments have the types that the client gave them. Whatever goes because something else went has a definition of its own
// if it is not said here that it goes along.
const (
	opVHost           = "vhost"
	opDeclareExchange = "exchange.declare"
	opDeleteExchange  = "exchange.delete"
	opDeclareQueue    = "queue.declare"
	opDeleteQueue     = "queue.delete"
	opBind            = "bind"
	opUnbind          = "unbind"
	opSetPolicy       = "policy.set"
	opClearPolicy     = "policy.clear"
	opDescribe        = "vhost.describe"
	opDeleteVHost     = "vhost.delete"
	opSetParameter    = "parameter.set"
	opClearParameter  = "parameter.clear"
)

// The fields of definitions.
const (
	fieldVHost       = "vhost"
	fieldName        = "name"
	fieldType        = "type"
	fieldID          = "id"
	fieldAutoDelete  = "auto-delete"
	fieldInternal    = "internal"
	fieldSource      = "source"
	fieldDestination = "destination"
	fieldToExchange  = "to-exchange"
	fieldKey         = "key"
	fieldArguments   = "arguments"
	fieldKind        = "kind"
	fieldValue       = "value"
	fieldDescription = "description"
	fieldTags        = "tags"
	fieldDefaultType = "default-queue-type"
	fieldTracing     = "tracing"
	fieldComponent   = "component"
)

// Resets reports whether a definition with this op voids all earlier ones of its vhost.
func Resets(op string) bool { return op == opVHost || op == opDeleteVHost }

// Deletes reports whether a definition with this op deletes its vhost.
func Deletes(op string) bool { return op == opDeleteVHost }

// QueueID returns the number that a definition gives to a queue; ok is false if it defines something else.
func QueueID(d *definition.Definition) (id uint64, ok bool) {
	if d.Op != opDeclareQueue {
		return 0, false
	}
	var n int64
	var err error
	definition.Read(d, fieldID, &n, &err)
	return uint64(n), err == nil
}

func define(op, vhost string, more ...amqp.Field) amqp.Table {
	return append(definition.New(op, amqp.Field{Key: fieldVHost, Value: vhost}), more...)
}

// arguments makes a table of what may be none.
func arguments(t amqp.Table) amqp.Field {
	if t == nil {
		t = amqp.Table{}
	}
	return amqp.Field{Key: fieldArguments, Value: t}
}

func (v *VHost) defineExchange(x *Exchange) amqp.Table {
	return define(opDeclareExchange, v.name,
		amqp.Field{Key: fieldName, Value: x.Name}, amqp.Field{Key: fieldType, Value: x.Type},
		amqp.Field{Key: fieldAutoDelete, Value: x.AutoDelete}, amqp.Field{Key: fieldInternal, Value: x.Internal}, arguments(x.Args))
}

func readExchange(d *definition.Definition) (Exchange, error) {
	x := Exchange{Durable: true}
	var err error
	definition.Read(d, fieldName, &x.Name, &err)
	definition.Read(d, fieldType, &x.Type, &err)
	definition.Read(d, fieldAutoDelete, &x.AutoDelete, &err)
	definition.Read(d, fieldInternal, &x.Internal, &err)
	definition.Read(d, fieldArguments, &x.Args, &err)
	return x, err
}

func (v *VHost) defineQueue(c *queue.Config) amqp.Table {
	return define(opDeclareQueue, v.name,
		amqp.Field{Key: fieldName, Value: c.Name}, amqp.Field{Key: fieldID, Value: int64(c.Storage.ID)},
		amqp.Field{Key: fieldAutoDelete, Value: c.AutoDelete}, arguments(tableOf(c)))
}

// definedQueue is a queue as its definition has it.
type definedQueue struct {
	name       string
	id         uint64
	autoDelete bool
	args       amqp.Table
}

func readQueue(d *definition.Definition) (definedQueue, error) {
	var q definedQueue
	var id int64
	var err error
	definition.Read(d, fieldName, &q.name, &err)
	definition.Read(d, fieldID, &id, &err)
	definition.Read(d, fieldAutoDelete, &q.autoDelete, &err)
	definition.Read(d, fieldArguments, &q.args, &err)
	q.id = uint64(id)
	return q, err
}

func (v *VHost) defineBinding(op string, b *Binding) amqp.Table {
	return define(op, v.name,
		amqp.Field{Key: fieldSource, Value: b.Source}, amqp.Field{Key: fieldDestination, Value: b.Destination},
		amqp.Field{Key: fieldToExchange, Value: b.ToExchange}, amqp.Field{Key: fieldKey, Value: b.Key}, arguments(b.Args))
}

func readBinding(d *definition.Definition) (Binding, error) {
	var b Binding
	var err error
	definition.Read(d, fieldSource, &b.Source, &err)
	definition.Read(d, fieldDestination, &b.Destination, &err)
	definition.Read(d, fieldToExchange, &b.ToExchange, &err)
	definition.Read(d, fieldKey, &b.Key, &err)
	definition.Read(d, fieldArguments, &b.Args, &err)
	return b, err
}

func (v *VHost) defineName(op, name string) amqp.Table {
	return define(op, v.name, amqp.Field{Key: fieldName, Value: name})
}

func readName(d *definition.Definition) (name string, err error) {
	definition.Read(d, fieldName, &name, &err)
	return name, err
}

// tableOf is a queue's arguments as they were given.
func tableOf(c *queue.Config) amqp.Table {
	t := make(amqp.Table, len(c.Args))
	for i, a := range c.Args {
		t[i] = amqp.Field{Key: a.Name, Value: a.Value}
	}
	return t
}
