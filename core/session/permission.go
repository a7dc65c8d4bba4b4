package session

import (
	"github.com/curfewmq/curfew/core/auth"
	"github.com/curfewmq/curfew/core/queue"
)

// mayQueue checks the user's permission for a queue.
func (c *Conn) mayQueue(p auth.Permission, name string) error {
	return c.srv.Users.Check(c.user.Name, p, auth.Resource{Kind: auth.Queue, VHost: c.vhost.Name(), Name: name})
}

// mayExchange checks the user's permission for an exchange.
func (c *Conn) mayExchange(p auth.Permission, name string) error {
	return c.srv.Users.Check(c.user.Name, p, auth.Resource{Kind: auth.Exchange, VHost: c.vhost.Name(), Name: name})
}

// mayAny checks that the user has any permission at all for what is asked for by name: who has none is not told whether it is
// there, how full it is or who uses it, and cannot keep it from expiring [RabbitMQ 4.3: passive declarations].
func mayAny(may func(auth.Permission, string) error, name string) error {
	refused := may(auth.Configure, name)
	if refused == nil || may(auth.Write, name) == nil || may(auth.Read, name) == nil {
		return nil
	}
	return refused
}

// mayTopic checks the user's permission for a routing key, which only topic exchanges ask for
// [RabbitMQ: access-control.html#topic-authorisation].
func (c *Conn) mayTopic(p auth.Permission, exchange, key string) error {
	err := c.srv.Users.CheckTopic(c.user.Name, p, auth.Topic{VHost: c.vhost.Name(), Exchange: exchange, Key: key})
	if err == nil {
		return nil
	}
	if x, ok := c.vhost.Exchange(exchange); !ok || x.Type != "topic" {
		return nil
	}
	return err
}

// mayTopics checks it for all keys that a message is published with.
func (c *Conn) mayTopics(o *queue.RoutingInfo) error {
	if err := c.mayTopic(auth.Write, o.Exchange, o.Key); err != nil {
		return err
	}
	for _, keys := range [...][]string{o.CC, o.BCC} {
		for _, key := range keys {
			if err := c.mayTopic(auth.Write, o.Exchange, key); err != nil {
				return err
			}
		}
	}
	return nil
}
