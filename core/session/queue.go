package session

import (
	"strings"

	"github.com/curfewmq/curfew/core/amqp"
	"github.com/curfewmq/curfew/core/auth"
	"github.com/curfewmq/curfew/core/rabbit"
	"github.com/curfewmq/curfew/core/vhost"
)

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
	return ch.answer(noWait, &amqp.QueueDeclareOK{
		Queue: name, MessageCount: count32(messages), ConsumerCount: count32(consumers),
	})
}

func (ch *channel) ensureQueue(m *amqp.QueueDeclare) (vhost.Declared, error) {
	c := ch.conn
	if m.Passive {
		if err := mayAny(c.mayQueue, rabbit.Sanitise(m.Queue)); err != nil {
			return vhost.Declared{}, err
		}
		return c.vhost.CheckQueue(m.Queue, c.id, m.NoWait)
	}
	name := rabbit.Sanitise(m.Queue)
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
		Allow: func(deadLetterExchange string) error {
			if err := c.mayQueue(auth.Read, subject); err != nil {
				return err
			}
			return c.mayExchange(auth.Write, deadLetterExchange)
		},
	})
}

// likeServerNamed is a name like the ones the server makes up, to ask for permission.
func likeServerNamed(args amqp.Table) string {
	v, _ := args.Lookup("x-name-prefix")
	if prefix, ok := v.(string); ok {
		return prefix + "-" + randomName()
	}
	return "amq.gen-" + randomName()
}

// bindQueue binds a queue; with neither queue nor key named, both are the queue declared last [AMQP 1.7.2.3].
func (ch *channel) bindQueue(m *amqp.QueueBind) error {
	b, err := ch.binding(m.Queue, m.Exchange, m.RoutingKey, m.Arguments)
	if err != nil {
		return err
	}
	if err := ch.conn.vhost.Bind(b, ch.conn.id); err != nil {
		return err
	}
	return ch.answer(m.NoWait, &amqp.QueueBindOK{})
}

func (ch *channel) unbindQueue(m *amqp.QueueUnbind) error {
	b, err := ch.binding(m.Queue, m.Exchange, m.RoutingKey, m.Arguments)
	if err != nil {
		return err
	}
	if err := ch.conn.vhost.Unbind(b, ch.conn.id); err != nil {
		return err
	}
	ch.send(&amqp.QueueUnbindOK{})
	return nil
}

// binding is the binding that a method means, which the user may make.
func (ch *channel) binding(queue, exchange, key string, args amqp.Table) (vhost.Binding, error) {
	name, err := ch.queueName(queue)
	if err != nil {
		return vhost.Binding{}, err
	}
	if queue == "" && key == "" {
		key = name
	}
	b := vhost.Binding{Source: exchange, Destination: name, Key: key, Args: args}
	return b, ch.mayBind(b)
}

func (ch *channel) purgeQueue(m *amqp.QueuePurge) error {
	name, err := ch.queueName(m.Queue)
	if err != nil {
		return err
	}
	if err := ch.conn.mayQueue(auth.Read, name); err != nil {
		return err
	}
	n, err := ch.conn.vhost.PurgeQueue(name, ch.conn.id)
	if err != nil {
		return err
	}
	return ch.answer(m.NoWait, &amqp.QueuePurgeOK{MessageCount: count32(n)})
}

func (ch *channel) deleteQueue(m *amqp.QueueDelete) error {
	name, err := ch.queueName(m.Queue)
	if err != nil {
		return err
	}
	if err := ch.conn.mayQueue(auth.Configure, name); err != nil {
		return err
	}
	ch.holdCancels()
	defer ch.releaseCancels() // delete-ok is before them
	n, err := ch.conn.vhost.DeleteQueue(name, ch.conn.id, m.IfUnused, m.IfEmpty)
	if err != nil {
		return err
	}
	return ch.answer(m.NoWait, &amqp.QueueDeleteOK{MessageCount: count32(n)})
}
