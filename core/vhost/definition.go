package vhost

import (
	"errors"
	"fmt"
	"iter"

	"github.com/curfewmq/curfew/core/amqp"
	"github.com/curfewmq/curfew/core/queue"
)

// Durable things are recorded as definitions, one after another. A definition is a field table as AMQP has them
// [AMQP 4.2.5.5], with its length in front. The first fields are
//
//	op     what happened
//	vhost  where
//
// and the others depend on op:
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
	fieldOp          = "op"
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

// Definition is one definition that was read back.
type Definition struct {
	Op, VHost string // VHost is empty if there is none in it
	Size      int    // bytes it takes
	fields    amqp.Table
}

// ParseDefinitions reads definitions that were written together. It stops at the first that cannot be read.
func ParseDefinitions(b []byte) iter.Seq2[Definition, error] {
	return func(yield func(Definition, error) bool) {
		for len(b) > 0 {
			t, n, err := amqp.ParseTable(b)
			if err != nil {
				yield(Definition{}, fmt.Errorf("definition: %w", err))
				return
			}
			b = b[n:]
			d := Definition{Size: n, fields: t}
			if d.Op, err = field[string](&d, fieldOp); err == nil {
				if _, has := t.Lookup(fieldVHost); has {
					d.VHost, err = field[string](&d, fieldVHost)
				}
			}
			if !yield(d, err) || err != nil {
				return
			}
		}
	}
}

// Fields are everything the definition says.
func (d *Definition) Fields() amqp.Table { return d.fields }

// Resets reports whether nothing that was defined for the vhost before counts any more.
func (d *Definition) Resets() bool { return d.Op == opVHost || d.Op == opDeleteVHost }

// Deletes reports whether the vhost is not any more.
func (d *Definition) Deletes() bool { return d.Op == opDeleteVHost }

// Number returns the number that was given to a queue; ok is false if the definition is of something else.
func (d *Definition) Number() (id uint64, ok bool) {
	if d.Op != opDeclareQueue {
		return 0, false
	}
	n, err := field[int64](d, fieldID)
	return uint64(n), err == nil
}

var errMissing = errors.New("is missing")

// field reads a field of a definition.
func field[T any](d *Definition, name string) (v T, err error) {
	raw, ok := d.fields.Lookup(name)
	if !ok {
		return v, fmt.Errorf("definition %q: %s %w", d.Op, name, errMissing)
	}
	if v, ok = raw.(T); !ok {
		return v, fmt.Errorf("definition %q: %s is of type %s", d.Op, name, amqp.TypeName(raw))
	}
	return v, nil
}

// read reads a field, unless an earlier one could not be read.
func read[T any](d *Definition, name string, into *T, err *error) {
	if *err == nil {
		*into, *err = field[T](d, name)
	}
}

func define(op, vhost string, more ...amqp.Field) amqp.Table {
	return append(amqp.Table{{Key: fieldOp, Value: op}, {Key: fieldVHost, Value: vhost}}, more...)
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

func (d *Definition) exchange() (Exchange, error) {
	x := Exchange{Durable: true}
	var err error
	read(d, fieldName, &x.Name, &err)
	read(d, fieldType, &x.Type, &err)
	read(d, fieldAutoDelete, &x.AutoDelete, &err)
	read(d, fieldInternal, &x.Internal, &err)
	read(d, fieldArguments, &x.Args, &err)
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

func (d *Definition) queue() (definedQueue, error) {
	var q definedQueue
	var id int64
	var err error
	read(d, fieldName, &q.name, &err)
	read(d, fieldID, &id, &err)
	read(d, fieldAutoDelete, &q.autoDelete, &err)
	read(d, fieldArguments, &q.args, &err)
	q.id = uint64(id)
	return q, err
}

func (v *VHost) defineBinding(op string, b *Binding) amqp.Table {
	return define(op, v.name,
		amqp.Field{Key: fieldSource, Value: b.Source}, amqp.Field{Key: fieldDestination, Value: b.Destination},
		amqp.Field{Key: fieldToExchange, Value: b.ToExchange}, amqp.Field{Key: fieldKey, Value: b.Key}, arguments(b.Args))
}

func (d *Definition) binding() (Binding, error) {
	var b Binding
	var err error
	read(d, fieldSource, &b.Source, &err)
	read(d, fieldDestination, &b.Destination, &err)
	read(d, fieldToExchange, &b.ToExchange, &err)
	read(d, fieldKey, &b.Key, &err)
	read(d, fieldArguments, &b.Args, &err)
	return b, err
}

func (v *VHost) defineName(op, name string) amqp.Table {
	return define(op, v.name, amqp.Field{Key: fieldName, Value: name})
}

func (d *Definition) name() (string, error) { return field[string](d, fieldName) }

// tableOf is a queue's arguments as they were given.
func tableOf(c *queue.Config) amqp.Table {
	t := make(amqp.Table, len(c.Args))
	for i, a := range c.Args {
		t[i] = amqp.Field{Key: a.Name, Value: a.Value}
	}
	return t
}
