package vhost

import (
	"slices"

	"github.com/curfewmq/curfew/core/amqp"
	"github.com/curfewmq/curfew/core/definition"
	"github.com/curfewmq/curfew/core/queue"
)

// The durable things of a vhost are logged as definitions, see [definition]. All have the
// field vhost; the others depend on op:
//
//	vhost             description, tags, default-queue-type, tracing, and in a cluster placement: the vhost exists, with nothing
//	                  in it but the exchanges that every vhost has
//	vhost.describe    the same but placement; its contents stay
//	vhost.delete      nothing more: everything in it is deleted, too
//	exchange.declare  name, type, auto-delete, internal, arguments, and id if it holds messages
//	exchange.delete   name; its bindings, in both directions, are deleted, too
//	queue.declare     name, id, auto-delete, arguments
//	queue.delete      name; its bindings are deleted, too
//	bind              source, destination, to-exchange, key, arguments
//	unbind            the same
//	policy.set        kind ("policy" or "operator_policy"), name, value: the policy as a JSON object
//	policy.clear      kind, name
//	parameter.set     component, name, value: JSON
//	parameter.clear   component, name
//
// Arguments have the types that the client gave them. Any other deletion that follows from
// a deletion has a definition of its own.
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

// Fields that several definitions have. Other fields are named where they are listed, in methods called fields.
const (
	fieldVHost     = "vhost"
	fieldName      = "name"
	fieldID        = "id"
	fieldValue     = "value"
	fieldPlacement = "placement"
)

// fieldRef is a field of a definition with the variable that it is written from and read into.
type fieldRef struct {
	name string
	variable
}

type variable interface {
	load() any
	read(d *definition.Definition, name string) error
}

// pointer is a [variable]. It is as large as a pointer, so that it lies in an interface
// without an allocation: a restart reads as many fields as all queues and bindings have.
type pointer[T any] struct{ to *T }

func (p pointer[T]) load() any { return *p.to }

func (p pointer[T]) read(d *definition.Definition, name string) (err error) {
	definition.Read(d, name, p.to, &err)
	return err
}

func ref[T any](name string, value *T) fieldRef { return fieldRef{name, pointer[T]{value}} }

// definer makes the definitions of a vhost.
type definer struct {
	vhost     string
	placement uint64 // see [VHost.Placement]
}

// definitionAppender appends the definition of an object, or nothing if that no longer exists.
type definitionAppender func(b []byte) []byte

// define makes a definition of the vhost.
func (d definer) define(op string, fields ...fieldRef) amqp.Table {
	t := slices.Grow(definition.New(op, amqp.Field{Key: fieldVHost, Value: d.vhost}), len(fields))
	for _, f := range fields {
		t = append(t, amqp.Field{Key: f.name, Value: f.load()})
	}
	return t
}

func (d definer) defineName(op, name string) amqp.Table {
	return d.define(op, ref(fieldName, &name))
}

// read reads fields, up to the first that is missing or has another type.
func read(d *definition.Definition, fields ...fieldRef) error {
	for _, f := range fields {
		if err := f.read(d, f.name); err != nil {
			return err
		}
	}
	return nil
}

// Resets reports whether a definition with this op voids all earlier ones of its vhost.
func Resets(op string) bool { return op == opVHost || op == opDeleteVHost }

// Deletes reports whether a definition with this op deletes its vhost.
func Deletes(op string) bool { return op == opDeleteVHost }

// ForPlugins reports whether a definition with this op can be understood only with the keys
// of plugins: that of a policy.
func ForPlugins(op string) bool { return op == opSetPolicy || op == opClearPolicy }

// QueueID returns the number that a definition assigns to a queue, or to the schedule of an
// exchange. ok is false if it assigns none.
func QueueID(d *definition.Definition) (id uint64, ok bool) {
	if d.Op != opDeclareQueue && d.Op != opDeclareExchange {
		return 0, false
	}
	var n int64
	err := read(d, ref(fieldID, &n))
	return uint64(n), err == nil
}

// Moved returns a definition as it is in the shard of a cluster in which the vhost has a
// placement: number returns the new number of a queue or of an exchange's schedule.
func Moved(d *definition.Definition, placement uint64, number func(id uint64) uint64) amqp.Table {
	t := slices.Clone(d.Fields)
	if d.Op == opVHost {
		t = slices.DeleteFunc(t, func(f amqp.Field) bool { return f.Key == fieldPlacement })
		return append(t, amqp.Field{Key: fieldPlacement, Value: int64(placement)})
	}
	if id, ok := QueueID(d); ok {
		i := slices.IndexFunc(t, func(f amqp.Field) bool { return f.Key == fieldID })
		t[i].Value = int64(number(id))
	}
	return t
}

func (x *Exchange) fields() []fieldRef {
	return []fieldRef{
		ref(fieldName, &x.Name), ref("type", &x.Type), ref("auto-delete", &x.AutoDelete), ref("internal", &x.Internal), ref("arguments", &x.Args),
	}
}

func (b *Binding) fields() []fieldRef {
	return []fieldRef{
		ref("source", &b.Source), ref("destination", &b.Destination), ref("to-exchange", &b.ToExchange), ref("key", &b.Key), ref("arguments", &b.Args),
	}
}

// defineExchange makes the definition of a durable exchange.
func (d definer) defineExchange(x *exchange) amqp.Table {
	fields := x.fields()
	if s := x.storage(); s != nil {
		id := int64(s.ID)
		fields = append(fields, ref(fieldID, &id))
	}
	return d.define(opDeclareExchange, fields...)
}

// defineUnbound makes a definition which says that a durable exchange has lost its last
// binding, even if the binding was not durable. The definition removes a binding of the
// exchange to itself, so on replay an exchange without other bindings counts as unbound.
func (d definer) defineUnbound(x *exchange) amqp.Table {
	b := Binding{Source: x.Name, Destination: x.Name, ToExchange: true}
	return d.define(opUnbind, b.fields()...)
}

// definedQueue is a queue as its definition describes it.
type definedQueue struct {
	name       string
	id         int64
	autoDelete bool
	args       amqp.Table
}

func (q *definedQueue) fields() []fieldRef {
	return []fieldRef{ref(fieldName, &q.name), ref(fieldID, &q.id), ref("auto-delete", &q.autoDelete), ref("arguments", &q.args)}
}

func (d definer) defineQueue(c *queue.Config) amqp.Table {
	q := definedQueue{name: c.Name, id: int64(c.Storage.ID), autoDelete: c.AutoDelete}
	for _, a := range c.Args {
		q.args = append(q.args, amqp.Field{Key: a.Name, Value: a.Value})
	}
	return d.define(opDeclareQueue, q.fields()...)
}
