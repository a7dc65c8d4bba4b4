package session

import (
	"slices"

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

// mayAny checks that the user has any permission for a queue or exchange. Users without one must not learn whether it exists, how
// full it is or who uses it, nor keep it from expiring [RabbitMQ 4.3: passive declarations].
func mayAny(may func(auth.Permission, string) error, name string) error {
	refused := may(auth.Configure, name)
	if refused == nil || may(auth.Write, name) == nil || may(auth.Read, name) == nil {
		return nil
	}
	return refused
}

// mayTopic checks the user's permission for a routing key, which applies to topic exchanges only
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

// mayTopics checks the permission to publish with every key of a message.
func (c *Conn) mayTopics(o *queue.RoutingInfo) error {
	err := c.mayTopic(auth.Write, o.Exchange, o.Key)
	for _, key := range slices.Concat(o.CC, o.BCC) {
		if err == nil {
			err = c.mayTopic(auth.Write, o.Exchange, key)
		}
	}
	return err
}
