package session

import (
	"strings"

	"github.com/curfewmq/curfew/core/amqp"
	"github.com/curfewmq/curfew/core/auth"
	"github.com/curfewmq/curfew/core/rabbit"
	"github.com/curfewmq/curfew/core/vhost"
)

func (ch *channel) declareExchange(m *amqp.ExchangeDeclare) error {
	return ch.answer(ch.ensureExchange(m), m.NoWait, &amqp.ExchangeDeclareOK{})
}

func (ch *channel) ensureExchange(m *amqp.ExchangeDeclare) error {
	c := ch.conn
	name := rabbit.Sanitise(m.Exchange)
	if m.Passive {
		if err := mayAny(c.mayExchange, name); err != nil && name != "" {
			return err
		}
		return c.vhost.CheckExchange(m.Exchange)
	}
	if err := c.mayExchange(auth.Configure, name); err != nil {
		return err
	}
	return c.vhost.DeclareExchange(vhost.Exchange{
		Name: name, Type: m.Type, Durable: m.Durable, AutoDelete: m.AutoDelete, Internal: m.Internal, Args: m.Arguments,
	}, func(alternate string) error {
		if err := c.mayExchange(auth.Read, name); err != nil {
			return err
		}
		return c.mayExchange(auth.Write, alternate)
	})
}

func (ch *channel) deleteExchange(m *amqp.ExchangeDelete) error {
	name := rabbit.Sanitise(m.Exchange)
	err := ch.conn.mayExchange(auth.Configure, name)
	if err == nil {
		err = ch.conn.vhost.DeleteExchange(name, m.IfUnused)
	}
	return ch.answer(err, m.NoWait, &amqp.ExchangeDeleteOK{})
}

func (ch *channel) bindExchange(m *amqp.ExchangeBind) error {
	b := vhost.Binding{Source: m.Source, Destination: m.Destination, ToExchange: true, Key: m.RoutingKey, Args: m.Arguments}
	return ch.bind(ch.conn.vhost.Bind, b, m.NoWait, &amqp.ExchangeBindOK{})
}

func (ch *channel) unbindExchange(m *amqp.ExchangeUnbind) error {
	b := vhost.Binding{Source: m.Source, Destination: m.Destination, ToExchange: true, Key: m.RoutingKey, Args: m.Arguments}
	return ch.bind(ch.conn.vhost.Unbind, b, m.NoWait, &amqp.ExchangeUnbindOK{})
}

func (ch *channel) bindQueue(m *amqp.QueueBind) error {
	b, err := ch.queueBinding(m.Queue, m.Exchange, m.RoutingKey, m.Arguments)
	if err != nil {
		return err
	}
	return ch.bind(ch.conn.vhost.Bind, b, m.NoWait, &amqp.QueueBindOK{})
}

func (ch *channel) unbindQueue(m *amqp.QueueUnbind) error {
	b, err := ch.queueBinding(m.Queue, m.Exchange, m.RoutingKey, m.Arguments)
	if err != nil {
		return err
	}
	return ch.bind(ch.conn.vhost.Unbind, b, false, &amqp.QueueUnbindOK{})
}

// queueBinding returns the binding that a method names. If it names neither queue nor key, both are the queue that the channel
// declared last [AMQP 1.7.2.3].
func (ch *channel) queueBinding(queue, exchange, key string, args amqp.Table) (vhost.Binding, error) {
	name, err := ch.queueName(queue)
	if queue == "" && key == "" {
		key = name
	}
	return vhost.Binding{Source: exchange, Destination: name, Key: key, Args: args}, err
}

// bind makes or removes a binding: change is the vhost's Bind or Unbind.
func (ch *channel) bind(change func(vhost.Binding, uint64) error, b vhost.Binding, noWait bool, ok amqp.Method) error {
	err := ch.mayBind(b)
	if err == nil {
		err = change(b, ch.conn.id)
	}
	return ch.answer(err, noWait, ok)
}

// mayBind checks the permissions for both ends of a binding [RabbitMQ: access-control.html#authorisation].
func (ch *channel) mayBind(b vhost.Binding) error {
	c := ch.conn
	check := c.mayQueue
	if b.ToExchange {
		check = c.mayExchange
	}
	if err := check(auth.Write, rabbit.Sanitise(b.Destination)); err != nil {
		return err
	}
	source := rabbit.Sanitise(b.Source)
	if err := c.mayExchange(auth.Read, source); err != nil {
		return err
	}
	return c.mayTopic(auth.Read, source, b.Key)
}

// queueName resolves the empty name to the queue that the channel declared last.
func (ch *channel) queueName(name string) (string, error) {
	if name != "" {
		return rabbit.Sanitise(name), nil
	}
	if ch.declared == "" {
		return "", amqp.Errorf(amqp.ReplyNotFound, "no previously declared queue")
	}
	return ch.declared, nil
}

// permittedQueue resolves the name of a queue and checks the user's permission for it.
func (ch *channel) permittedQueue(p auth.Permission, name string) (string, error) {
	name, err := ch.queueName(name)
	if err == nil {
		err = ch.conn.mayQueue(p, name)
	}
	return name, err
}

func (ch *channel) declareQueue(m *amqp.QueueDeclare) error {
	if strings.HasPrefix(m.Queue, replyTo) {
		return ch.declareReplies(m)
	}
	d, err := ch.ensureQueue(m)
	if err != nil {
		return err
	}
	return ch.declareOK(m.NoWait, d.Mailbox.Config().Name, d.Messages, d.Consumers)
}

func (ch *channel) declareOK(noWait bool, name string, messages, consumers int) error {
	ch.declared = name
	return ch.answer(nil, noWait, &amqp.QueueDeclareOK{
		Queue: name, MessageCount: count32(messages), ConsumerCount: count32(consumers),
	})
}

func (ch *channel) ensureQueue(m *amqp.QueueDeclare) (vhost.Declared, error) {
	c := ch.conn
	name := rabbit.Sanitise(m.Queue)
	if m.Passive {
		if err := mayAny(c.mayQueue, name); err != nil {
			return vhost.Declared{}, err
		}
		return c.vhost.CheckQueue(m.Queue, c.id, m.NoWait)
	}
	subject := name // of the permissions
	if subject == "" {
		subject = likeServerNamed(m.Arguments)
	}
	if err := c.mayQueue(auth.Configure, subject); err != nil {
		return vhost.Declared{}, err
	}
	return c.vhost.DeclareQueue(vhost.QueueDeclare{
		Name: name, Durable: m.Durable, Exclusive: m.Exclusive, AutoDelete: m.AutoDelete, Args: m.Arguments,
		Owner: c.id, NoWait: m.NoWait,
		Allow: func(exchange string) error {
			if err := c.mayQueue(auth.Read, subject); err != nil {
				return err
			}
			return c.mayExchange(auth.Write, exchange)
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

func (ch *channel) purgeQueue(m *amqp.QueuePurge) error {
	name, err := ch.permittedQueue(auth.Read, m.Queue)
	if err != nil {
		return err
	}
	n, err := ch.conn.vhost.PurgeQueue(name, ch.conn.id)
	return ch.answer(err, m.NoWait, &amqp.QueuePurgeOK{MessageCount: count32(n)})
}

func (ch *channel) deleteQueue(m *amqp.QueueDelete) error {
	name, err := ch.permittedQueue(auth.Configure, m.Queue)
	if err != nil {
		return err
	}
	ch.holdCancels()
	defer ch.releaseCancels() // so that the client gets delete-ok before them
	n, err := ch.conn.vhost.DeleteQueue(name, ch.conn.id, m.IfUnused, m.IfEmpty)
	return ch.answer(err, m.NoWait, &amqp.QueueDeleteOK{MessageCount: count32(n)})
}
