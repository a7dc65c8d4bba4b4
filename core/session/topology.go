package session

import (
	"strings"

	"github.com/curfewmq/curfew/core/amqp"
	"github.com/curfewmq/curfew/core/auth"
	"github.com/curfewmq/curfew/core/rabbit"
	"github.com/curfewmq/curfew/core/vhost"
)

// topology is a channel's part that declares, binds and deletes exchanges and queues.
type topology struct {
	*shared
	out      *outlet
	owner    uint64 // the connection, as owner of exclusive queues
	declared string // name of the queue that the channel declared last
}

// connection returns the connection's number, by which exclusive queues know their owner.
func (t *topology) connection() uint64 { return t.owner }

func (t *topology) declareExchange(m *amqp.ExchangeDeclare) error {
	return t.out.answer(t.ensureExchange(m), m.NoWait, &amqp.ExchangeDeclareOK{})
}

func (t *topology) ensureExchange(m *amqp.ExchangeDeclare) error {
	name := rabbit.Sanitise(m.Exchange)
	if m.Passive {
		if err := mayAny(t.access.mayExchange, name); err != nil && name != "" {
			return err
		}
		return t.vhost.CheckExchange(m.Exchange)
	}
	if err := t.access.mayExchange(auth.Configure, name); err != nil {
		return err
	}
	return t.vhost.DeclareExchange(vhost.Exchange{
		Name: name, Type: m.Type, Durable: m.Durable, AutoDelete: m.AutoDelete, Internal: m.Internal, Args: m.Arguments,
	}, func(alternate string) error {
		if err := t.access.mayExchange(auth.Read, name); err != nil {
			return err
		}
		return t.access.mayExchange(auth.Write, alternate)
	})
}

func (t *topology) deleteExchange(m *amqp.ExchangeDelete) error {
	name := rabbit.Sanitise(m.Exchange)
	err := t.access.mayExchange(auth.Configure, name)
	if err == nil {
		err = t.vhost.DeleteExchange(name, m.IfUnused)
	}
	return t.out.answer(err, m.NoWait, &amqp.ExchangeDeleteOK{})
}

func (t *topology) bindExchange(m *amqp.ExchangeBind) error {
	b := vhost.Binding{Source: m.Source, Destination: m.Destination, ToExchange: true, Key: m.RoutingKey, Args: m.Arguments}
	return t.bind(t.vhost.Bind, b, m.NoWait, &amqp.ExchangeBindOK{})
}

func (t *topology) unbindExchange(m *amqp.ExchangeUnbind) error {
	b := vhost.Binding{Source: m.Source, Destination: m.Destination, ToExchange: true, Key: m.RoutingKey, Args: m.Arguments}
	return t.bind(t.vhost.Unbind, b, m.NoWait, &amqp.ExchangeUnbindOK{})
}

func (t *topology) bindQueue(m *amqp.QueueBind) error {
	b, err := t.queueBinding(m.Queue, m.Exchange, m.RoutingKey, m.Arguments)
	if err != nil {
		return err
	}
	return t.bind(t.vhost.Bind, b, m.NoWait, &amqp.QueueBindOK{})
}

func (t *topology) unbindQueue(m *amqp.QueueUnbind) error {
	b, err := t.queueBinding(m.Queue, m.Exchange, m.RoutingKey, m.Arguments)
	if err != nil {
		return err
	}
	return t.bind(t.vhost.Unbind, b, false, &amqp.QueueUnbindOK{})
}

// queueBinding returns the binding that a method names. If it names neither queue nor key, both are the queue that the channel
// declared last [AMQP 1.7.2.3].
func (t *topology) queueBinding(queue, exchange, key string, args amqp.Table) (vhost.Binding, error) {
	name, err := t.queueName(queue)
	if queue == "" && key == "" {
		key = name
	}
	return vhost.Binding{Source: exchange, Destination: name, Key: key, Args: args}, err
}

// bind makes or removes a binding: change is the vhost's Bind or Unbind.
func (t *topology) bind(change func(vhost.Binding, uint64) error, b vhost.Binding, noWait bool, ok amqp.Method) error {
	err := t.mayBind(b)
	if err == nil {
		err = change(b, t.owner)
	}
	return t.out.answer(err, noWait, ok)
}

// mayBind checks the permissions for both ends of a binding [RabbitMQ: access-control.html#authorisation].
func (t *topology) mayBind(b vhost.Binding) error {
	check := t.access.mayQueue
	if b.ToExchange {
		check = t.access.mayExchange
	}
	if err := check(auth.Write, rabbit.Sanitise(b.Destination)); err != nil {
		return err
	}
	source := rabbit.Sanitise(b.Source)
	if err := t.access.mayExchange(auth.Read, source); err != nil {
		return err
	}
	return t.access.mayTopic(auth.Read, source, b.Key)
}

// queueName resolves the empty name to the queue that the channel declared last.
func (t *topology) queueName(name string) (string, error) {
	if name != "" {
		return rabbit.Sanitise(name), nil
	}
	if t.declared == "" {
		return "", amqp.Errorf(amqp.ReplyNotFound, "no previously declared queue")
	}
	return t.declared, nil
}

// permittedQueue resolves the name of a queue and checks the user's permission for it.
func (t *topology) permittedQueue(p auth.Permission, name string) (string, error) {
	name, err := t.queueName(name)
	if err == nil {
		err = t.access.mayQueue(p, name)
	}
	return name, err
}

func (t *topology) declareQueue(m *amqp.QueueDeclare) error {
	if strings.HasPrefix(m.Queue, replyTo) {
		return t.declareReplies(m)
	}
	d, err := t.ensureQueue(m)
	if err != nil {
		return err
	}
	return t.declareOK(m.NoWait, d.Mailbox.Config().Name, d.Messages, d.Consumers)
}

func (t *topology) declareOK(noWait bool, name string, messages, consumers int) error {
	t.declared = name
	return t.out.answer(nil, noWait, &amqp.QueueDeclareOK{
		Queue: name, MessageCount: count32(messages), ConsumerCount: count32(consumers),
	})
}

func (t *topology) ensureQueue(m *amqp.QueueDeclare) (vhost.Declared, error) {
	name := rabbit.Sanitise(m.Queue)
	if m.Passive {
		if err := mayAny(t.access.mayQueue, name); err != nil {
			return vhost.Declared{}, err
		}
		return t.vhost.CheckQueue(m.Queue, t.owner, m.NoWait)
	}
	subject := name // of the permissions
	if subject == "" {
		subject = likeServerNamed(m.Arguments)
	}
	if err := t.access.mayQueue(auth.Configure, subject); err != nil {
		return vhost.Declared{}, err
	}
	return t.vhost.DeclareQueue(vhost.QueueDeclare{
		Name: name, Durable: m.Durable, Exclusive: m.Exclusive, AutoDelete: m.AutoDelete, Args: m.Arguments,
		Owner: t.owner, NoWait: m.NoWait,
		Allow: func(exchange string) error {
			if err := t.access.mayQueue(auth.Read, subject); err != nil {
				return err
			}
			return t.access.mayExchange(auth.Write, exchange)
		},
	})
}

// likeServerNamed returns a name as the server would generate it, to check permissions with.
func likeServerNamed(args amqp.Table) string {
	v, _ := args.Lookup("x-name-prefix")
	if prefix, ok := v.(string); ok {
		return prefix + "-" + randomName()
	}
	return "amq.gen-" + randomName()
}

func (t *topology) purgeQueue(m *amqp.QueuePurge) error {
	name, err := t.permittedQueue(auth.Read, m.Queue)
	if err != nil {
		return err
	}
	n, err := t.vhost.PurgeQueue(name, t.owner)
	return t.out.answer(err, m.NoWait, &amqp.QueuePurgeOK{MessageCount: count32(n)})
}

func (t *topology) deleteQueue(m *amqp.QueueDelete) error {
	name, err := t.permittedQueue(auth.Configure, m.Queue)
	if err != nil {
		return err
	}
	n, err := t.vhost.DeleteQueue(name, t.owner, m.IfUnused, m.IfEmpty)
	return t.out.answer(err, m.NoWait, &amqp.QueueDeleteOK{MessageCount: count32(n)})
}

// declareReplies answers a declaration of replyTo or of a reply queue. It succeeds if
// direct replies are possible, or if the reply queue still exists.
func (t *topology) declareReplies(m *amqp.QueueDeclare) error {
	if m.Queue != replyTo && t.srv.replies.find(t.vhost.Name(), m.Queue) == nil {
		return t.vhost.NoQueue(m.Queue)
	}
	return t.declareOK(m.NoWait, m.Queue, 0, 1)
}
