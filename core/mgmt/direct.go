package mgmt

import (
	"context"
	"fmt"
	"time"

	"github.com/curfewmq/curfew/core/amqp"
	"github.com/curfewmq/curfew/core/session"
)

// internalClient is an AMQP connection of the user's inside the broker. Handlers use it for actions that clients could do over AMQP, and so
// have the same permissions, limits and error texts.
type internalClient struct{ *session.Direct }

// operationTimeout is how long a request waits for the broker to do something.
const operationTimeout = 25 * time.Second

// direct opens a connection for the user to the vhost that the path names, for as long as fn runs. As over AMQP, the tag
// administrator is not enough: the user needs permissions there.
func (c *request) direct(fn func(ctx context.Context, d internalClient) error) error {
	if err := c.mayConnect(); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(c.r.Context(), operationTimeout)
	defer cancel()
	d := c.api.AMQP.Sessions().Direct(c.user, c.vhost, c.api.Clock)
	defer d.Close()
	return fn(ctx, internalClient{d})
}

// mayConnect refuses a user that direct would refuse. Handlers that read a body call it before.
func (c *request) mayConnect() error {
	if c.api.users().OpenVHost(c.user.Name, c.vhost.Name()) != nil {
		return notAuthorised("User not authorised to access virtual host")
	}
	return nil
}

// ask calls one method.
func (c *request) ask(m amqp.Method) error {
	return c.direct(func(ctx context.Context, d internalClient) error {
		_, err := d.Call(ctx, m)
		return err
	})
}

// send publishes a message and waits for the confirm. It reports whether the message was routed to any queue.
func (d internalClient) send(ctx context.Context, exchange, key string, props, body []byte) (routed bool, err error) {
	if _, err := d.Call(ctx, &amqp.ConfirmSelect{}); err != nil {
		return false, err
	}
	d.Publish(&amqp.BasicPublish{Exchange: exchange, RoutingKey: key, Mandatory: true}, props, body)
	routed = true
	for {
		r, err := d.Next(ctx)
		if err != nil {
			return false, err
		}
		switch r.Method.(type) {
		case *amqp.BasicReturn:
			routed = false
		case *amqp.BasicAck:
			return routed, nil
		case *amqp.BasicNack:
			return false, badRequest("rejected")
		default:
			return false, fmt.Errorf("publish: answered by %s", r.Method.Name())
		}
	}
}
