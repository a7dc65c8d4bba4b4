package mgmt

import (
	"context"
	"fmt"

	"github.com/curfewmq/curfew/core/amqp"
	"github.com/curfewmq/curfew/core/session"
)

// What clients can do over AMQP is done over a connection of the user's own inside the broker: permissions, limits and error
// texts are the same.

// internalClient is a connection that waits for answers.
type internalClient struct{ *session.Direct }

// direct opens a connection for the user in the vhost that the path names, for as long as fn runs.
func (c *request) direct(fn func(ctx context.Context, d internalClient) error) error {
	if err := c.mayAct(); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(c.r.Context(), patience)
	defer cancel()
	d := c.api.AMQP.Sessions().Direct(c.user, c.vhost, c.api.Clock)
	defer d.Close()
	return fn(ctx, internalClient{d})
}

// ask does one thing.
func (c *request) ask(m amqp.Method) error {
	return c.direct(func(ctx context.Context, d internalClient) error {
		_, err := d.Call(ctx, m)
		return err
	})
}

// send publishes a message and waits until the broker has taken it. It reports whether it went to any queue.
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
