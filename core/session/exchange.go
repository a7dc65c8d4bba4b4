package session

import (
	"github.com/curfewmq/curfew/core/amqp"
	"github.com/curfewmq/curfew/core/auth"
	"github.com/curfewmq/curfew/core/rabbit"
	"github.com/curfewmq/curfew/core/vhost"
)

func (ch *channel) declareExchange(m *amqp.ExchangeDeclare) error {
	if err := ch.ensureExchange(m); err != nil {
		return err
	}
	return ch.answer(m.NoWait, &amqp.ExchangeDeclareOK{})
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
	if err := ch.conn.mayExchange(auth.Configure, name); err != nil {
		return err
	}
	if err := ch.conn.vhost.DeleteExchange(name, m.IfUnused); err != nil {
		return err
	}
	return ch.answer(m.NoWait, &amqp.ExchangeDeleteOK{})
}

func (ch *channel) bindExchange(m *amqp.ExchangeBind) error {
	b := vhost.Binding{Source: m.Source, Destination: m.Destination, ToExchange: true, Key: m.RoutingKey, Args: m.Arguments}
	if err := ch.mayBind(b); err != nil {
		return err
	}
	if err := ch.conn.vhost.Bind(b, ch.conn.id); err != nil {
		return err
	}
	return ch.answer(m.NoWait, &amqp.ExchangeBindOK{})
}

func (ch *channel) unbindExchange(m *amqp.ExchangeUnbind) error {
	b := vhost.Binding{Source: m.Source, Destination: m.Destination, ToExchange: true, Key: m.RoutingKey, Args: m.Arguments}
	if err := ch.mayBind(b); err != nil {
		return err
	}
	if err := ch.conn.vhost.Unbind(b, ch.conn.id); err != nil {
		return err
	}
	return ch.answer(m.NoWait, &amqp.ExchangeUnbindOK{})
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
