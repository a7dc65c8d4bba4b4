package session

import "github.com/curfewmq/curfew/core/auth"

// mayQueue checks the user's permission for a queue.
func (c *Conn) mayQueue(p auth.Permission, name string) error {
	return c.srv.Users.Check(c.user.Name, p, auth.Resource{Kind: auth.Queue, VHost: c.vhost.Name(), Name: name})
}

// mayExchange checks the user's permission for an exchange.
func (c *Conn) mayExchange(p auth.Permission, name string) error {
	return c.srv.Users.Check(c.user.Name, p, auth.Resource{Kind: auth.Exchange, VHost: c.vhost.Name(), Name: name})
}
